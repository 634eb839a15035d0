package record

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// HostRef is a Host as a Directory names it.
type HostRef struct {
	// ID is the thumbprint URI of the Host's key.
	ID string `json:"id"`
	// FHIRBase is the URL under which its FHIR interface stands, without a
	// slash at the end: https://host.example/fhir.
	FHIRBase string `json:"fhir_base"`
	// Issuer is the URL of its authorization server.
	Issuer string `json:"issuer"`
}

// Location is a Directory's signed word about where a record lives.
type Location struct {
	// Directory is the Directory's URL.
	Directory string `json:"iss"`
	// Address is where the document itself is read; it never changes.
	Address string `json:"sub"`
	// Record is the patient's record.
	Record string `json:"record_id"`
	// Generation counts the record's Hosts from 1.
	Generation int64 `json:"gen"`
	// Prev is the [Location.Hash] of the generation before; "" for the first.
	Prev string `json:"prev"`
	// Host is where the record lives.
	Host HostRef `json:"host"`
	// Reason says why this generation came to be.
	Reason string `json:"reason"`
	// IssuedAt and Expires are seconds since 1970. A Directory signs the same
	// generation again before it expires.
	IssuedAt int64 `json:"iat"`
	Expires  int64 `json:"exp"`
}

// Hash returns the base64url SHA-256 of what the document says about the
// record: all claims but iat and exp, which change when a Directory signs the
// same generation again.
func (l Location) Hash() string {
	raw, err := json.Marshal(struct {
		Directory  string  `json:"iss"`
		Address    string  `json:"sub"`
		Record     string  `json:"record_id"`
		Generation int64   `json:"gen"`
		Prev       string  `json:"prev"`
		Host       HostRef `json:"host"`
		Reason     string  `json:"reason"`
	}{l.Directory, l.Address, l.Record, l.Generation, l.Prev, l.Host, l.Reason})
	if err != nil {
		panic(fmt.Sprintf("record: strings and numbers do not marshal: %v", err))
	}
	canonical, err := Canonical(raw, Limits{})
	if err != nil {
		panic(fmt.Sprintf("record: own JSON is not canonical: %v", err))
	}
	return hashText(canonical)
}

// Check reports whether the document is complete and consistent in itself.
// The error is an *[Error] with [InvalidDiscovery].
func (l Location) Check() error {
	bad := func(field, format string, args ...any) error {
		return failf(InvalidDiscovery, field, format, args...)
	}
	switch {
	case !IsID(l.Record):
		return bad("record_id", "not a record id")
	case l.Generation < 1:
		return bad("gen", "generations count from 1")
	case (l.Generation == 1) != (l.Prev == ""):
		return bad("prev", "only the first generation has no prev")
	case len(l.Reason) > 200:
		return bad("reason", "longer than 200 bytes")
	case l.IssuedAt <= 0 || l.Expires <= l.IssuedAt:
		return bad("exp", "the document's times are not in order")
	case !strings.HasPrefix(l.Address, l.Directory+"/"):
		return bad("sub", "the address is not one of the Directory's")
	}
	if err := l.Host.Check(); err != nil {
		return bad("host", "%v", err)
	}
	for name, u := range map[string]string{"iss": l.Directory, "sub": l.Address} {
		if err := CheckBaseURL(u); err != nil {
			return bad(name, "%v", err)
		}
	}
	return nil
}

// Check reports whether the id and the URLs are well formed.
func (h HostRef) Check() error {
	if err := CheckSubject("host.id", h.ID); err != nil {
		return err
	}
	if err := CheckBaseURL(h.FHIRBase); err != nil {
		return fmt.Errorf("host.fhir_base: %w", err)
	}
	if err := CheckBaseURL(h.Issuer); err != nil {
		return fmt.Errorf("host.issuer: %w", err)
	}
	return nil
}

