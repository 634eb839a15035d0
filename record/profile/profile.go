// Package profile decides which FHIR R4 resources a Host keeps: ten types, in
// R4's structure, with R4's required bindings and error-level invariants, each
// belonging to one patient's record and referring to nothing outside it.
//
// The structure and the tables of elements and codes are cut by the command in
// gen from HL7's own definitions of FHIR R4 (4.0.1), which HL7 places in the
// public domain (CC0); the invariants are written in Go, under their names in
// the specification.
package profile

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/eda94727/holdfast/record"
)

//go:embed r4.schema.json
var schemaJSON []byte

//go:embed r4.elements.json
var elementsJSON []byte

// types are the resource types that a record holds, with the element that
// names the patient and the one that says what the resource is about.
var types = map[string]struct{ patient, code string }{
	"Patient":             {"", ""},
	"Observation":         {"subject", "code"},
	"Condition":           {"subject", "code"},
	"AllergyIntolerance":  {"patient", "code"},
	"MedicationStatement": {"subject", "medication"},
	"MedicationRequest":   {"subject", "medication"},
	"Immunization":        {"patient", "vaccineCode"},
	"Procedure":           {"subject", "code"},
	"DiagnosticReport":    {"subject", "code"},
	"DocumentReference":   {"subject", "type"},
}

// codeRequired are the types that R4 lets stand without a code, but a record
// does not: nobody can say what such a resource is about.
var codeRequired = []string{"Condition", "AllergyIntolerance", "Procedure"}

// containedTypes stand only inside another resource. A contained Patient is
// not among them: it would be a second patient in the record.
var containedTypes = []string{"Practitioner", "PractitionerRole", "Organization", "Medication", "Specimen", "Device", "Location", "RelatedPerson"}

// Types returns the ten resource types, sorted.
func Types() []string {
	names := make([]string, 0, len(types))
	for name := range types {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Supports reports whether a record holds resources of this type. The name is
// case-exact.
func Supports(resourceType string) bool {
	_, ok := types[resourceType]
	return ok
}

// PatientElement returns the element of the type that names the patient, "" for
// Patient itself.
func PatientElement(resourceType string) string { return types[resourceType].patient }

// element is one row of the elements table: an element's type, cardinality,
// the group of a choice ([x]), its required value set and reference targets.
type element struct {
	Type    string   `json:"type"`
	Min     int      `json:"min"`
	Many    bool     `json:"many"`
	Choice  string   `json:"choice"`
	Binding string   `json:"binding"`
	Targets []string `json:"targets"`
}

// definition is a type's elements and what must be there.
type definition struct {
	elements map[string]element
	// required has each required element, or group of a choice, with the names
	// of which one must be there; choices has the groups of which at most one
	// may be. Both are sorted.
	required []group
	choices  []group
}

// group is an element, or a choice ([x]) with its elements.
type group struct {
	name     string
	elements []string
}

func sortedGroups(m map[string][]string) []group {
	list := make([]group, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, group{name, m[name]})
	}
	return list
}

type codeSet struct {
	System string   `json:"system"`
	Codes  []string `json:"codes"`
}

// Profile validates resources. It is safe for concurrent use.
type Profile struct {
	schemas     map[string]*jsonschema.Schema
	definitions map[string]definition
	codes       map[string][]codeSet
	rules       map[string][]rule
}

// Load compiles the profile. It takes some tens of milliseconds; do it once.
func Load() (*Profile, error) {
	p := &Profile{schemas: map[string]*jsonschema.Schema{}, definitions: map[string]definition{}, rules: rules()}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaJSON))
	if err != nil {
		return nil, fmt.Errorf("profile: the schema: %w", err)
	}
	const url = "http://hl7.org/fhir/json-schema/4.0"
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("profile: the schema: %w", err)
	}
	for _, name := range slices.Concat(Types(), containedTypes) {
		if p.schemas[name], err = compiler.Compile(url + "#/definitions/" + name); err != nil {
			return nil, fmt.Errorf("profile: the schema of %s: %w", name, err)
		}
	}
	var tables struct {
		Types map[string]map[string]element `json:"types"`
		Codes map[string][]codeSet          `json:"codes"`
	}
	if err := json.Unmarshal(elementsJSON, &tables); err != nil {
		return nil, fmt.Errorf("profile: the elements: %w", err)
	}
	p.codes = tables.Codes
	for name, elements := range tables.Types {
		required, choices := map[string][]string{}, map[string][]string{}
		for leaf, row := range elements {
			group := leaf
			if row.Choice != "" {
				group = row.Choice
				choices[group] = append(choices[group], leaf)
			}
			if row.Min > 0 {
				required[group] = append(required[group], leaf)
			}
		}
		p.definitions[name] = definition{elements, sortedGroups(required), sortedGroups(choices)}
	}
	for name := range p.rules {
		if _, ok := p.definitions[name]; !ok {
			return nil, fmt.Errorf("profile: rules for %s, which is no type", name)
		}
	}
	return p, nil
}

