package record

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIntentRequests(t *testing.T) {
	patient := NewID()
	obs := `{"resourceType":"Observation","valueQuantity":{"value":1.10}}`
	withID := `{"id":"a-1","resourceType":"Observation"}`
	for name, c := range map[string]struct {
		intent Intent
		want   Request
	}{
		"lab":    {Intent{Operation: CreateLab, Resource: []byte(obs)}, Request{Method: "POST", Path: "/Observation", ContentType: "application/fhir+json", Body: []byte(obs), Lab: true, Type: "Observation"}},
		"create": {Intent{Operation: CreateResource, Resource: []byte(obs)}, Request{Method: "POST", Path: "/Observation", ContentType: "application/fhir+json", Body: []byte(obs), Type: "Observation"}},
		"update": {Intent{Operation: UpdateResource, Resource: []byte(withID), BaseVersion: 3}, Request{Method: "PUT", Path: "/Observation/a-1", IfMatch: `W/"3"`, ContentType: "application/fhir+json", Body: []byte(withID), Type: "Observation", ID: "a-1"}},
		"delete": {Intent{Operation: DeleteResource, ResourceType: "Condition", ResourceID: "c", BaseVersion: 1}, Request{Method: "DELETE", Path: "/Condition/c", IfMatch: `W/"1"`, Type: "Condition", ID: "c"}},
		"name": {Intent{Operation: UpdateDemographics, Resource: []byte(`{"name":"Ada \"A\" Byron"}`), BaseVersion: 2}, Request{Method: "PATCH", Path: "/Patient/" + patient, IfMatch: `W/"2"`,
			ContentType: "application/json-patch+json", Body: []byte(`[{"op":"add","path":"/name","value":[{"text":"Ada \"A\" Byron"}]}]`), Type: "Patient", ID: patient}},
	} {
		c.intent.Patient, c.intent.OperationID = patient, NewID()
		got, err := c.intent.Request(Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestIntentRefusals(t *testing.T) {
	good := `{"operation":"update_resource","patient":"` + NewID() + `","operation_id":"` + NewID() + `","base_version":1,"resource":{"resourceType":"Condition","id":"c"}}`
	if _, err := ParseIntent([]byte(good), Limits{}); err != nil {
		t.Fatal(err)
	}
	for name, swap := range map[string][2]string{
		"unknown operation": {"update_resource", "upsert"},
		"patient":           {`"patient":"`, `"patient":"x`},
		"operation id":      {`"operation_id":"`, `"operation_id":"x`},
		"unknown member":    {`{"operation"`, `{"x":1,"operation"`},
		"folded member":     {`"patient"`, `"Patient"`},
		"no base":           {`"base_version":1,`, ``},
		"negative base":     {`"base_version":1,`, `"base_version":-1,`},
		"fraction":          {`"base_version":1,`, `"base_version":1.5,`},
		"type":              {`Condition`, `Con/dition`},
		"id":                {`"id":"c"`, `"id":"c/d"`},
		"no id":             {`,"id":"c"`, ``},
		"duplicate":         {`"id":"c"`, `"id":"c","id":"c"`},
		"no resource":       {`{"resourceType":"Condition","id":"c"}`, `null`},
		"create with base":  {"update_resource", "create_resource"},
		"lab of other type": {`"operation":"update_resource"`, `"operation":"create_lab"`},
		"names a resource":  {`"base_version":1`, `"base_version":1,"resource_id":"x"`},
	} {
		text := strings.Replace(good, swap[0], swap[1], 1)
		if text == good {
			t.Fatalf("%s: the swap does nothing", name)
		}
		if _, err := ParseIntent([]byte(text), Limits{}); !errors.Is(err, InvalidMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseIntent([]byte(good), Limits{Bytes: 20}); !errors.Is(err, InvalidMessage) {
		t.Errorf("too large: %v", err)
	}
}

func TestIntentDigestKeepsDigits(t *testing.T) {
	i := Intent{Operation: CreateResource, Patient: NewID(), OperationID: NewID(), Resource: []byte(`{"resourceType":"Observation","v":1.10}`)}
	digest := func(resource string) string {
		i.Resource = []byte(resource)
		d, err := i.Digest(Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	base := digest(string(i.Resource))
	if digest(`{"v":1.10, "resourceType":"Observation"}`) != base {
		t.Error("the order of members matters")
	}
	if digest(`{"resourceType":"Observation","v":1.1}`) == base {
		t.Error("digits do not matter")
	}
}
