package record

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// NewID returns a new record or operation id: a UUIDv7 (RFC 9562) in its
// lower-case text form. Ids made later by one process sort later.
func NewID() string {
	id, err := uuid.NewV7()
	if err != nil {
		// The only source of failure is the system's random numbers, and
		// crypto/rand does not return without them.
		panic(fmt.Sprintf("record: no random numbers for an id: %v", err))
	}
	return id.String()
}

// CheckID reports whether id is a record or operation id: a UUIDv7 in
// lower-case text form, 36 characters. The error is an *[Error] with
// [InvalidMessage] and the given field name.
func CheckID(field, id string) error {
	if IsID(id) {
		return nil
	}
	return &Error{Code: InvalidMessage, Field: field,
		Detail: fmt.Sprintf("%s is not a UUIDv7 in lower-case text form", quoteShort(id))}
}

// IsID reports whether id is a UUIDv7 in lower-case text form.
func IsID(id string) bool {
	if len(id) != 36 {
		return false
	}
	parsed, err := uuid.Parse(id)
	return err == nil && parsed.Version() == 7 && parsed.Variant() == uuid.RFC4122 && parsed.String() == id
}

// IsResourceID reports whether id has the form of a FHIR resource id: 1 to 64
// of A-Z, a-z, 0-9, '-' and '.' (FHIR R4, datatypes, id).
func IsResourceID(id string) bool {
	if len(id) == 0 || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.':
		default:
			return false
		}
	}
	return true
}

// ThumbprintPrefix starts the id of every Host, application and directory
// signer: the RFC 9278 URI of an RFC 7638 SHA-256 thumbprint.
const ThumbprintPrefix = "urn:ietf:params:oauth:jwk-thumbprint:sha-256:"

// CheckSubject reports whether s is the id of a key: [ThumbprintPrefix]
// followed by 43 characters of base64url. The error is an *[Error] with
// [InvalidMessage] and the given field name.
func CheckSubject(field, s string) error {
	rest, ok := strings.CutPrefix(s, ThumbprintPrefix)
	if ok {
		if raw, err := decodeBase64(rest); err == nil && len(raw) == 32 {
			return nil
		}
	}
	return &Error{Code: InvalidMessage, Field: field,
		Detail: fmt.Sprintf("%s is not the thumbprint URI of a key (RFC 9278, sha-256)", quoteShort(s))}
}

// randomText returns n random bytes as base64url.
func randomText(n int) string {
	raw := make([]byte, n)
	rand.Read(raw) // never fails: crypto/rand ends the process instead
	return encodeBase64(raw)
}

// quoteShort quotes s for an error message, shortened so that hostile input
// does not fill a log.
func quoteShort(s string) string {
	if len(s) > 80 {
		return fmt.Sprintf("%q… (%d bytes)", s[:80], len(s))
	}
	return fmt.Sprintf("%q", s)
}
