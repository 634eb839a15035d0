package record

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestIDs(t *testing.T) {
	a, b := NewID(), NewID()
	if a >= b {
		t.Errorf("ids do not rise: %s, %s", a, b)
	}
	if err := CheckID("patient", a); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "x", strings.ToUpper(a), a + " ", "{" + a + "}", "urn:uuid:" + a,
		"6ba7b810-9dad-11d1-80b4-00c04fd430c8", "f47ac10b-58cc-4372-a567-0e02b2c3d479", strings.ReplaceAll(a, "-", "")} {
		err := CheckID("patient", bad)
		var e *Error
		if !errors.As(err, &e) || e.Code != InvalidMessage || e.Field != "patient" {
			t.Errorf("CheckID(%q) = %v", bad, err)
		}
	}
	for id, want := range map[string]bool{"a": true, "A-1.b": true, "": false, strings.Repeat("a", 64): true,
		strings.Repeat("a", 65): false, "a/b": false, "a b": false, "é": false, "..": true} {
		if IsResourceID(id) != want {
			t.Errorf("IsResourceID(%q) = %v", id, !want)
		}
	}
	key := NewKey()
	if err := CheckSubject("host", key.ID()); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", ThumbprintPrefix, ThumbprintPrefix + "AAAA", key.ID() + "A", key.ID()[:len(key.ID())-1]} {
		if err := CheckSubject("host", bad); !errors.Is(err, InvalidMessage) {
			t.Errorf("CheckSubject(%q) = %v", bad, err)
		}
	}
}

// The specification's table of states and statuses, written down again.
func TestCodeTable(t *testing.T) {
	rejected := strings.Fields(`insufficient_scope invalid_token wrong_token_holder authorization_expired_or_revoked
		representative_not_authorized authorization_expired invalid_message invalid_lab_category not_found resource_deleted
		unsupported_resource_type invalid_resource invalid_resource_id invalid_resource_code invalid_resource_status
		wrong_resource_patient unsupported_resource_content external_validation_rejected publisher_not_authorized`)
	conflicted := []string{"version_conflict", "operation_id_conflict"}
	status := map[Code]int{
		VersionConflict: 412, OperationIDConflict: 422, OperationInProgress: 409, InvalidMessage: 400,
		InvalidResource: 422, InvalidResourceID: 422, InvalidResourceCode: 422, InvalidResourceStatus: 422, InvalidLabCategory: 422,
		WrongResourcePatient: 422, UnsupportedResourceContent: 422, ExternalValidationRejected: 422,
		UnsupportedResourceType: 404, NotFound: 404, ResourceDeleted: 410,
		InvalidToken: 401, WrongTokenHolder: 401, AuthorizationExpired: 401, AuthorizationExpiredOrRevoked: 401,
		InsufficientScope: 403, RepresentativeNotAuthorized: 403,
		RecordMoved: 421, RecordFrozen: 503, RateLimited: 429, HostUnavailable: 503,
	}
	for _, row := range Codes() {
		want := Pending
		if slices.Contains(rejected, string(row.Code)) {
			want = Rejected
		}
		if slices.Contains(conflicted, string(row.Code)) {
			want = Conflicted
		}
		if row.Class != want || row.Code.Class() != want {
			t.Errorf("%s is %v, not %v", row.Code, row.Class, want)
		}
		if s, ok := status[row.Code]; ok && row.Status != s {
			t.Errorf("%s has status %d, not %d", row.Code, row.Status, s)
		}
		delete(status, row.Code)
		if row.Issue == "" || row.Meaning == "" {
			t.Errorf("%s lacks an issue type or a meaning", row.Code)
		}
	}
	if len(status) > 0 {
		t.Errorf("codes missing from the table: %v", status)
	}
	if len(codeIndex) != len(codeTable) {
		t.Error("a code stands twice in the table")
	}
	if info, ok := Code("no_such_code").Info(); ok || info.Class != Pending || info.Status != 500 {
		t.Errorf("an unknown code is %+v", info)
	}
}

func TestErrorIsAndStatus(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("write: %w", &Error{Code: InvalidResource, Field: "Observation.status", Rule: "obs-6", Detail: "why", Err: cause})
	if !errors.Is(err, InvalidResource) || errors.Is(err, VersionConflict) || !errors.Is(err, cause) {
		t.Error("errors.Is does not follow the code and the cause")
	}
	if CodeOf(err) != InvalidResource || CodeOf(fmt.Errorf("x: %w", NotFound)) != NotFound || CodeOf(cause) != "" || CodeOf(nil) != "" {
		t.Error("CodeOf is wrong")
	}
	if want := "write: invalid_resource: Observation.status [obs-6]: why: cause"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if s := (&Error{Code: InvalidResource}).Status(); s != http.StatusUnprocessableEntity {
		t.Errorf("a rule's status is %d", s)
	}
	if s := (&Error{Code: InvalidResource, Shape: true}).Status(); s != http.StatusBadRequest {
		t.Errorf("a shape's status is %d", s)
	}
	if s := (&Error{Code: InvalidReceipt}).Status(); s != http.StatusInternalServerError {
		t.Errorf("a client's code has status %d", s)
	}
}