// Check says what a resource must be beside valid.
type Check struct {
	// Type is the resource type that the request names.
	Type string
	// ID is the id that the request names; "" for a creation, where the
	// resource may bring an id of its own (a UUIDv7) or none.
	ID string
	// Record is the record's id, which is also its Patient's.
	Record string
	// Lab asks for an Observation of the category laboratory.
	Lab bool
	// Limits bounds the JSON.
	Limits record.Limits
}

// Reference is a reference to another resource of the record.
type Reference struct {
	// Path is where it stands: Observation.hasMember[0].
	Path string
	Type string
	ID   string
}

// Resource is a valid resource.
type Resource struct {
	Type string
	// ID is the id that stands in the resource, "" if there is none.
	ID string
	// References are those to other resources of the record than its Patient;
	// whether they exist is the Host's to check.
	References []Reference
	// Index has the values that searches compare.
	Index Index
}

// Validate checks a resource and says what it refers to. The error is an
// *[record.Error]; of several faults it names the first in the order type,
// shape, id, code, status, patient, content.
func (p *Profile) Validate(data []byte, check Check) (*Resource, error) {
	if !Supports(check.Type) {
		return nil, &record.Error{Code: record.UnsupportedResourceType, Field: clip(check.Type),
			Detail: "this record holds " + strings.Join(Types(), ", ")}
	}
	root, err := parse(data, check.Limits)
	if err != nil {
		return nil, err
	}
	if got, _ := root["resourceType"].(string); got != check.Type {
		return nil, &record.Error{Code: record.InvalidResource, Shape: true, Field: check.Type + ".resourceType",
			Detail: fmt.Sprintf("%q is not the type that the request names", clip(got))}
	}
	if err := p.checkShape(check.Type, check.Type, root); err != nil {
		return nil, err
	}
	w := &walker{profile: p, check: check, root: root}
	w.resource()
	if fault := w.first(); fault != nil {
		return nil, fault
	}
	id, _ := root["id"].(string)
	return &Resource{Type: check.Type, ID: id, References: w.references, Index: index(check.Type, root)}, nil
}

// parse reads the resource for checking, with numbers as their digits.
func parse(data []byte, limits record.Limits) (object, error) {
	v, err := record.ParseJSON(data, limits)
	var e *record.Error
	if errors.As(err, &e) {
		return nil, &record.Error{Code: record.InvalidResource, Shape: true, Field: e.Field, Detail: e.Detail}
	}
	if err != nil {
		return nil, err
	}
	root, ok := v.(object)
	if !ok {
		return nil, &record.Error{Code: record.InvalidResource, Shape: true, Detail: "a resource is a JSON object"}
	}
	return root, checkNumbers(root)
}

// checkNumbers bounds the digits of numbers, so that comparing them is cheap.
func checkNumbers(v any) error {
	switch v := v.(type) {
	case object:
		for _, member := range v {
			if err := checkNumbers(member); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range v {
			if err := checkNumbers(item); err != nil {
				return err
			}
		}
	case json.Number:
		if _, exponent, _ := strings.Cut(strings.ToLower(string(v)), "e"); len(v) > 64 || len(strings.TrimLeft(exponent, "+-0")) > 3 {
			return &record.Error{Code: record.UnsupportedResourceContent, Detail: "a number has more than 64 characters or an exponent beyond 999"}
		}
	}
	return nil
}

// printer writes the schema library's messages.
var printer = message.NewPrinter(language.English)

// checkShape checks one resource against the schema of its type and names the
// deepest fault.
func (p *Profile) checkShape(resourceType, path string, o object) error {
	err := p.schemas[resourceType].Validate(o)
	var fault *jsonschema.ValidationError
	if err == nil {
		return nil
	}
	if !errors.As(err, &fault) {
		return fmt.Errorf("profile: validate: %w", err)
	}
	for len(fault.Causes) > 0 {
		next := fault.Causes[0]
		for _, cause := range fault.Causes[1:] {
			// Of several, the one that lies deepest says most.
			if len(cause.InstanceLocation) > len(next.InstanceLocation) {
				next = cause
			}
		}
		fault = next
	}
	for _, step := range fault.InstanceLocation {
		if step != "" && step[0] >= '0' && step[0] <= '9' {
			path += "[" + step + "]"
		} else {
			path += "." + step
		}
	}
	detail := fault.ErrorKind.LocalizedString(printer)
	if len(detail) > 200 || strings.Contains(detail, "does not match pattern") {
		detail = "the value does not have the form of its type" // and is not repeated: it may be long or private
	}
	return &record.Error{Code: record.InvalidResource, Shape: true, Field: clip(path), Rule: "R4 structure", Detail: detail}
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
