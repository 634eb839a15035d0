package splice

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestMembersKeepBytes(t *testing.T) {
	list, err := Members([]byte(" { \"a\" : 1.10 , \"\\u0062\":{\"x\": [1E+2 ,\"\\u0041\"]} }"))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(Object(append(list, New("c", []byte("null"))))); got != `{"a":1.10,"b":{"x": [1E+2 ,"\u0041"]},"c":null}` {
		t.Errorf("%s", got)
	}
	for _, bad := range []string{"", "[]", "1", `{"a"`, `{"a":}`, `{"a":1`} {
		if _, err := Members([]byte(bad)); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
	if got := string(Object(nil)); got != "{}" {
		t.Errorf("%s", got)
	}
}

func FuzzMembers(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"c":"\u0041"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Members(data)
		if err != nil || !jsontext.Value(data).IsValid() {
			return
		}
		again, err := Members(Object(list))
		if err != nil || len(again) != len(list) {
			t.Fatalf("%q: %v", data, err)
		}
		for i := range list {
			if again[i].Name != list[i].Name || string(again[i].Raw) != string(list[i].Raw) {
				t.Fatalf("%q: member %d", data, i)
			}
		}
	})
}
