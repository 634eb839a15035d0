package holdfast

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// encode writes v as JSON by encoding/json's rules for Go types, except that nothing is coerced:
// invalid UTF-8 is refused where encoding/json would replace it. NaN, infinities, cycles, channels
// and functions are refused by both. A json.RawMessage keeps its digits.
func encode(field string, v any, limit int) (json.RawMessage, error) {
	var out json.RawMessage
	if raw, ok := v.(json.RawMessage); ok {
		if err := checkJSON(raw); err != nil {
			return nil, &NotJSONError{Field: field, Err: err}
		}
		out = raw
	} else {
		b, err := jsonv2.Marshal(v, jsonv1.DefaultOptionsV1(), jsontext.AllowInvalidUTF8(false), jsontext.EscapeForHTML(false), jsontext.EscapeForJS(false))
		if err != nil {
			return nil, &NotJSONError{Field: field, Err: err}
		}
		out = b
	}
	if limit > 0 && len(out) > limit {
		return nil, invalid(field, sizeOf(len(out)), "is larger than the limit of "+sizeOf(limit)+"; keep large data elsewhere and pass a reference")
	}
	return out, nil
}

// checkJSON accepts exactly one JSON value in valid UTF-8. Duplicate names pass, as they do in both
// databases.
func checkJSON(raw []byte) error {
	if !utf8.Valid(raw) {
		return errors.New("invalid UTF-8")
	}
	if !json.Valid(raw) {
		if len(raw) == 0 {
			return errors.New("it is empty")
		}
		var any json.RawMessage
		return json.Unmarshal(raw, &any) // says where
	}
	return nil
}

// checkJSON refuses what is no JSON, and JSON that the database cannot keep.
func (s *Store) checkJSON(field string, raw json.RawMessage) error {
	err := checkJSON(raw)
	if err == nil {
		err = s.dialect.CheckJSON(raw)
	}
	if err != nil {
		return &NotJSONError{Field: field, Err: err}
	}
	return nil
}

func decode(field string, raw json.RawMessage, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return &NotJSONError{Field: field, Err: err}
	}
	return nil
}

// cleanText makes any text one that every database can keep: no NUL, valid UTF-8.
func cleanText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// withField adds one member to a JSON object; nil counts as an empty one. The other members keep
// their bytes.
func withField(field string, object json.RawMessage, name, value string) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if object != nil {
		if err := json.Unmarshal(object, &members); err != nil || members == nil {
			return nil, invalid(field, string(object), "is no JSON object, so "+name+" cannot be added to it")
		}
	}
	v, err := encode(field, value, 0)
	if err != nil {
		return nil, err
	}
	members[name] = v
	return encode(field, members, 0)
}