func TestCheckJSON(t *testing.T) {
	good := []string{`{}`, `[]`, `1.10`, `"x"`, `null`, ` {"a":[1,{"b":2}],"A":1} `, `{"id":1,"Id":2}`}
	for _, in := range good {
		if err := CheckJSON([]byte(in), Limits{}); err != nil {
			t.Errorf("CheckJSON(%s) = %v", in, err)
		}
	}
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	bad := map[string]string{
		"duplicate":          `{"a":1,"a":2}`,
		"escaped duplicate":  `{"a":1,"\u0061":2}`,
		"nested duplicate":   `{"x":{"a":1,"a":1}}`,
		"two values":         `{} {}`,
		"empty":              ``,
		"space only":         `  `,
		"cut off":            `{"a":`,
		"trailing comma":     `[1,]`,
		"leading zero":       `01`,
		"NaN":                `NaN`,
		"single quotes":      `{'a':1}`,
		"invalid UTF-8":      "\"\xff\"",
		"lone surrogate":     `"\ud800"`,
		"too deep":           deep,
		"comment":            `{}/*x*/`,
		"byte order mark":    "\ufeff{}",
		"control character":  "\"\x01\"",
		"much after a value": `1` + strings.Repeat(" ", 100) + `2`,
	}
	for name, in := range bad {
		if err := CheckJSON([]byte(in), Limits{}); !errors.Is(err, InvalidMessage) {
			t.Errorf("%s: CheckJSON = %v", name, err)
		}
	}
	if err := CheckJSON([]byte(`[1,2,3,4,5,6,7,8,9]`), Limits{Values: 4}); !errors.Is(err, InvalidMessage) {
		t.Errorf("too many values: %v", err)
	}
	if err := CheckJSON([]byte(`"0123456789"`), Limits{Bytes: 11}); !errors.Is(err, InvalidMessage) {
		t.Errorf("too many bytes: %v", err)
	}
	var e *Error
	if err := CheckJSON([]byte(`{"x":[{"a":1,"a":1}]}`), Limits{}); !errors.As(err, &e) || e.Field != "/x/0/a" {
		t.Errorf("the place of a duplicate is not named: %v", err)
	}
	var v struct{ ID string }
	if err := DecodeJSON([]byte(`{"id":"x"}`), Limits{}, &v); err != nil || v.ID != "" {
		t.Errorf("names are folded: %v %v", v, err)
	}
	if err := DecodeJSON([]byte(`{"ID":1}`), Limits{}, &v); !errors.Is(err, InvalidMessage) {
		t.Errorf("a wrong type: %v", err)
	}
}

func TestDigest(t *testing.T) {
	same := [][2]string{
		{`{"a":1,"b":[2,3]}`, " {\n\"b\" : [2, 3], \"a\":1}"},
		{`{"é":"\u0041\/"}`, `{"\u00e9":"A/"}`},
		{`{"a":{"y":1,"x":2}}`, `{"a":{"x":2,"y":1}}`},
		{`"😀"`, `"\ud83d\ude00"`},
	}
	for _, pair := range same {
		a, errA := Digest([]byte(pair[0]), Limits{})
		b, errB := Digest([]byte(pair[1]), Limits{})
		if errA != nil || errB != nil || a != b {
			t.Errorf("%s and %s differ: %v %v", pair[0], pair[1], errA, errB)
		}
	}
	different := [][2]string{
		{`{"a":1.10}`, `{"a":1.1}`}, {`1.2E+2`, `120`}, {`9007199254740993`, `9007199254740992`}, {`1e2`, `1E2`}, {`-0`, `0`},
		{`[1,2]`, `[2,1]`}, {`{"a":"1"}`, `{"a":1}`}, {`{"a":null}`, `{}`}, {`{"A":1}`, `{"a":1}`}, {`"a b"`, `"ab"`}, {`[[1],2]`, `[[1,2]]`},
	}
	for _, pair := range different {
		a, errA := Digest([]byte(pair[0]), Limits{})
		b, errB := Digest([]byte(pair[1]), Limits{})
		if errA != nil || errB != nil || a == b {
			t.Errorf("%s and %s have one digest (%v %v)", pair[0], pair[1], errA, errB)
		}
	}
}

func TestContentDigest(t *testing.T) {
	// RFC 9530, appendix D: the digest of {"hello": "world"} and a line feed.
	body := []byte("{\"hello\": \"world\"}\n")
	const want = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"
	if got := ContentDigest(body); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, good := range []string{want, "sha-512=:AAAA:, " + want, "sha-256=:AAAA:," + want} {
		if err := VerifyContentDigest(good, body); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "sha-256", "sha-256=AAAA", "sha-256=:AAAA:", "sha-256=:!!:", "sha-512=:AAAA:",
		"SHA-256" + want[7:], want + ",", strings.Repeat(want+",", 100) + want, ContentDigest(nil)} {
		if err := VerifyContentDigest(bad, body); !errors.Is(err, InvalidMessage) {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
	if err := VerifyContentDigest(ContentDigest(nil), nil); err != nil {
		t.Error(err)
	}
}

func TestFingerprint(t *testing.T) {
	base := Fingerprint("PUT", "/Observation/1", `W/"1"`, []byte("{}"))
	for i, other := range []string{
		Fingerprint("POST", "/Observation/1", `W/"1"`, []byte("{}")), Fingerprint("PUT", "/Observation/2", `W/"1"`, []byte("{}")),
		Fingerprint("PUT", "/Observation/1", `W/"2"`, []byte("{}")), Fingerprint("PUT", "/Observation/1", `W/"1"`, []byte("{} ")),
		Fingerprint("PUT", "/Observation/1", "", []byte("{}")),
	} {
		if other == base {
			t.Errorf("case %d has the same fingerprint", i)
		}
	}
	// A fixed value, for those who write another implementation.
	const want = "OYPxLmmpJKztdBg08hZmxa_V6_mTR8zZDpi4kgBqr7U"
	if base != want {
		t.Errorf("got %s, want %s", base, want)
	}
}