// CheckBaseURL reports whether raw is an absolute http or https URL without
// user, query, fragment or a slash at its end.
func CheckBaseURL(raw string) error {
	if len(raw) > 512 {
		return failf(InvalidMessage, "", "a URL is longer than 512 bytes")
	}
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(raw, "/") || strings.HasSuffix(raw, "#") {
		return failf(InvalidMessage, "", "%s is not an absolute http(s) URL without query, fragment and slash at the end", quoteShort(raw))
	}
	return nil
}

// SignLocation signs a document with the Directory's keys: one gives a compact
// JWS, several the general JSON form.
func SignLocation(keys []*Key, l Location) (string, error) {
	return signMulti(keys, typLocation, l)
}

// Quorum is a set of keys of which at least Threshold must sign.
type Quorum struct {
	Keys      []PublicKey `json:"keys"`
	Threshold int         `json:"threshold"`
}

// Check reports whether the threshold can be met and means something.
func (q Quorum) Check() error {
	distinct := map[string]bool{}
	for _, key := range q.Keys {
		if key.IsZero() {
			return failf(InvalidMessage, "keys", "an empty key")
		}
		distinct[key.thumb] = true
	}
	if len(distinct) != len(q.Keys) {
		return failf(InvalidMessage, "keys", "a key stands twice")
	}
	if len(q.Keys) > maxSignatures || q.Threshold < 1 || q.Threshold > len(q.Keys) {
		return failf(InvalidMessage, "threshold", "a threshold of %d with %d keys; wanted 1 to the number of keys, at most %d", q.Threshold, len(q.Keys), maxSignatures)
	}
	return nil
}

// metBy reports whether enough of the quorum's keys are among the signers.
func (q Quorum) metBy(signers []PublicKey) bool {
	count := 0
	for _, key := range q.Keys {
		for _, signer := range signers {
			if key.Equal(signer) {
				count++
				break
			}
		}
	}
	return q.Threshold >= 1 && count >= q.Threshold
}

// VerifyLocation checks a document's signatures against the quorum and its
// form. Its time is not checked here: see [Location.Expired]. The error is an
// *[Error] with [InvalidDiscovery].
func VerifyLocation(document string, quorum Quorum) (Location, error) {
	payload, signers, err := openMulti(document, typLocation)
	if err != nil {
		return Location{}, failf(InvalidDiscovery, "document", "%v", err)
	}
	if !quorum.metBy(signers) {
		return Location{}, failf(InvalidDiscovery, "document", "too few of the Directory's pinned keys have signed it; wanted %d", quorum.Threshold)
	}
	var l Location
	if err := DecodeJSON(payload, payloadLimits, &l); err != nil {
		return Location{}, failf(InvalidDiscovery, "document", "%v", errBadClaim)
	}
	return l, l.Check()
}

// Expired reports whether the document's time is over or has not begun, both
// as an *[Error] with [DiscoveryExpired]. The skew widens its time at both
// ends, for clocks that are a little wrong.
func (l Location) Expired(now time.Time, skew time.Duration) error {
	switch {
	case now.Add(-skew).Unix() >= l.Expires:
		return failf(DiscoveryExpired, "exp", "the location document expired at %s", time.Unix(l.Expires, 0).UTC().Format(time.RFC3339))
	case now.Add(skew).Unix() < l.IssuedAt:
		return failf(DiscoveryExpired, "iat", "the location document is from the future, %s; is the clock right?", time.Unix(l.IssuedAt, 0).UTC().Format(time.RFC3339))
	}
	return nil
}

// Publication is a Host's request to a Directory: from now on, the record
// lives there. It is signed by the new Host and, where the record moves, by
// the one that it leaves.
type Publication struct {
	// Directory is the Directory's URL: the publication is for it alone.
	Directory string `json:"aud"`
	// Address, Record, Generation, Prev, Host and Reason become the document's.
	Address    string  `json:"sub"`
	Record     string  `json:"record_id"`
	Generation int64   `json:"gen"`
	Prev       string  `json:"prev"`
	Host       HostRef `json:"host"`
	Reason     string  `json:"reason"`
	// IssuedAt and Expires are seconds since 1970.
	IssuedAt int64 `json:"iat"`
	Expires  int64 `json:"exp"`
}

