package record

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Operation names a kind of write.
type Operation string

// The five kinds of write.
const (
	CreateLab          Operation = "create_lab"
	UpdateDemographics Operation = "update_demographics"
	CreateResource     Operation = "create_resource"
	UpdateResource     Operation = "update_resource"
	DeleteResource     Operation = "delete_resource"
)

// Intent is one write to a patient's record, as an application means it and as
// a queue keeps it. Its JSON form is the queue's.
type Intent struct {
	Operation   Operation `json:"operation"`
	Patient     string    `json:"patient"`
	OperationID string    `json:"operation_id"`
	// Resource is the FHIR resource (create and update), or {"name": "..."}
	// (update_demographics). Its bytes are sent as they are.
	Resource jsontext.Value `json:"resource,omitzero"`
	// ResourceType and ResourceID name what to delete.
	ResourceType string `json:"resource_type,omitzero"`
	ResourceID   string `json:"resource_id,omitzero"`
	// BaseVersion is the version that an update or deletion is based on.
	BaseVersion int64 `json:"base_version,omitzero"`
}

// ParseIntent reads an intent's JSON form, strictly: an unknown member is an
// error. The resource's bytes are kept as they stand.
func ParseIntent(data []byte, limits Limits) (Intent, error) {
	if err := CheckJSON(data, limits); err != nil {
		return Intent{}, err
	}
	var i Intent
	if err := json.Unmarshal(data, &i, json.RejectUnknownMembers(true)); err != nil {
		return Intent{}, failf(InvalidMessage, "intent", "not an intent: an unknown member or a value of the wrong type")
	}
	return i, i.Check(limits)
}

// Check reports whether the intent is complete: ids, the members that its
// operation needs, and JSON within the limits. Whether the resource is valid
// is the Host's to say. The error is an *[Error] with [InvalidMessage].
func (i Intent) Check(limits Limits) error {
	_, err := i.check(limits)
	return err
}

func (i Intent) check(limits Limits) (intentTarget, error) {
	if err := CheckID("patient", i.Patient); err != nil {
		return intentTarget{}, err
	}
	if err := CheckID("operation_id", i.OperationID); err != nil {
		return intentTarget{}, err
	}
	return i.target(limits)
}

// Digest returns the digest of the intent's JSON form; see [Digest].
func (i Intent) Digest(limits Limits) (string, error) {
	raw, err := json.Marshal(i)
	if err != nil {
		return "", failf(InvalidMessage, "resource", "not valid JSON")
	}
	return Digest(raw, limits)
}

type intentTarget struct {
	ResourceType string `json:"resourceType"`
	ID           string `json:"id"`
	Name         string `json:"name"`
}

func (i Intent) target(limits Limits) (intentTarget, error) {
	var t intentTarget
	bad := func(field, format string, args ...any) (intentTarget, error) {
		return t, failf(InvalidMessage, field, format, args...)
	}
	creates := i.Operation == CreateLab || i.Operation == CreateResource
	if creates != (i.BaseVersion == 0) || i.BaseVersion < 0 {
		return bad("base_version", "%d; an update or deletion needs the version it is based on, a creation has none", i.BaseVersion)
	}
	if i.Operation == DeleteResource {
		if i.Resource != nil || !isTypeName(i.ResourceType) || !IsResourceID(i.ResourceID) {
			return bad("resource_id", "a deletion needs resource_type and resource_id, and no resource")
		}
		return intentTarget{ResourceType: i.ResourceType, ID: i.ResourceID}, nil
	}
	if i.ResourceType != "" || i.ResourceID != "" {
		return bad("resource_type", "type and id stand inside the resource; only a deletion names them beside it")
	}
	if err := CheckJSON(i.Resource, limits); err != nil {
		return t, err
	}
	if i.Operation == UpdateDemographics {
		err := json.Unmarshal(i.Resource, &t, json.RejectUnknownMembers(true))
		if err != nil || t.Name == "" || t.ResourceType != "" || t.ID != "" {
			return bad("resource", `update_demographics takes {"name": "..."}`)
		}
		return intentTarget{ResourceType: "Patient", ID: i.Patient, Name: t.Name}, nil
	}
	var named struct {
		ResourceType string `json:"resourceType"`
		ID           string `json:"id"`
	}
	if err := json.Unmarshal(i.Resource, &named); err != nil || !isTypeName(named.ResourceType) {
		return bad("resource.resourceType", "not a FHIR resource: resourceType is missing or malformed")
	}
	t.ResourceType, t.ID = named.ResourceType, named.ID
	switch i.Operation {
	case CreateLab:
		if t.ResourceType != "Observation" {
			return bad("resource.resourceType", "create_lab takes an Observation")
		}
	case CreateResource:
	case UpdateResource:
		if !IsResourceID(t.ID) {
			return bad("resource.id", "an update needs the resource's id inside the resource")
		}
	default:
		return bad("operation", "%s is not an operation", quoteShort(string(i.Operation)))
	}
	return t, nil
}

// isTypeName reports whether s can stand in a path as a resource type.
func isTypeName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// LabHeader marks a POST as create_lab: the Host then refuses an Observation
// without the category laboratory (invalid_lab_category).
const LabHeader = "Record-Operation"

// Request is an intent as HTTP: what is sent, and what its fingerprint covers.
type Request struct {
	Method string
	// Path is relative to the Host's FHIR base: /Observation/1.
	Path        string
	IfMatch     string
	ContentType string
	Body        []byte
	// Lab is set for create_lab; see [LabHeader].
	Lab bool
	// Type is the resource's type, and ID its id where the intent names one.
	Type string
	ID   string
}

// Request returns the intent as an HTTP request.
func (i Intent) Request(limits Limits) (Request, error) {
	t, err := i.check(limits)
	if err != nil {
		return Request{}, err
	}
	r := Request{Type: t.ResourceType, ID: t.ID, Path: "/" + t.ResourceType, Body: bytes.Clone(i.Resource), ContentType: "application/fhir+json"}
	if i.BaseVersion > 0 {
		r.Path += "/" + t.ID
		r.IfMatch = `W/"` + strconv.FormatInt(i.BaseVersion, 10) + `"`
	}
	switch i.Operation {
	case CreateLab, CreateResource:
		r.Method, r.Lab = http.MethodPost, i.Operation == CreateLab
	case UpdateResource:
		r.Method = http.MethodPut
	case DeleteResource:
		r.Method, r.ContentType = http.MethodDelete, ""
	case UpdateDemographics:
		r.Method, r.ContentType = http.MethodPatch, "application/json-patch+json"
		type humanName struct {
			Text string `json:"text"`
		}
		r.Body, err = json.Marshal([]struct {
			Op    string      `json:"op"`
			Path  string      `json:"path"`
			Value []humanName `json:"value"`
		}{{"add", "/name", []humanName{{t.Name}}}})
		if err != nil {
			return Request{}, fmt.Errorf("record: make the patch: %w", err)
		}
	}
	return r, nil
}

// Result is what became of a write.
type Result struct {
	// Type, ID and Version name the resource version that the write made.
	Type    string `json:"type"`
	ID      string `json:"id"`
	Version int64  `json:"version"`
	// Status is the Host's HTTP status: 200, 201 or 204.
	Status int `json:"status"`
	// Receipt is the Host's signed receipt.
	Receipt string `json:"receipt"`
	// Replayed is true where the Host had done the operation before.
	Replayed bool `json:"replayed,omitzero"`
}
