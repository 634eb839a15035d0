package record

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{`{"b":1.10,"a":[null,true,"\u00e9"]}`, `[]`, `{"a":{"a":1}}`, `-0`, `1E+2`, `"\ud83d\ude00"`, `{"a":1,"a":2}`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		canonical, err := Canonical(data, Limits{})
		if checked := CheckJSON(data, Limits{}); (err == nil) != (checked == nil) || err != nil && err.Error() != checked.Error() {
			t.Fatalf("%q: %v, and CheckJSON: %v", data, err, checked)
		}
		if err != nil {
			if CodeOf(err) != InvalidMessage {
				t.Fatalf("an error without the code: %v", err)
			}
			return
		}
		again, err := Canonical(canonical, Limits{})
		if err != nil || !bytes.Equal(again, canonical) {
			t.Fatalf("the canonical form is not canonical: %q, %q, %v", canonical, again, err)
		}
		if !jsontext.Value(data).IsValid() {
			t.Fatalf("accepted what is not JSON: %q", data)
		}
	})
}

// ParseJSON refuses what CheckJSON refuses, in the same words, and finds what
// encoding/json finds.
func FuzzParseJSON(f *testing.F) {
	for _, seed := range []string{`{"b":1.10,"a":[null,true,false,"\u00e9",{}],"":[]}`, ` -0 `, `1E+2`, `"\ud83d\ude00"`, `{"a":1,"a":2}`, `{"a":1} 2`, `[1,`, `{"a"`, `{"a":}`, `["\ud83d"]`, ``, "\xff", `[[[[[[[[[[0]]]]]]]]]]`, `[1,2,3,4,5,6,7,8,9,10,11]`} {
		f.Add([]byte(seed))
	}
	limits := Limits{Depth: 8, Values: 10}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseJSON(data, limits)
		if checked := CheckJSON(data, limits); (err == nil) != (checked == nil) || err != nil && err.Error() != checked.Error() {
			t.Fatalf("%q: %v, and CheckJSON: %v", data, err, checked)
		}
		if err != nil {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		var want any
		if err := dec.Decode(&want); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is %#v, not %#v, %v", data, got, want, err)
		}
	})
}

func FuzzContentDigest(f *testing.F) {
	f.Add(ContentDigest([]byte("x")), []byte("x"))
	f.Add("sha-512=:AA==:, sha-256=::", []byte(""))
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		if VerifyContentDigest(header, body) == nil && VerifyContentDigest(header, append(body, 'x')) == nil {
			t.Fatalf("%q fits two bodies", header)
		}
	})
}

// Nothing but what the key signed may pass, whatever the text.
func FuzzJWS(f *testing.F) {
	host := NewKey()
	receipt, _ := SignReceipt(host, Receipt{Record: NewID(), Operation: NewID(), ID: "a", Version: 1, Status: 201, Seq: 1, IssuedAt: 1})
	location, _ := SignLocation([]*Key{host, NewKey()}, testLocation(host))
	proof, _ := NewProof(host, ProofParams{Method: "GET", URL: "https://h/x"})
	token, _ := NewToken(host, Token{Client: "c", ID: "i"}, "https://h")
	assertion, _ := NewAssertion(host, "https://h/token", noon)
	for _, seed := range []string{receipt, location, proof, token, assertion, "..", "{}", "e30.e30."} {
		f.Add(seed)
	}
	stranger := NewKey()
	quorum := Quorum{Keys: []PublicKey{stranger.Public()}, Threshold: 1}
	nonces := NewNonces()
	known := &KeyCache{}
	if _, _, err := known.open(proof, typProof, maxProof); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := VerifyReceipt(text, stranger.ID()); CodeOf(err) != InvalidReceipt {
			t.Fatalf("receipt: %v", err)
		}
		if _, err := VerifyLocation(text, quorum); CodeOf(err) != InvalidDiscovery {
			t.Fatalf("location: %v", err)
		}
		if _, err := VerifyProof(text, ProofCheck{Method: "GET", URL: "https://h/x", Nonces: nonces, Now: noon}); CodeOf(err) != InvalidToken && CodeOf(err) != UseDPoPNonce {
			t.Fatalf("proof: %v", err)
		}
		if _, key, err := known.open(text, typProof, maxProof); err == nil {
			if _, slow, slowErr := openJWS(text, typProof, maxProof); slowErr != nil || !slow.Equal(key) {
				t.Fatalf("the cache takes what is no JWS: %v", slowErr)
			}
		}
		if _, err := VerifyToken(text, stranger.ID(), "https://h", "https://h", noon); CodeOf(err) != InvalidToken {
			t.Fatalf("token: %v", err)
		}
		VerifyAssertion(text, []string{"https://h/token"}, noon)
		VerifyPublication(text)
		ParsePublicKey([]byte(text))
	})
}
