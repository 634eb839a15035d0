package record

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits bounds a JSON document. A zero field means the default.
type Limits struct {
	// Bytes is the largest document in bytes; default 1 MiB.
	Bytes int
	// Depth is the deepest nesting of arrays and objects; default 64.
	Depth int
	// Values is the largest number of members and elements; default 100,000.
	Values int
}

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 1 << 20
	}
	if l.Depth <= 0 {
		l.Depth = 64
	}
	if l.Values <= 0 {
		l.Values = 100_000
	}
	return l
}

// CheckJSON reports whether data is one JSON value within the limits: UTF-8,
// no duplicate members (compared exactly, so "Id" and "id" are two names), no
// second value behind it. The error is an *[Error] with [InvalidMessage], and
// its field is the JSON pointer of the place.
func CheckJSON(data []byte, limits Limits) error {
	limits = limits.withDefaults()
	if len(data) > limits.Bytes {
		return failf(InvalidMessage, "", "the JSON has %d bytes; the limit is %d", len(data), limits.Bytes)
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(data))
	values := 0
	for {
		if _, err := dec.ReadToken(); err != nil {
			if errors.Is(err, io.EOF) && values > 0 {
				return nil
			}
			return jsonError(dec, err)
		}
		if values++; values > 2*limits.Values { // a member is a name and a value
			return failf(InvalidMessage, string(dec.StackPointer()), "the JSON has too many values; the limit is %d", limits.Values)
		}
		if dec.StackDepth() > limits.Depth {
			return failf(InvalidMessage, "", "the JSON is nested too deeply; the limit is %d", limits.Depth)
		}
		if dec.StackDepth() == 0 {
			// One value is complete: only space may follow.
			if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
				return failf(InvalidMessage, "", "something follows the JSON value")
			}
			return nil
		}
	}
}

// jsonError turns a decoder's error into one with a place and without content.
func jsonError(dec *jsontext.Decoder, err error) error {
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		if errors.Is(syntax.Err, jsontext.ErrDuplicateName) {
			return failf(InvalidMessage, clip(string(syntax.JSONPointer)), "a member stands twice in one object")
		}
		return failf(InvalidMessage, clip(string(syntax.JSONPointer)), "not valid JSON at byte %d", syntax.ByteOffset)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return failf(InvalidMessage, "", "the JSON ends too early, at byte %d", dec.InputOffset())
	}
	return failf(InvalidMessage, "", "not valid JSON")
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// DecodeJSON reads one JSON value into v with [CheckJSON]'s strictness; member
// names are compared exactly, unknown members are passed over.
func DecodeJSON(data []byte, limits Limits, v any) error {
	if err := CheckJSON(data, limits); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		var semantic *json.SemanticError
		if errors.As(err, &semantic) {
			return failf(InvalidMessage, clip(string(semantic.JSONPointer)), "a value of the wrong type")
		}
		return failf(InvalidMessage, "", "not the expected JSON")
	}
	return nil
}

// Canonical returns a form of the JSON value in data in which neither the
// order of members, nor white space, nor the way characters are escaped
// matters, and everything else does: a number's digits stand as they came, so
// 1.10 and 1.1 differ. Member names are sorted by their UTF-8 bytes.
func Canonical(data []byte, limits Limits) ([]byte, error) {
	if err := CheckJSON(data, limits); err != nil {
		return nil, err
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(data))
	return appendCanonical(make([]byte, 0, len(data)), dec)
}

func appendCanonical(dst []byte, dec *jsontext.Decoder) ([]byte, error) {
	switch dec.PeekKind() {
	case jsontext.KindBeginObject:
		return appendCanonicalObject(dst, dec)
	case jsontext.KindBeginArray:
		if _, err := dec.ReadToken(); err != nil {
			return nil, jsonError(dec, err)
		}
		dst = append(dst, '[')
		for first := true; dec.PeekKind() != jsontext.KindEndArray; first = false {
			if !first {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = appendCanonical(dst, dec); err != nil {
				return nil, err
			}
		}
		_, err := dec.ReadToken()
		return append(dst, ']'), err
	case jsontext.KindString:
		token, err := dec.ReadToken()
		if err != nil {
			return nil, jsonError(dec, err)
		}
		return jsontext.AppendQuote(dst, token.String())
	default: // numbers and literals, byte for byte
		value, err := dec.ReadValue()
		if err != nil {
			return nil, jsonError(dec, err)
		}
		return append(dst, value...), nil
	}
}

func appendCanonicalObject(dst []byte, dec *jsontext.Decoder) ([]byte, error) {
	if _, err := dec.ReadToken(); err != nil {
		return nil, jsonError(dec, err)
	}
	type member struct {
		name  string
		value []byte
	}
	var members []member
	for dec.PeekKind() != jsontext.KindEndObject {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, jsonError(dec, err)
		}
		m := member{name: name.String()}
		if m.value, err = appendCanonical(nil, dec); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, jsonError(dec, err)
	}
	sort.Slice(members, func(i, j int) bool { return members[i].name < members[j].name })
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = jsontext.AppendQuote(dst, m.name); err != nil {
			return nil, fmt.Errorf("record: quote a member name: %w", err)
		}
		dst = append(append(dst, ':'), m.value...)
	}
	return append(dst, '}'), nil
}

// Digest returns the base64url SHA-256 of the [Canonical] form: two documents
// have one digest exactly if they say the same, digits included.
func Digest(data []byte, limits Limits) (string, error) {
	canonical, err := Canonical(data, limits)
	if err != nil {
		return "", err
	}
	return hashText(canonical), nil
}

// hashText returns the base64url SHA-256 of data.
func hashText(data []byte) string {
	sum := sha256.Sum256(data)
	return encodeBase64(sum[:])
}

// hashString is hashText of a string; what is not long is copied to the stack.
func hashString(s string) string {
	var room [1 << 10]byte
	return hashText(append(room[:0], s...))
}
