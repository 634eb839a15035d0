// Package splice takes JSON objects apart and puts them together without
// changing a byte of the values.
package splice

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// Member is one member of an object, as it stands in the text.
type Member struct {
	Name string
	// Raw is the value, byte for byte; Whole is the member with its name.
	Raw, Whole []byte
}

// Members lists an object's members without changing a byte of them.
func Members(object []byte) ([]Member, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(object))
	if token, err := dec.ReadToken(); err != nil || token.Kind() != jsontext.KindBeginObject {
		return nil, fmt.Errorf("splice: not a JSON object")
	}
	var list []Member
	for dec.PeekKind() != jsontext.KindEndObject {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, fmt.Errorf("splice: not a JSON object: %w", err)
		}
		m := Member{Name: name.String()}
		quoted, err := jsontext.AppendQuote(nil, m.Name)
		if err != nil {
			return nil, fmt.Errorf("splice: not a JSON object: %w", err)
		}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, fmt.Errorf("splice: not a JSON object: %w", err)
		}
		m.Raw = bytes.Clone(value)
		m.Whole = append(append(quoted, ':'), m.Raw...)
		list = append(list, m)
	}
	return list, nil
}

// New makes a member. The name must need no escapes.
func New(name string, value []byte) Member {
	return Member{name, value, append([]byte(`"`+name+`":`), value...)}
}

// Object joins members into an object.
func Object(list []Member) []byte {
	out := []byte{'{'}
	for i, m := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m.Whole...)
	}
	return append(out, '}')
}
