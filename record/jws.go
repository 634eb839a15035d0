package record

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
)

// The typ headers of the protocol's signed things.
const (
	typProof       = "dpop+jwt" // RFC 9449
	typReceipt     = "operation-receipt+jwt"
	typLocation    = "record-location+jwt"
	typPublication = "record-publication+jwt"
	typTransfer    = "record-transfer+jwt"
	typManifest    = "record-manifest+jwt"
	typAccessToken = "at+jwt" // RFC 9068
	typAssertion   = "JWT"    // RFC 7523
)

// Limits on the signed things, checked before anything is parsed.
const (
	maxProof     = 4 << 10
	maxReceipt   = 4 << 10
	maxToken     = 8 << 10
	maxAssertion = 4 << 10
	maxDocument  = 32 << 10
	// maxSignatures bounds the signatures of one document, since each costs a
	// verification.
	maxSignatures = 16
)

// algorithms are those that any JWS of the protocol may use.
var algorithms = []jose.SignatureAlgorithm{jose.EdDSA}

// payloadLimits bounds the claims of a JWS; its size is bounded already.
var payloadLimits = Limits{Bytes: maxDocument, Depth: 8, Values: 512}

var (
	errTooLarge = errors.New("larger than allowed")
	errNoJWS    = errors.New("not a JWS with an allowed algorithm")
	errWrongTyp = errors.New("the wrong typ")
	errNoKey    = errors.New("no public Ed25519 key in the header")
	errBadSig   = errors.New("the signature is wrong")
	errBadClaim = errors.New("the claims are malformed")
)

// signJWS signs claims as a compact JWS with the key's JWK in the header, so
// that whoever knows the key's id can verify it.
func signJWS(key *Key, typ string, claims any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("record: sign %s: %w", typ, err)
	}
	header, err := key.header(typ)
	if err != nil {
		return "", fmt.Errorf("record: sign %s: %w", typ, err)
	}
	// The compact form, RFC 7515, 7.1.
	const signature = (ed25519.SignatureSize*8 + 5) / 6
	out := make([]byte, 0, len(header)+1+base64.RawURLEncoding.EncodedLen(len(payload))+1+signature)
	out = append(append(out, header...), '.')
	out = base64.RawURLEncoding.AppendEncode(out, payload)
	sum := ed25519.Sign(key.private, out)
	out = append(out, '.')
	return string(base64.RawURLEncoding.AppendEncode(out, sum)), nil
}

// header returns the protected header, encoded, of what the key signs under a
// typ. It is the same each time and made once.
func (k *Key) header(typ string) (string, error) {
	if made, ok := k.headers.Load(typ); ok {
		return made.(string), nil
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: k.private},
		(&jose.SignerOptions{EmbedJWK: true}).WithType(jose.ContentType(typ)))
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(nil)
	if err != nil {
		return "", err
	}
	whole, err := signed.CompactSerialize()
	if err != nil {
		return "", err
	}
	header, _, _ := strings.Cut(whole, ".")
	k.headers.Store(typ, header)
	return header, nil
}

// openJWS verifies a compact JWS against the key in its own header and returns
// that key; the caller decides whether it is the right one.
func openJWS(token, typ string, limit int) (payload []byte, key PublicKey, err error) {
	if len(token) > limit {
		return nil, PublicKey{}, errTooLarge
	}
	if strings.ContainsAny(token, "\r\n") { // which the library passes over
		return nil, PublicKey{}, errNoJWS
	}
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, PublicKey{}, errNoJWS
	}
	header := signed.Signatures[0].Protected
	if got, _ := header.ExtraHeaders[jose.HeaderType].(string); got != typ {
		return nil, PublicKey{}, errWrongTyp
	}
	if header.JSONWebKey == nil {
		return nil, PublicKey{}, errNoKey
	}
	if key, err = publicFromJWK(header.JSONWebKey); err != nil {
		return nil, PublicKey{}, errNoKey
	}
	if payload, err = signed.Verify(key.raw); err != nil {
		return nil, PublicKey{}, errBadSig
	}
	return payload, key, nil
}

