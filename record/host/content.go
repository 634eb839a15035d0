package host

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/splice"
)

// served returns a stored resource as it is sent to clients: the bytes of every
// value as they came, with the id and meta of this version in front.
func served(resourceType, id string, version int64, updated time.Time, content []byte) ([]byte, error) {
	list, err := splice.Members(content)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(content)+160)
	out = append(out, `{"resourceType":"`+resourceType+`","id":"`+id+`","meta":{"versionId":"`...)
	out = strconv.AppendInt(out, version, 10)
	out = append(out, `","lastUpdated":"`+updated.UTC().Format("2006-01-02T15:04:05.000Z")+`"`...)
	for _, m := range list {
		if m.Name != "meta" {
			continue
		}
		inner, err := splice.Members(m.Raw)
		if err != nil {
			return nil, err
		}
		for _, part := range inner {
			if part.Name != "versionId" && part.Name != "lastUpdated" {
				out = append(append(out, ','), part.Whole...)
			}
		}
	}
	out = append(out, '}')
	for _, m := range list {
		if m.Name != "resourceType" && m.Name != "id" && m.Name != "meta" {
			out = append(append(out, ','), m.Whole...)
		}
	}
	return append(out, '}'), nil
}

// maxPatchOperations bounds a JSON Patch.
const maxPatchOperations = 16

// patchName applies a JSON Patch (RFC 6902) to a Patient, limited to its name:
// add, replace, remove and test of the whole member /name. Everything else of
// the resource keeps its bytes.
func patchName(patient, patch []byte, limits record.Limits) ([]byte, error) {
	bad := func(format string, args ...any) error {
		return &record.Error{Code: record.InvalidMessage, Field: "patch", Detail: fmt.Sprintf(format, args...)}
	}
	var operations []struct {
		Op    string         `json:"op"`
		Path  string         `json:"path"`
		Value jsontext.Value `json:"value"`
	}
	if err := record.CheckJSON(patch, limits); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(patch, &operations, json.RejectUnknownMembers(true)); err != nil || len(operations) == 0 || len(operations) > maxPatchOperations {
		return nil, bad("not a JSON Patch of 1 to %d operations add, replace, remove or test", maxPatchOperations)
	}
	list, err := splice.Members(patient)
	if err != nil {
		return nil, err
	}
	at := -1
	for i, m := range list {
		if m.Name == "name" {
			at = i
		}
	}
	for i, op := range operations {
		if op.Path != "/name" {
			return nil, &record.Error{Code: record.UnsupportedResourceContent, Field: "patch", Detail: "only /name can be patched; change other elements by an update"}
		}
		if (op.Value == nil) != (op.Op == "remove") {
			return nil, bad("operation %d: add, replace and test have a value, remove has none", i)
		}
		whole := splice.New("name", bytes.Clone(op.Value))
		switch op.Op {
		case "add":
			if at < 0 {
				at = len(list)
				list = append(list, whole)
			}
			list[at] = whole
		case "replace", "remove", "test":
			if at < 0 {
				return nil, bad("operation %d: the Patient has no name", i)
			}
			switch op.Op {
			case "replace":
				list[at] = whole
			case "remove":
				list, at = append(list[:at], list[at+1:]...), -1
			default:
				want, errWant := record.Digest(op.Value, limits)
				got, errGot := record.Digest(list[at].Raw, limits)
				if errWant != nil || errGot != nil || want != got {
					return nil, &record.Error{Code: record.VersionConflict, Field: "patch", Detail: fmt.Sprintf("operation %d: the name is another", i)}
				}
			}
		default:
			return nil, bad("operation %d: only add, replace, remove and test are known", i)
		}
	}
	return splice.Object(list), nil
}
