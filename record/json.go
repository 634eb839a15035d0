package record

import (
	"bytes"
	"crypto/sha256"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

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
	s, err := newScanner(data, limits)
	for err == nil {
		if _, err = s.next(); err == nil && s.dec.StackDepth() == 0 {
			return s.end()
		}
	}
	return err
}

// ParseJSON reads one JSON value with [CheckJSON]'s strictness, in one pass: nil,
// bool, string, [encoding/json.Number] with the digits as they stand, []any and
// map[string]any.
func ParseJSON(data []byte, limits Limits) (any, error) {
	s, err := newScanner(data, limits)
	if err != nil {
		return nil, err
	}
	v, err := s.value()
	if err == nil {
		err = s.end()
	}
	return v, err
}

// scanner reads the tokens of one JSON value and holds it to its limits.
type scanner struct {
	dec    *jsontext.Decoder
	limits Limits
	values int
}

func newScanner(data []byte, limits Limits) (*scanner, error) {
	limits = limits.withDefaults()
	if len(data) > limits.Bytes {
		return nil, failf(InvalidMessage, "", "the JSON has %d bytes; the limit is %d", len(data), limits.Bytes)
	}
	return &scanner{dec: jsontext.NewDecoder(bytes.NewBuffer(data)), limits: limits}, nil
}

func (s *scanner) next() (jsontext.Token, error) {
	token, err := s.dec.ReadToken()
	if err != nil {
		return token, jsonError(s.dec, err)
	}
	return token, s.count()
}

// count counts one more token.
func (s *scanner) count() error {
	if s.values++; s.values > 2*s.limits.Values { // a member is a name and a value
		return failf(InvalidMessage, string(s.dec.StackPointer()), "the JSON has too many values; the limit is %d", s.limits.Values)
	}
	if s.dec.StackDepth() > s.limits.Depth {
		return failf(InvalidMessage, "", "the JSON is nested too deeply; the limit is %d", s.limits.Depth)
	}
	return nil
}

// end wants nothing but space behind the value.
func (s *scanner) end() error {
	if _, err := s.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return failf(InvalidMessage, "", "something follows the JSON value")
	}
	return nil
}

func (s *scanner) value() (any, error) {
	token, err := s.next()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case jsontext.KindBeginObject:
		members := map[string]any{}
		for s.dec.PeekKind() != jsontext.KindEndObject {
			token, err := s.next()
			if err != nil {
				return nil, err
			}
			name := token.String()
			if members[name], err = s.value(); err != nil {
				return nil, err
			}
		}
		_, err = s.next()
		return members, err
	case jsontext.KindBeginArray:
		list := []any{}
		for s.dec.PeekKind() != jsontext.KindEndArray {
			item, err := s.value()
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		_, err = s.next()
		return list, err
	case jsontext.KindString:
		return token.String(), nil
	case jsontext.KindNumber:
		return stdjson.Number(token.String()), nil
	case jsontext.KindTrue, jsontext.KindFalse:
		return token.Bool(), nil
	}
	return nil, nil
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
	s, err := newScanner(data, limits)
	if err != nil {
		return nil, err
	}
	out, err := s.appendCanonical(make([]byte, 0, len(data)))
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *scanner) appendCanonical(dst []byte) ([]byte, error) {
	switch s.dec.PeekKind() {
	case jsontext.KindBeginObject:
		return s.appendCanonicalObject(dst)
	case jsontext.KindBeginArray:
		if _, err := s.next(); err != nil {
			return nil, err
		}
		dst = append(dst, '[')
		for first := true; s.dec.PeekKind() != jsontext.KindEndArray; first = false {
			if !first {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = s.appendCanonical(dst); err != nil {
				return nil, err
			}
		}
		_, err := s.next()
		return append(dst, ']'), err
	default: // strings, numbers and literals
		value, err := s.dec.ReadValue()
		if err == nil {
			err = s.count()
		} else {
			err = jsonError(s.dec, err)
		}
		if err != nil {
			return nil, err
		}
		if bytes.IndexByte(value, '\\') < 0 {
			return append(dst, value...), nil // only what is escaped can be written in two ways
		}
		text, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			return nil, fmt.Errorf("record: unquote a string: %w", err)
		}
		return jsontext.AppendQuote(dst, text)
	}
}

func (s *scanner) appendCanonicalObject(dst []byte) ([]byte, error) {
	if _, err := s.next(); err != nil {
		return nil, err
	}
	dst = append(dst, '{')
	// The members are written in the order in which they come, each with a comma.
	type member struct {
		name     string
		from, to int
	}
	var members []member
	start := len(dst)
	for s.dec.PeekKind() != jsontext.KindEndObject {
		name, err := s.next()
		if err != nil {
			return nil, err
		}
		m := member{name: name.String(), from: len(dst)}
		if dst, err = jsontext.AppendQuote(dst, m.name); err != nil {
			return nil, fmt.Errorf("record: quote a member name: %w", err)
		}
		if dst, err = s.appendCanonical(append(dst, ':')); err != nil {
			return nil, err
		}
		dst = append(dst, ',')
		m.to = len(dst)
		members = append(members, m)
	}
	if _, err := s.next(); err != nil {
		return nil, err
	}
	byName := func(a, b member) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(members, byName) {
		written := bytes.Clone(dst[start:])
		slices.SortFunc(members, byName)
		dst = dst[:start]
		for _, m := range members {
			dst = append(dst, written[m.from-start:m.to-start]...)
		}
	}
	return append(bytes.TrimSuffix(dst, []byte{','}), '}'), nil
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