// openJWSFrom verifies a compact JWS that only the holder of one key id may
// have signed, and reads its claims.
func openJWSFrom(token, typ string, limit int, id string, claims any) error {
	payload, key, err := openJWS(token, typ, limit)
	if err != nil {
		return err
	}
	if key.ID() != id {
		return fmt.Errorf("signed by %s, not by %s", quoteShort(key.ID()), quoteShort(id))
	}
	if err := DecodeJSON(payload, payloadLimits, claims); err != nil {
		return errBadClaim
	}
	return nil
}

// signMulti signs claims with several keys. One key gives the compact form,
// more give the general JSON form of RFC 7515.
func signMulti(keys []*Key, typ string, claims any) (string, error) {
	if len(keys) == 1 {
		return signJWS(keys[0], typ, claims)
	}
	if len(keys) == 0 || len(keys) > maxSignatures {
		return "", fmt.Errorf("record: sign %s: %d keys; wanted 1 to %d", typ, len(keys), maxSignatures)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("record: sign %s: %w", typ, err)
	}
	signing := make([]jose.SigningKey, len(keys))
	for i, key := range keys {
		signing[i] = jose.SigningKey{Algorithm: jose.EdDSA, Key: key.private}
	}
	signer, err := jose.NewMultiSigner(signing, (&jose.SignerOptions{EmbedJWK: true}).WithType(jose.ContentType(typ)))
	if err != nil {
		return "", fmt.Errorf("record: sign %s: %w", typ, err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("record: sign %s: %w", typ, err)
	}
	return signed.FullSerialize(), nil
}

// openMulti verifies every signature of a JWS in either form and returns the
// distinct keys that made them. One wrong signature spoils the document.
func openMulti(token, typ string) (payload []byte, keys []PublicKey, err error) {
	if len(token) > maxDocument {
		return nil, nil, errTooLarge
	}
	if !strings.HasPrefix(strings.TrimLeft(token, " \t\r\n"), "{") {
		payload, key, err := openJWS(token, typ, maxDocument)
		return payload, []PublicKey{key}, err
	}
	if err := CheckJSON([]byte(token), payloadLimits); err != nil {
		return nil, nil, errNoJWS
	}
	signed, err := jose.ParseSignedJSON(token, algorithms)
	if err != nil || len(signed.Signatures) == 0 || len(signed.Signatures) > maxSignatures {
		return nil, nil, errNoJWS
	}
	payload = signed.UnsafePayloadWithoutVerification()
	seen := map[string]bool{}
	for _, signature := range signed.Signatures {
		if got, _ := signature.Protected.ExtraHeaders[jose.HeaderType].(string); got != typ {
			return nil, nil, errWrongTyp
		}
		if signature.Protected.JSONWebKey == nil {
			return nil, nil, errNoKey
		}
		key, err := publicFromJWK(signature.Protected.JSONWebKey)
		if err != nil {
			return nil, nil, errNoKey
		}
		if seen[key.thumb] {
			continue
		}
		one := *signed
		one.Signatures = []jose.Signature{signature}
		if err := one.DetachedVerify(payload, key.raw); err != nil {
			return nil, nil, errBadSig
		}
		seen[key.thumb] = true
		keys = append(keys, key)
	}
	return payload, keys, nil
}

// MergeSignatures joins compact JWS of the same payload into one in the general
// JSON form, so that parties who do not share their keys can sign one document:
// each signs on its own, and anybody merges.
func MergeSignatures(compact ...string) (string, error) {
	type signature struct {
		Protected string `json:"protected"`
		Signature string `json:"signature"`
	}
	var merged struct {
		Payload    string      `json:"payload"`
		Signatures []signature `json:"signatures"`
	}
	for _, one := range compact {
		parts := strings.Split(one, ".")
		if len(parts) != 3 || len(one) > maxDocument {
			return "", failf(InvalidMessage, "signature", "not a compact JWS")
		}
		if merged.Payload == "" {
			merged.Payload = parts[1]
		}
		if merged.Payload != parts[1] {
			return "", failf(InvalidMessage, "signature", "the signatures are of different payloads")
		}
		merged.Signatures = append(merged.Signatures, signature{parts[0], parts[2]})
	}
	if len(merged.Signatures) == 1 {
		return compact[0], nil
	}
	if len(merged.Signatures) == 0 || len(merged.Signatures) > maxSignatures {
		return "", failf(InvalidMessage, "signature", "%d signatures; wanted 1 to %d", len(merged.Signatures), maxSignatures)
	}
	raw, err := json.Marshal(merged)
	return string(raw), err
}
