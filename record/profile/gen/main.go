// Command gen cuts HL7's FHIR R4 (4.0.1) definitions down to the types of this
// profile. It reads fhir.schema.json, profiles-resources.json,
// profiles-types.json and valuesets.json from the folder given with
// -definitions (HL7 publishes them, under CC0, with the specification) and
// writes r4.schema.json and r4.elements.json into the folder given with -out.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// roots are the resource types of the profile; contained are those that stand
// only inside another resource.
var (
	roots = []string{"Patient", "Observation", "Condition", "AllergyIntolerance", "MedicationStatement", "MedicationRequest",
		"Immunization", "Procedure", "DiagnosticReport", "DocumentReference"}
	contained = []string{"Practitioner", "PractitionerRole", "Organization", "Medication", "Specimen", "Device", "Location", "RelatedPerson"}
)

func main() {
	in := flag.String("definitions", "", "folder with HL7's FHIR R4 definitions")
	out := flag.String("out", ".", "folder to write to")
	flag.Parse()
	if err := run(*in, *out); err != nil {
		log.Fatal(err)
	}
}

func run(in, out string) error {
	schema, err := cutSchema(filepath.Join(in, "fhir.schema.json"))
	if err != nil {
		return err
	}
	elements, err := cutElements(in, schema["definitions"].(map[string]any))
	if err != nil {
		return err
	}
	for name, value := range map[string]any{"r4.schema.json": schema, "r4.elements.json": elements} {
		raw, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), append(raw, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func read(path string, v any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// cutSchema keeps the definitions that the profile's types reach. Descriptions
// go; so do required members and enumerations, which the elements table checks
// with the right error code; contained resources are any object here, and are
// checked each by its own type.
func cutSchema(path string) (map[string]any, error) {
	var full struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := read(path, &full); err != nil {
		return nil, err
	}
	kept := map[string]any{"ResourceList": map[string]any{"type": "object"}}
	todo := append(slices.Clone(roots), contained...)
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if kept[name] != nil {
			continue
		}
		definition := full.Definitions[name]
		if definition == nil {
			return nil, fmt.Errorf("%s has no definition of %s", path, name)
		}
		kept[name] = simplify(definition, &todo)
	}
	return map[string]any{"$schema": "http://json-schema.org/draft-06/schema#", "$id": "http://hl7.org/fhir/json-schema/4.0",
		"definitions": kept}, nil
}

func simplify(v any, todo *[]string) any {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["enum"]; ok {
			return map[string]any{"type": "string"}
		}
		result := map[string]any{}
		for key, value := range v {
			if key == "description" && isString(value) || key == "required" {
				continue
			}
			if key == "$ref" {
				*todo = append(*todo, strings.TrimPrefix(value.(string), "#/definitions/"))
			}
			if key == "properties" {
				// The names of members must not be taken for keywords.
				members := map[string]any{}
				for name, member := range value.(map[string]any) {
					members[name] = simplify(member, todo)
				}
				allowNulls(members)
				result[key] = members
				continue
			}
			result[key] = simplify(value, todo)
		}
		return result
	case []any:
		for i := range v {
			v[i] = simplify(v[i], todo)
		}
	}
	return v
}

// allowNulls lets arrays of primitives and of their extensions hold nulls: each
// stands where the other array has the value (FHIR R4, JSON, "primitive
// elements"). HL7's schema forgets them.
func allowNulls(members map[string]any) {
	for name := range members {
		value, ok := strings.CutPrefix(name, "_")
		if !ok {
			continue
		}
		for _, one := range []string{name, value} {
			if array, _ := members[one].(map[string]any); array["items"] != nil {
				array["items"] = map[string]any{"anyOf": []any{map[string]any{"type": "null"}, array["items"]}}
			}
		}
	}
}

func isString(v any) bool { _, ok := v.(string); return ok }

// element is one row of the elements table; see the profile package.
type element struct {
	Type    string   `json:"type"`
	Min     int      `json:"min,omitempty"`
	Many    bool     `json:"many,omitempty"`
	Choice  string   `json:"choice,omitempty"`
	Binding string   `json:"binding,omitempty"`
	Targets []string `json:"targets,omitempty"`
}

type codes struct {
	System string   `json:"system"`
	Codes  []string `json:"codes"`
}

type definition struct {
	ResourceType string `json:"resourceType"`
	ID           string `json:"id"`
	URL          string `json:"url"`
	Snapshot     struct {
		Element []struct {
			Path string `json:"path"`
			Min  int    `json:"min"`
			Max  string `json:"max"`
			Type []struct {
				Code          string   `json:"code"`
				TargetProfile []string `json:"targetProfile"`
				Extension     []struct {
					ValueURL string `json:"valueUrl"`
				} `json:"extension"`
			} `json:"type"`
			ContentReference string `json:"contentReference"`
			Binding          *struct {
				Strength string `json:"strength"`
				ValueSet string `json:"valueSet"`
			} `json:"binding"`
		} `json:"element"`
	} `json:"snapshot"`
	Compose struct {
		Include []struct {
			System  string    `json:"system"`
			Concept []concept `json:"concept"`
		} `json:"include"`
	} `json:"compose"`
	Concept []concept `json:"concept"`
}

type concept struct {
	Code    string    `json:"code"`
	Concept []concept `json:"concept"`
}

// cutElements lists each type's elements. Elements that the schema does not
// have are left out: copies of the definitions that servers ship have some of
// their own.
func cutElements(in string, schema map[string]any) (any, error) {
	byID, byURL := map[string]definition{}, map[string]definition{}
	for _, file := range []string{"profiles-resources.json", "profiles-types.json", "valuesets.json"} {
		var bundle struct {
			Entry []struct {
				Resource definition `json:"resource"`
			} `json:"entry"`
		}
		if err := read(filepath.Join(in, file), &bundle); err != nil {
			return nil, err
		}
		for _, entry := range bundle.Entry {
			r := entry.Resource
			if r.ResourceType == "StructureDefinition" {
				byID[r.ID] = r
			}
			byURL[r.ResourceType+" "+r.URL] = r
		}
	}
	types := map[string]map[string]element{}
	sets := map[string][]codes{}
	todo := append(slices.Clone(roots), contained...)
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		def, ok := byID[name]
		if types[name] != nil || !ok || name[0] >= 'a' && name[0] <= 'z' { // primitives have no elements of their own
			continue
		}
		types[name] = map[string]element{}
		for _, el := range def.Snapshot.Element[1:] {
			parent, leaf := el.Path[:strings.LastIndex(el.Path, ".")], el.Path[strings.LastIndex(el.Path, ".")+1:]
			if types[parent] == nil {
				types[parent] = map[string]element{}
			}
			row := element{Min: el.Min, Many: el.Max != "1" && el.Max != "0"}
			if el.Binding != nil && el.Binding.Strength == "required" {
				set := strings.TrimPrefix(strings.Split(el.Binding.ValueSet, "|")[0], "http://hl7.org/fhir/ValueSet/")
				row.Binding = set
				sets[set] = expand(byURL, "http://hl7.org/fhir/ValueSet/"+set)
			}
			if el.ContentReference != "" {
				row.Type = strings.TrimPrefix(el.ContentReference, "#")
				types[parent][leaf] = row
				continue
			}
			for _, t := range el.Type {
				row.Type, row.Targets = t.Code, nil
				if strings.HasPrefix(t.Code, "http://hl7.org/fhirpath/") {
					row.Type = "string"
					if len(t.Extension) > 0 {
						row.Type = t.Extension[0].ValueURL
					}
				}
				if row.Type == "BackboneElement" || row.Type == "Element" {
					row.Type = el.Path
				}
				for _, target := range t.TargetProfile {
					if name := strings.TrimPrefix(target, "http://hl7.org/fhir/StructureDefinition/"); name != "Resource" {
						row.Targets = append(row.Targets, name)
					}
				}
				todo = append(todo, t.Code)
				if base, ok := strings.CutSuffix(leaf, "[x]"); ok {
					row.Choice = base
					types[parent][base+strings.ToUpper(t.Code[:1])+t.Code[1:]] = row
				} else {
					types[parent][leaf] = row
				}
			}
		}
	}
	for name, elements := range types {
		definition, ok := schema[name].(map[string]any)
		if !ok {
			continue // an element with elements of its own, not a type
		}
		members := definition["properties"].(map[string]any)
		for leaf := range elements {
			if members[leaf] == nil {
				delete(elements, leaf)
			}
		}
	}
	return map[string]any{"types": types, "codes": sets}, nil
}

// expand lists the codes of a value set. A system whose codes the definitions
// do not hold (media types, currencies) stays without codes.
func expand(byURL map[string]definition, url string) []codes {
	var result []codes
	for _, include := range byURL["ValueSet "+url].Compose.Include {
		concepts := include.Concept
		if len(concepts) == 0 {
			concepts = byURL["CodeSystem "+include.System].Concept
		}
		set := codes{System: include.System, Codes: []string{}}
		var walk func([]concept)
		walk = func(list []concept) {
			for _, c := range list {
				set.Codes = append(set.Codes, c.Code)
				walk(c.Concept)
			}
		}
		walk(concepts)
		result = append(result, set)
	}
	return result
}
