package record

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"
)

func encodeBase64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

// decodeBase64 reads base64url without padding and refuses any other spelling
// of the same bytes.
func decodeBase64(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") { // which the library passes over
		return nil, base64.CorruptInputError(strings.IndexAny(s, "\r\n"))
	}
	return base64.RawURLEncoding.Strict().DecodeString(s)
}

// ContentDigest returns the value of a Content-Digest header (RFC 9530) for
// body: one member, sha-256. A request without a body has the digest of the
// empty body.
func ContentDigest(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// maxDigestHeader bounds a Content-Digest header.
const maxDigestHeader = 1024

// VerifyContentDigest checks a Content-Digest header against body. The header
// is a dictionary of byte sequences (RFC 8941); members with other algorithms
// are passed over, but sha-256 must be there, because the fingerprint of an
// operation is made of it. The error is an *[Error] with [InvalidMessage].
func VerifyContentDigest(header string, body []byte) error {
	const field = "Content-Digest"
	if header == "" {
		return failf(InvalidMessage, field, "the header is missing; send %s", "sha-256=:<base64 of the body's SHA-256>:")
	}
	if len(header) > maxDigestHeader {
		return failf(InvalidMessage, field, "the header is longer than %d bytes", maxDigestHeader)
	}
	var want []byte
	for _, part := range strings.Split(header, ",") {
		name, value, ok := strings.Cut(strings.Trim(part, " \t"), "=")
		if !ok || len(value) < 2 || value[0] != ':' || value[len(value)-1] != ':' {
			return failf(InvalidMessage, field, "not a dictionary of byte sequences (RFC 9530)")
		}
		raw, err := base64.StdEncoding.DecodeString(value[1 : len(value)-1])
		if err != nil {
			return failf(InvalidMessage, field, "the value of %s is not base64", quoteShort(name))
		}
		if name == "sha-256" {
			want = raw // a repeated member: the last one counts (RFC 8941, 3.2)
		}
	}
	if want == nil {
		return failf(InvalidMessage, field, "there is no sha-256 digest")
	}
	sum := sha256.Sum256(body)
	if subtle.ConstantTimeCompare(want, sum[:]) != 1 {
		return failf(InvalidMessage, field, "the digest is not that of the body: it was altered on the way, or the digest is of something else")
	}
	return nil
}

// Fingerprint returns what makes two requests with one operation id the same
// operation: the base64url SHA-256 over method, path, If-Match and the body's
// Content-Digest, each followed by a line feed. Path is the URL's escaped path
// below the Host's FHIR base, without the query (/Observation/1), so that a
// record can move to a Host with another base; ifMatch is the header as sent, ""
// where there is none.
func Fingerprint(method, path, ifMatch string, body []byte) string {
	h := sha256.New()
	for _, part := range [...]string{method, path, ifMatch, ContentDigest(body)} {
		h.Write([]byte(part))
		h.Write([]byte{'\n'})
	}
	return encodeBase64(h.Sum(nil))
}