// SignPublication signs a publication with the keys of the Hosts concerned.
func SignPublication(keys []*Key, p Publication) (string, error) {
	return signMulti(keys, typPublication, p)
}

// VerifyPublication checks a publication's signatures and form, and returns
// the ids of those who signed it. The error is an *[Error] with
// [InvalidMessage].
func VerifyPublication(publication string) (p Publication, signers []string, err error) {
	const field = "publication"
	payload, keys, err := openMulti(publication, typPublication)
	if err != nil {
		return p, nil, failf(InvalidMessage, field, "%v", err)
	}
	if err := DecodeJSON(payload, payloadLimits, &p); err != nil {
		return p, nil, failf(InvalidMessage, field, "%v", errBadClaim)
	}
	for _, key := range keys {
		signers = append(signers, key.ID())
	}
	return p, signers, nil
}

// Location returns the document that the publication asks for.
func (p Publication) Location(issued, expires time.Time) Location {
	return Location{Directory: p.Directory, Address: p.Address, Record: p.Record, Generation: p.Generation,
		Prev: p.Prev, Host: p.Host, Reason: p.Reason, IssuedAt: issued.Unix(), Expires: expires.Unix()}
}

// Transfer is what a Host shows to the one that a record is to move to: the
// publication that both will sign. It is no publication itself, so that the
// leaving Host alone decides when to publish. It is signed by the leaving Host.
type Transfer struct {
	Publication
	// To is the id of the Host that the transfer is for.
	To string `json:"to"`
}

// SignTransfer signs a transfer with the leaving Host's key.
func SignTransfer(from *Key, t Transfer) (string, error) { return signJWS(from, typTransfer, t) }

// VerifyTransfer checks a transfer's signature and form, and returns the id of
// the Host that signed it. The error is an *[Error] with [InvalidMessage].
func VerifyTransfer(transfer string) (t Transfer, from string, err error) {
	payload, key, err := openJWS(transfer, typTransfer, maxDocument)
	if err != nil {
		return t, "", failf(InvalidMessage, "transfer", "%v", err)
	}
	if err := DecodeJSON(payload, payloadLimits, &t); err != nil {
		return t, "", failf(InvalidMessage, "transfer", "%v", errBadClaim)
	}
	return t, key.ID(), nil
}

// Manifest stands at the end of an exported record and says what came before it.
type Manifest struct {
	// Host is the id of the exporting Host, To of the one that it is for.
	Host   string `json:"iss"`
	To     string `json:"aud"`
	Record string `json:"record"`
	// Versions, Grants and Clients count the lines of each kind.
	Versions int64 `json:"versions"`
	Grants   int64 `json:"grants"`
	Clients  int64 `json:"clients"`
	// LastHash is the [ReceiptHash] of the record's last receipt.
	LastHash string `json:"last_hash"`
	// Digest is the base64url SHA-256 of all lines before the manifest's.
	Digest   string `json:"digest"`
	IssuedAt int64  `json:"iat"`
}

// SignManifest signs a manifest with the exporting Host's key.
func SignManifest(from *Key, m Manifest) (string, error) {
	m.Host = from.ID()
	return signJWS(from, typManifest, m)
}

// VerifyManifest checks that the Host with the given id signed the manifest. The
// error is an *[Error] with [InvalidMessage].
func VerifyManifest(manifest, from string) (m Manifest, err error) {
	if err := openJWSFrom(manifest, typManifest, maxDocument, from, &m); err != nil {
		return m, failf(InvalidMessage, "manifest", "%v", err)
	}
	if m.Host != from {
		return m, failf(InvalidMessage, "manifest", "iss is not the Host that signed it")
	}
	return m, nil
}
