package host

import (
	"bytes"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/splice"
)

func TestServedKeepsBytes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for in, want := range map[string]string{
		`{"resourceType":"Patient"}`:                         `{"resourceType":"Patient","id":"a","meta":{"versionId":"7","lastUpdated":"2026-01-02T03:04:05.006Z"}}`,
		"{ \"x\" : [ 1.10 ] ,\"resourceType\":\"Patient\" }": `{"resourceType":"Patient","id":"a","meta":{"versionId":"7","lastUpdated":"2026-01-02T03:04:05.006Z"},"x":[ 1.10 ]}`,
		`{"id":"b","meta":{"versionId":"1","tag":[],"lastUpdated":"x"},"resourceType":"Patient","_id":{}}`: `{"resourceType":"Patient","id":"a","meta":{"versionId":"7","lastUpdated":"2026-01-02T03:04:05.006Z","tag":[]},"_id":{}}`,
	} {
		if got, err := served("Patient", "a", 7, at, []byte(in)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
}

// Whatever a patch is, it changes the name or nothing, and what comes out is
// JSON.
func FuzzPatch(f *testing.F) {
	for _, seed := range []string{`[{"op":"add","path":"/name","value":[{"text":"A"}]}]`, `[{"op":"remove","path":"/name"}]`, `[{"op":"test","path":"/name","value":[]},{"op":"replace","path":"/name","value":1}]`,
		`[{"op":"add","path":"/name","value":{"a":1,"a":2}}]`, `[{"op":"add","path":"","value":{}}]`} {
		f.Add([]byte(seed))
	}
	patient := []byte(`{"resourceType":"Patient","id":"a","birthDate":"1990","name":[],"x":1.10}`)
	f.Fuzz(func(t *testing.T, patch []byte) {
		got, err := patchName(patient, patch, record.Limits{})
		if err != nil {
			if record.CodeOf(err) == "" {
				t.Fatalf("an error without a code: %v", err)
			}
			return
		}
		if !jsontext.Value(got).IsValid() {
			t.Fatalf("not JSON: %q", got)
		}
		rest := func(object []byte) []byte {
			list, err := splice.Members(object)
			if err != nil {
				t.Fatal(err)
			}
			kept := list[:0]
			for _, m := range list {
				if m.Name != "name" {
					kept = append(kept, m)
				}
			}
			return splice.Object(kept)
		}
		if !bytes.Equal(rest(got), rest(patient)) {
			t.Fatalf("more than the name has changed: %q", got)
		}
	})
}
