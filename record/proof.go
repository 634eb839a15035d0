package record

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// ProofParams says what a DPoP proof (RFC 9449) is for.
type ProofParams struct {
	// Method is the request's method.
	Method string
	// URL is the request's URL; its query and fragment do not count.
	URL string
	// AccessToken is the token sent beside the proof; "" at the token endpoint.
	AccessToken string
	// Nonce is the server's last nonce; "" if none is known yet.
	Nonce string
	// Now is the sender's time; the zero value means time.Now().
	Now time.Time
}

type proofClaims struct {
	JTI   string `json:"jti"`
	HTM   string `json:"htm"`
	HTU   string `json:"htu"`
	IAT   int64  `json:"iat"`
	ATH   string `json:"ath,omitzero"`
	Nonce string `json:"nonce,omitzero"`
}

// NewProof makes a DPoP proof for one request.
func NewProof(key *Key, p ProofParams) (string, error) {
	htu, err := proofURL(p.URL)
	if err != nil {
		return "", failf(InvalidMessage, "URL", "not an absolute http or https URL")
	}
	if p.Now.IsZero() {
		p.Now = time.Now()
	}
	claims := proofClaims{JTI: randomText(16), HTM: p.Method, HTU: htu, IAT: p.Now.Unix(), Nonce: p.Nonce}
	if p.AccessToken != "" {
		claims.ATH = hashString(p.AccessToken)
	}
	return signJWS(key, typProof, claims)
}

// Proof is a verified DPoP proof.
type Proof struct {
	// Key is the key that made it. Its thumbprint must be the token's cnf.jkt.
	Key PublicKey
	// JTI is the proof's own id, to be accepted once.
	JTI string
}

// ProofCheck says what a proof must be for, and which nonces are good.
type ProofCheck struct {
	// Method, URL and AccessToken are those of the request.
	Method, URL, AccessToken string
	// Keys remembers the applications' keys; nil does without.
	Keys *KeyCache
	// Nonces made the nonce that the proof must carry.
	Nonces *Nonces
	// Now is the server's time; the zero value means time.Now().
	Now time.Time
}

// VerifyProof checks a DPoP proof: form, signature, method, URL, token hash
// and nonce (RFC 9449, 4.3). The nonce holds the server's own time, so the
// proof's iat is not compared with anything, and a client whose clock is wrong
// works. Errors: [UseDPoPNonce] for a missing or old nonce, [InvalidToken]
// otherwise. Whether the JTI was used before is the caller's to check.
func VerifyProof(proof string, check ProofCheck) (Proof, error) {
	const field = "DPoP"
	payload, key, err := check.Keys.open(proof, typProof, maxProof)
	if err != nil {
		return Proof{}, failf(InvalidToken, field, "%v", err)
	}
	var claims proofClaims
	if err := DecodeJSON(payload, payloadLimits, &claims); err != nil {
		return Proof{}, failf(InvalidToken, field, "%v", errBadClaim)
	}
	want, err := proofURL(check.URL)
	if err != nil {
		return Proof{}, failf(InvalidToken, field, "the request has no proper URL")
	}
	got := want
	if claims.HTU != check.URL {
		got, err = proofURL(claims.HTU)
	}
	switch {
	case err != nil || got != want:
		return Proof{}, failf(InvalidToken, field, "htu is not this URL; wanted %s", want)
	case claims.HTM != check.Method:
		return Proof{}, failf(InvalidToken, field, "htm is not this method")
	case len(claims.JTI) < 8 || len(claims.JTI) > 128:
		return Proof{}, failf(InvalidToken, field, "jti must have 8 to 128 characters")
	case claims.IAT <= 0:
		return Proof{}, failf(InvalidToken, field, "iat is missing")
	}
	if check.AccessToken != "" {
		ath := hashString(check.AccessToken)
		if subtle.ConstantTimeCompare([]byte(ath), []byte(claims.ATH)) != 1 {
			return Proof{}, failf(InvalidToken, field, "ath is not the hash of this token")
		}
	}
	if check.Now.IsZero() {
		check.Now = time.Now()
	}
	if !check.Nonces.Valid(claims.Nonce, check.Now) {
		return Proof{}, failf(UseDPoPNonce, field, "the proof must carry the nonce of the DPoP-Nonce header")
	}
	return Proof{Key: key, JTI: claims.JTI}, nil
}

// proofURL returns the URL as RFC 9449 compares it: without query and
// fragment, scheme and host in lower case, the scheme's own port left out,
// the path escaped in one way.
func proofURL(raw string) (string, error) {
	if len(raw) > 2048 {
		return "", errTooLarge
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "", err
	}
	scheme := strings.ToLower(u.Scheme)
	if (scheme != "https" && scheme != "http") || u.Host == "" || u.User != nil {
		return "", failf(InvalidMessage, "URL", "not an absolute http or https URL")
	}
	host := strings.ToLower(u.Host)
	if h, port, err := net.SplitHostPort(host); err == nil && (port == "443" && scheme == "https" || port == "80" && scheme == "http") {
		host = h
		if strings.Contains(h, ":") {
			host = "[" + h + "]"
		}
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	return scheme + "://" + host + path, nil
}

// NonceLifetime is how long a nonce is accepted after it was made.
const NonceLifetime = 2 * time.Minute

// Nonces makes and checks the server's DPoP nonces: its time, authenticated
// with a secret that only this value knows. A new value refuses the nonces of
// the one before it, so proofs seen before a restart cannot be replayed after
// it, and the memory of used proofs need not survive the process.
type Nonces struct {
	secret [32]byte
	// made is the newest nonce. It holds seconds, so all of one second are the
	// same, and most proofs carry this one or the one before.
	made atomic.Pointer[madeNonce]
}

type madeNonce struct {
	second int64
	text   string
	before string // the nonce that was made before this one
}

// NewNonces returns a maker of nonces with a fresh secret.
func NewNonces() *Nonces {
	n := &Nonces{}
	rand.Read(n.secret[:])
	return n
}

// New returns a nonce for the given time.
func (n *Nonces) New(now time.Time) string {
	last := n.made.Load()
	if last != nil && last.second == now.Unix() {
		return last.text
	}
	raw := binary.BigEndian.AppendUint64(nil, uint64(now.Unix()))
	next := &madeNonce{second: now.Unix(), text: encodeBase64(append(raw, n.mac(raw)...))}
	if last != nil {
		next.before = last.text
	}
	n.made.CompareAndSwap(last, next)
	return next.text
}

// Valid reports whether nonce was made by this value and is not older than
// [NonceLifetime].
func (n *Nonces) Valid(nonce string, now time.Time) bool {
	raw, err := decodeBase64(nonce)
	if err != nil || len(raw) != 8+16 {
		return false
	}
	// No secret is compared here: the newest nonces stand in every answer.
	last := n.made.Load()
	if known := last != nil && (nonce == last.text || nonce == last.before); !known && !hmac.Equal(raw[8:], n.mac(raw[:8])) {
		return false
	}
	age := now.Sub(time.Unix(int64(binary.BigEndian.Uint64(raw)), 0))
	return age >= -time.Minute && age <= NonceLifetime // the server's own clock may be set back a little
}

func (n *Nonces) mac(raw []byte) []byte {
	h := hmac.New(sha256.New, n.secret[:])
	h.Write(raw)
	return h.Sum(nil)[:16]
}
