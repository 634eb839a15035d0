package record

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestThumbprintOfRFC8037(t *testing.T) {
	key, err := ParsePublicKey([]byte(`{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"; key.Thumbprint() != want || key.ID() != ThumbprintPrefix+want {
		t.Errorf("got %s, want %s (RFC 8037, A.3)", key.Thumbprint(), want)
	}
}

func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "host.key")
	key, err := LoadOrCreateKey(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadOrCreateKey(path)
	if err != nil || again.ID() != key.ID() {
		t.Fatalf("another key came back: %v", err)
	}
	if err := NewKey().Save(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a key file was replaced: %v", err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("temporary files stayed: %v", entries)
	}
	data, _ := os.ReadFile(path)
	for _, shown := range []string{fmt.Sprint(key), fmt.Sprintf("%+v %#v %v", key, key, key)} {
		for _, secret := range []string{base64.RawURLEncoding.EncodeToString(key.private.Seed()), fmt.Sprint(key.private.Seed())} {
			if strings.Contains(shown, secret) {
				t.Error("formatting a key shows its private half")
			}
		}
	}
	if _, err := ParsePublicKey(data); err == nil {
		t.Error("a private JWK was taken for a public one")
	}
	os.Chmod(path, 0o644)
	if _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a readable key file: %v", err)
	}
	os.Chmod(path, 0o600)
	for name, content := range map[string]string{"empty": "", "garbage": "{{", "public": `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`, "large": strings.Repeat(" ", maxKeyFile) + string(data)} {
		bad := filepath.Join(dir, name)
		os.WriteFile(bad, []byte(content), 0o600)
		if _, err := LoadKey(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestProof(t *testing.T) {
	key, nonces := NewKey(), NewNonces()
	params := ProofParams{Method: "POST", URL: "https://host.example/fhir/Observation?x=1", AccessToken: "token", Nonce: nonces.New(noon), Now: noon.Add(-24 * time.Hour)}
	check := ProofCheck{Method: "POST", URL: "HTTPS://Host.Example:443/fhir/Observation", AccessToken: "token", Nonces: nonces, Now: noon}
	proof, err := NewProof(key, params)
	if err != nil {
		t.Fatal(err)
	}
	got, err := VerifyProof(proof, check)
	if err != nil || !got.Key.Equal(key.Public()) || len(got.JTI) < 16 {
		t.Fatalf("a good proof from a clock a day late: %+v, %v", got, err)
	}
	warm := &KeyCache{}
	for range 3 {
		cached := check
		cached.Keys = warm
		if again, err := VerifyProof(proof, cached); err != nil || !again.Key.Equal(got.Key) || again.JTI != got.JTI {
			t.Fatalf("with a cache: %+v, %v", again, err)
		}
	}
	type change struct {
		name string
		with func(*ProofParams, *ProofCheck)
		code Code
	}
	for _, c := range []change{
		{"method", func(_ *ProofParams, c *ProofCheck) { c.Method = "PUT" }, InvalidToken},
		{"path", func(_ *ProofParams, c *ProofCheck) { c.URL += "/1" }, InvalidToken},
		{"host", func(_ *ProofParams, c *ProofCheck) { c.URL = "https://evil.example/fhir/Observation" }, InvalidToken},
		{"scheme", func(_ *ProofParams, c *ProofCheck) { c.URL = "http://host.example/fhir/Observation" }, InvalidToken},
		{"token", func(_ *ProofParams, c *ProofCheck) { c.AccessToken = "other" }, InvalidToken},
		{"no ath", func(p *ProofParams, _ *ProofCheck) { p.AccessToken = "" }, InvalidToken},
		{"no nonce", func(p *ProofParams, _ *ProofCheck) { p.Nonce = "" }, UseDPoPNonce},
		{"garbage nonce", func(p *ProofParams, _ *ProofCheck) { p.Nonce = "AAAA" }, UseDPoPNonce},
		{"another server's nonce", func(p *ProofParams, _ *ProofCheck) { p.Nonce = NewNonces().New(noon) }, UseDPoPNonce},
		{"old nonce", func(p *ProofParams, _ *ProofCheck) { p.Nonce = nonces.New(noon.Add(-NonceLifetime - time.Second)) }, UseDPoPNonce},
		{"future nonce", func(p *ProofParams, _ *ProofCheck) { p.Nonce = nonces.New(noon.Add(time.Hour)) }, UseDPoPNonce},
	} {
		p, ck := params, check
		c.with(&p, &ck)
		proof, err := NewProof(key, p)
		if err != nil {
			t.Fatal(err)
		}
		// With and without a cache that knows the key.
		for _, ck.Keys = range []*KeyCache{nil, warm} {
			if _, err := VerifyProof(proof, ck); CodeOf(err) != c.code {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

// Forged and malformed proofs, made with the library directly.
func TestProofForgeries(t *testing.T) {
	key, nonces := NewKey(), NewNonces()
	claims := fmt.Sprintf(`{"jti":"12345678","htm":"GET","htu":"https://h/x","iat":1,"nonce":%q}`, nonces.New(noon))
	check := ProofCheck{Method: "GET", URL: "https://h/x", Nonces: nonces, Now: noon}
	sign := func(alg jose.SignatureAlgorithm, private any, opts *jose.SignerOptions, payload string) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: private}, opts)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign([]byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := signed.CompactSerialize()
		return text
	}
	opts := func() *jose.SignerOptions { return (&jose.SignerOptions{EmbedJWK: true}).WithType(typProof) }
	good := sign(jose.EdDSA, key.private, opts(), claims)
	warm := &KeyCache{}
	check.Keys = warm
	if _, err := VerifyProof(good, check); err != nil {
		t.Fatal(err)
	}
	ec, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	parts := strings.Split(good, ".")
	b64 := base64.RawURLEncoding.EncodeToString
	other := strings.Split(sign(jose.EdDSA, NewKey().private, opts(), claims), ".")
	withPrivate := b64([]byte(`{"alg":"EdDSA","typ":"dpop+jwt","jwk":{"kty":"OKP","crv":"Ed25519","x":"` + b64(key.public.raw) + `","d":"` + b64(key.private.Seed()) + `"}}`))
	for name, forged := range map[string]string{
		"empty":            "",
		"huge":             strings.Repeat("a", maxProof+1),
		"wrong typ":        sign(jose.EdDSA, key.private, (&jose.SignerOptions{EmbedJWK: true}).WithType("JWT"), claims),
		"no typ":           sign(jose.EdDSA, key.private, &jose.SignerOptions{EmbedJWK: true}, claims),
		"no jwk":           sign(jose.EdDSA, key.private, (&jose.SignerOptions{}).WithType(typProof), claims),
		"HMAC":             sign(jose.HS256, make([]byte, 32), (&jose.SignerOptions{}).WithType(typProof), claims),
		"ES256":            sign(jose.ES256, ec, opts(), claims),
		"alg none":         b64([]byte(`{"alg":"none","typ":"dpop+jwt"}`)) + "." + parts[1] + ".",
		"no signature":     parts[0] + "." + parts[1] + ".",
		"another's header": other[0] + "." + parts[1] + "." + parts[2],
		"altered claims":   parts[0] + "." + b64([]byte(strings.Replace(claims, "GET", "PUT", 1))) + "." + parts[2],
		"private jwk":      withPrivate + "." + parts[1] + "." + parts[2],
		"duplicate claim":  sign(jose.EdDSA, key.private, opts(), strings.Replace(claims, `{`, `{"htm":"PUT",`, 1)),
		"short jti":        sign(jose.EdDSA, key.private, opts(), strings.Replace(claims, "12345678", "1", 1)),
		"no iat":           sign(jose.EdDSA, key.private, opts(), strings.Replace(claims, `"iat":1,`, "", 1)),
		"critical header":  sign(jose.EdDSA, key.private, opts().WithHeader("crit", []string{"exp"}).WithHeader("exp", 1), claims),
		"JSON form":        `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
	} {
		for _, check.Keys = range []*KeyCache{nil, warm} {
			if _, err := VerifyProof(forged, check); !errors.Is(err, InvalidToken) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestReceipt(t *testing.T) {
	host := NewKey()
	want := Receipt{Record: NewID(), Client: NewKey().ID(), Operation: NewID(), Fingerprint: "fp", Method: "POST", Type: "Observation", ID: "a", Version: 1, Status: 201, Seq: 1, IssuedAt: noon.Unix()}
	signed, err := SignReceipt(host, want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := VerifyReceipt(signed, host.ID())
	want.Host = host.ID()
	if err != nil || got != want {
		t.Fatalf("got %+v, %v", got, err)
	}
	if err := got.Covers(want.Record, want.Client, want.Operation, "fp"); err != nil {
		t.Error(err)
	}
	for i, err := range []error{got.Covers(NewID(), want.Client, want.Operation, "fp"), got.Covers(want.Record, "x", want.Operation, "fp"),
		got.Covers(want.Record, want.Client, NewID(), "fp"), got.Covers(want.Record, want.Client, want.Operation, "other")} {
		if !errors.Is(err, InvalidReceipt) {
			t.Errorf("case %d: %v", i, err)
		}
	}
	if _, err := VerifyReceipt(signed, NewKey().ID()); !errors.Is(err, InvalidReceipt) {
		t.Errorf("another Host's receipt: %v", err)
	}
	for name, alter := range map[string]func(*Receipt){
		"record": func(r *Receipt) { r.Record = "x" }, "operation": func(r *Receipt) { r.Operation = "" }, "version": func(r *Receipt) { r.Version = 0 },
		"status": func(r *Receipt) { r.Status = 500 }, "seq": func(r *Receipt) { r.Seq = 0 }, "prev": func(r *Receipt) { r.Prev = "x" },
		"no prev": func(r *Receipt) { r.Seq = 2 }, "id": func(r *Receipt) { r.ID = "a/b" }, "iat": func(r *Receipt) { r.IssuedAt = 0 },
	} {
		r := want
		alter(&r)
		signed, _ := SignReceipt(host, r)
		if _, err := VerifyReceipt(signed, host.ID()); !errors.Is(err, InvalidReceipt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A token of the same Host is no receipt.
	token, _ := NewToken(host, Token{}, "https://h")
	if _, err := VerifyReceipt(token, host.ID()); !errors.Is(err, InvalidReceipt) {
		t.Errorf("a token: %v", err)
	}
}

func TestToken(t *testing.T) {
	host, client := NewKey(), NewKey()
	base := Token{Issuer: "https://h", Subject: client.ID(), Client: client.ID(), Expires: noon.Add(TokenLifetime).Unix(), IssuedAt: noon.Unix(), ID: "t",
		Scope: "patient/*.rs", Record: NewID(), Grant: "g", Actor: &Actor{Subject: "x"}, Confirmation: Confirmation{Thumbprint: client.Public().Thumbprint()}}
	verify := func(alter func(*Token), now time.Time) error {
		tok := base
		alter(&tok)
		signed, err := NewToken(host, tok, "https://h/fhir")
		if err != nil {
			t.Fatal(err)
		}
		_, err = VerifyToken(signed, host.ID(), "https://h", "https://h/fhir", now)
		return err
	}
	if err := verify(func(*Token) {}, noon); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		alter func(*Token)
		now   time.Time
		code  Code
	}{
		"expired":        {func(*Token) {}, noon.Add(TokenLifetime), AuthorizationExpired},
		"another issuer": {func(t *Token) { t.Issuer = "https://x" }, noon, InvalidToken},
		"too long":       {func(t *Token) { t.Expires++ }, noon, InvalidToken},
		"unbound":        {func(t *Token) { t.Confirmation.Thumbprint = "" }, noon, InvalidToken},
		"no record":      {func(t *Token) { t.Record = "" }, noon, InvalidToken},
	} {
		if err := verify(c.alter, c.now); CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	signed, _ := NewToken(NewKey(), base, "https://h/fhir")
	if _, err := VerifyToken(signed, host.ID(), "https://h", "https://h/fhir", noon); !errors.Is(err, InvalidToken) {
		t.Errorf("self-made token: %v", err)
	}
}

func TestAssertion(t *testing.T) {
	key := NewKey()
	const endpoint = "https://h/oauth/token"
	assertion, err := NewAssertion(key, endpoint, noon)
	if err != nil {
		t.Fatal(err)
	}
	got, err := VerifyAssertion(assertion, []string{"https://h", endpoint}, noon)
	if err != nil || got.Client != key.ID() {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := VerifyAssertion(assertion, []string{"https://x"}, noon); !errors.Is(err, InvalidToken) {
		t.Errorf("wrong audience: %v", err)
	}
	for _, now := range []time.Time{noon.Add(3 * time.Minute), noon.Add(-24 * time.Hour)} {
		if _, err := VerifyAssertion(assertion, []string{endpoint}, now); !errors.Is(err, InvalidToken) {
			t.Errorf("at %v: %v", now, err)
		}
	}
	forged, _ := signJWS(NewKey(), typAssertion, assertionClaims{Issuer: key.ID(), Subject: key.ID(), Audience: audience{endpoint, "b"}, JTI: "12345678", Expires: noon.Add(time.Minute).Unix()})
	if _, err := VerifyAssertion(forged, []string{endpoint}, noon); !errors.Is(err, InvalidToken) {
		t.Errorf("another's key: %v", err)
	}
}

func testLocation(host *Key) Location {
	id := NewID()
	return Location{Directory: "https://d", Address: "https://d/records/" + id, Record: id, Generation: 1,
		Host: HostRef{ID: host.ID(), FHIRBase: "https://h/fhir", Issuer: "https://h"}, Reason: "created", IssuedAt: noon.Unix(), Expires: noon.Add(time.Hour).Unix()}
}

func TestLocationQuorum(t *testing.T) {
	a, b, c, host := NewKey(), NewKey(), NewKey(), NewKey()
	l := testLocation(host)
	quorum := Quorum{Keys: []PublicKey{a.Public(), b.Public(), c.Public()}, Threshold: 2}
	if err := quorum.Check(); err != nil {
		t.Fatal(err)
	}
	sign := func(keys ...*Key) string {
		doc, err := SignLocation(keys, l)
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	merged, err := MergeSignatures(sign(a), sign(c))
	if err != nil {
		t.Fatal(err)
	}
	for name, doc := range map[string]string{"two": sign(a, b), "three": sign(a, b, c), "merged": merged, "two and a stranger": sign(a, host, b)} {
		if got, err := VerifyLocation(doc, quorum); err != nil || got != l {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, doc := range map[string]string{"one": sign(a), "the same twice": sign(a, a), "one and a stranger": sign(a, host), "stranger": sign(host),
		"empty": "", "no signatures": `{"payload":"e30","signatures":[]}`, "large": strings.Repeat(" ", maxDocument+1),
		"one spoilt": strings.Replace(sign(a, b, c), `"signature":"`, `"signature":"AAAA`, 1)} {
		if _, err := VerifyLocation(doc, quorum); !errors.Is(err, InvalidDiscovery) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := MergeSignatures(sign(a), "a.b.c"); err == nil {
		t.Error("different payloads were merged")
	}
	for i, bad := range []Quorum{{}, {Keys: quorum.Keys}, {Keys: quorum.Keys, Threshold: 4}, {Keys: []PublicKey{a.Public(), a.Public()}, Threshold: 2}, {Keys: []PublicKey{{}}, Threshold: 1}} {
		if bad.Check() == nil {
			t.Errorf("quorum %d passed", i)
		}
	}
}

func TestLocationCheckHashAndTime(t *testing.T) {
	l := testLocation(NewKey())
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	for name, alter := range map[string]func(*Location){
		"record": func(l *Location) { l.Record = "x" }, "gen": func(l *Location) { l.Generation = 0 }, "prev": func(l *Location) { l.Prev = "x" },
		"no prev": func(l *Location) { l.Generation = 2 }, "address": func(l *Location) { l.Address = "https://evil/" + l.Record },
		"host": func(l *Location) { l.Host.ID = "x" }, "base": func(l *Location) { l.Host.FHIRBase += "/" }, "query": func(l *Location) { l.Host.FHIRBase += "?" },
		"scheme": func(l *Location) { l.Host.Issuer = "ftp://h" }, "user": func(l *Location) { l.Host.Issuer = "https://u:p@h" }, "times": func(l *Location) { l.Expires = l.IssuedAt },
	} {
		bad := l
		alter(&bad)
		if err := bad.Check(); !errors.Is(err, InvalidDiscovery) {
			t.Errorf("%s: %v", name, err)
		}
	}
	again := l
	again.IssuedAt, again.Expires = again.IssuedAt+5, again.Expires+5
	if again.Hash() != l.Hash() {
		t.Error("signing again changes the hash")
	}
	again.Host.FHIRBase = "https://evil/fhir"
	if again.Hash() == l.Hash() {
		t.Error("another host has the same hash")
	}
	for at, ok := range map[time.Duration]bool{0: true, 59 * time.Minute: true, 60*time.Minute + 59*time.Second: true, 62 * time.Minute: false, -30 * time.Second: true, -2 * time.Minute: false} {
		if err := l.Expired(noon.Add(at), time.Minute); (err == nil) != ok || err != nil && !errors.Is(err, DiscoveryExpired) {
			t.Errorf("at %v: %v", at, err)
		}
	}
}

func TestPublication(t *testing.T) {
	from, to := NewKey(), NewKey()
	l := testLocation(to)
	p := Publication{Directory: l.Directory, Address: l.Address, Record: l.Record, Generation: 2, Prev: "x", Host: l.Host, Reason: "moved", IssuedAt: noon.Unix(), Expires: noon.Add(time.Hour).Unix()}
	one, err := SignPublication([]*Key{from}, p)
	if err != nil {
		t.Fatal(err)
	}
	two, _ := SignPublication([]*Key{to}, p)
	both, err := MergeSignatures(one, two)
	if err != nil {
		t.Fatal(err)
	}
	got, signers, err := VerifyPublication(both)
	if err != nil || got != p || len(signers) != 2 || signers[0] != from.ID() || signers[1] != to.ID() {
		t.Fatalf("%+v %v %v", got, signers, err)
	}
	doc, err := SignLocation([]*Key{to}, l)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := VerifyPublication(doc); !errors.Is(err, InvalidMessage) {
		t.Errorf("a location was taken for a publication: %v", err)
	}
}

func TestWriteFileDurably(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for _, want := range []string{"one", "two"} {
		if err := WriteFileDurably(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("got %q", got)
		}
	}
	if err := WriteFileDurably(filepath.Join(path, "x"), nil); err == nil {
		t.Error("no error for a folder that is a file")
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("temporary files stayed: %v", entries)
	}
}

// A cache is bounded, forgets the oldest, and is of no effect on what verifies.
func TestKeyCache(t *testing.T) {
	var c KeyCache
	for i := range 3 * maxKnownHeaders {
		c.put(strconv.Itoa(i), knownHeader{})
	}
	if len(c.old)+len(c.new) > 2*maxKnownHeaders {
		t.Errorf("%d headers are kept", len(c.old)+len(c.new))
	}
	if _, ok := c.get("0"); ok {
		t.Error("the oldest is kept")
	}
	host := NewKey()
	receipt, err := SignReceipt(host, Receipt{Record: NewID(), Operation: NewID(), ID: "a", Version: 1, Status: 201, Seq: 1, IssuedAt: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r, err := c.ReadReceipt(receipt); err != nil || r.Host != host.ID() {
			t.Errorf("%+v, %v", r, err)
		}
		// Another typ with the same key is another header; a known header under another typ is refused.
		if _, _, err := c.open(receipt, typProof, maxReceipt); !errors.Is(err, errWrongTyp) {
			t.Errorf("a receipt as a proof: %v", err)
		}
		if _, _, err := c.open(receipt, typReceipt, len(receipt)-1); !errors.Is(err, errTooLarge) {
			t.Errorf("beyond the limit: %v", err)
		}
		header, body, _ := strings.Cut(receipt, ".")
		for _, bad := range []string{header, header + ".", header + "." + body + "x", header + "." + body + ".", header + "." + strings.Replace(body, ".", "..", 1), header + "." + body + "\n"} {
			if _, err := c.ReadReceipt(bad); !errors.Is(err, InvalidReceipt) {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
}

// The nonces of one second are one, and those of the seconds before stay good,
// whether they are remembered or not, until their time is over.
func TestNoncesOfSeveralSeconds(t *testing.T) {
	n := NewNonces()
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	var made []string
	for i := range 4 {
		made = append(made, n.New(at(i)))
		if again := n.New(at(i).Add(time.Millisecond)); again != made[i] || i > 0 && made[i] == made[i-1] {
			t.Errorf("second %d: %q and %q", i, made[i], again)
		}
	}
	for i, nonce := range made {
		if !n.Valid(nonce, at(i+120)) || n.Valid(nonce, at(i+121)) {
			t.Errorf("second %d: good for another time than two minutes", i)
		}
		for _, wrong := range []string{NewNonces().New(at(i)), nonce[:len(nonce)-1], nonce + "A", nonce + "\n", ""} {
			if n.Valid(wrong, at(i)) {
				t.Errorf("%q passes", wrong)
			}
		}
	}
}
