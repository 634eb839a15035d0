package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/eda94727/holdfast/record"
)

type object = map[string]any

// The order in which faults are named.
const (
	rankID = iota
	rankCode
	rankStatus
	rankPatient
	rankContent
)

// maxFaults ends the search for faults in a hopeless resource.
const maxFaults = 50

// walker goes through one resource and gathers its faults and references.
type walker struct {
	profile    *Profile
	check      Check
	root       object
	faults     []fault
	references []Reference
	contained  map[string]string   // id -> type
	local      map[string]bool     // "#id" references seen
	paths      map[string][]string // prefix of a contained resource -> its "#" references
}

type fault struct {
	rank int
	err  *record.Error
}

func (w *walker) fail(rank int, code record.Code, path, rule, format string, args ...any) {
	if len(w.faults) < maxFaults {
		w.faults = append(w.faults, fault{rank, &record.Error{Code: code, Field: clip(path), Rule: rule, Detail: fmt.Sprintf(format, args...)}})
	}
}

// first returns the fault to name, as an error or nil.
func (w *walker) first() error {
	if len(w.faults) == 0 {
		return nil
	}
	best := w.faults[0]
	for _, f := range w.faults[1:] {
		if f.rank < best.rank {
			best = f
		}
	}
	return best.err
}

// resource checks the whole resource.
func (w *walker) resource() {
	t := w.check.Type
	w.checkID()
	w.checkPatient()
	w.checkCode()
	if w.check.Lab {
		w.checkLab()
	}
	w.gatherContained()
	if w.root["implicitRules"] != nil {
		w.fail(rankContent, record.UnsupportedResourceContent, t+".implicitRules", "", "this Host follows no rules from elsewhere; leave it out")
	}
	w.object(t, t, w.root)
	w.checkContained()
}

func (w *walker) checkID() {
	path := w.check.Type + ".id"
	id, present := w.root["id"].(string)
	switch {
	case w.check.ID != "" && id != w.check.ID:
		w.fail(rankID, record.InvalidResourceID, path, "", "%q is not the id that the request names", clip(id))
	case w.check.ID == "" && w.root["id"] != nil && (!present || !record.IsID(id)):
		w.fail(rankID, record.InvalidResourceID, path, "", "a new resource brings no id, or a UUIDv7 of its own")
	case w.check.Type == "Patient" && w.check.ID == "":
		w.fail(rankID, record.InvalidResourceID, path, "", "a record has one Patient, made with the record; update that one")
	}
}

// checkPatient wants the record's own Patient, by a plain reference.
func (w *walker) checkPatient() {
	name := types[w.check.Type].patient
	if name == "" {
		if w.check.ID != w.check.Record {
			w.fail(rankPatient, record.WrongResourcePatient, "Patient.id", "", "this is not the record's Patient")
		}
		return
	}
	subject, _ := w.root[name].(object)
	if reference, _ := subject["reference"].(string); reference != "Patient/"+w.check.Record {
		w.fail(rankPatient, record.WrongResourcePatient, w.check.Type+"."+name, "", "must be the reference Patient/%s", w.check.Record)
	}
}

// checkCode wants a resource to say what it is about: by a coding or in words.
func (w *walker) checkCode() {
	name := types[w.check.Type].code
	if name == "" || name == "type" {
		return // Patient has none, and DocumentReference.type is optional in R4
	}
	path := w.check.Type + "." + name
	if name == "medication" {
		if _, ok := w.root["medicationReference"].(object); ok {
			return
		}
		name = "medicationCodeableConcept"
	}
	concept, _ := w.root[name].(object)
	if concept == nil {
		if w.check.Type == "Observation" || w.check.Type == "DiagnosticReport" || slices.Contains(codeRequired, w.check.Type) || name != "code" {
			w.fail(rankCode, record.InvalidResourceCode, path, "", "is missing")
		}
		return
	}
	text, _ := concept["text"].(string)
	for _, coding := range items(concept, "coding") {
		if code, _ := coding["code"].(string); code != "" {
			return
		}
	}
	if strings.TrimSpace(text) == "" {
		w.fail(rankCode, record.InvalidResourceCode, path, "", "needs a coding with a code, or a text")
	}
}

// labSystem is the code system of Observation.category.
const labSystem = "http://terminology.hl7.org/CodeSystem/observation-category"

func (w *walker) checkLab() {
	for _, category := range items(w.root, "category") {
		for _, coding := range items(category, "coding") {
			if coding["system"] == labSystem && coding["code"] == "laboratory" {
				return
			}
		}
	}
	w.fail(rankCode, record.InvalidLabCategory, "Observation.category", "", "a laboratory result has the category %s#laboratory", labSystem)
}

// object checks one element or resource of a type: its invariants, its
// required elements and choices, and then its members.
func (w *walker) object(typeName, path string, o object) {
	if len(w.faults) >= maxFaults {
		return
	}
	d := w.profile.definitions[typeName]
	if len(o) == 0 || len(o) == 1 && o["id"] != nil && typeName != w.check.Type {
		w.fail(rankContent, record.InvalidResource, path, "ele-1", "an element has a value or children")
		return
	}
	for _, group := range d.required {
		if !slices.ContainsFunc(group.elements, func(name string) bool { return present(o, name) }) {
			w.failElement(path, group.name, "is required")
		}
	}
	for _, group := range d.choices {
		count := 0
		for _, name := range group.elements {
			if present(o, name) {
				count++
			}
		}
		if count > 1 {
			w.fail(rankContent, record.InvalidResource, path+"."+group.name+"[x]", "choice", "only one of its types may be there")
		}
	}
	for _, r := range w.profile.rules[typeName] {
		if why := r.check(w, o); why != "" {
			w.fail(rankContent, record.InvalidResource, path, r.name, "%s", why)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if value, ok := strings.CutPrefix(name, "_"); ok {
			w.primitiveExtension(path+"."+value, o[name], o[value])
			continue
		}
		row, ok := d.elements[name]
		if !ok || name == "contained" {
			continue
		}
		w.member(row, path+"."+name, o[name], o["_"+name])
	}
}

// present reports whether an element has a value or, a primitive one, an
// extension in its place.
func present(o object, name string) bool { return o[name] != nil || o["_"+name] != nil }

// member checks one value, or each of an array.
func (w *walker) member(row element, path string, v, extension any) {
	if !row.Many {
		w.value(row, path, v)
		return
	}
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		w.fail(rankContent, record.InvalidResource, path, "ele-1", "an array has at least one value; leave it out")
		return
	}
	extensions, _ := extension.([]any)
	for i, item := range list {
		if item == nil && i < len(extensions) && extensions[i] != nil {
			continue
		}
		w.value(row, path+"["+strconv.Itoa(i)+"]", item)
	}
}

func (w *walker) value(row element, path string, v any) {
	if v == nil {
		w.fail(rankContent, record.InvalidResource, path, "ele-1", "null is no value; leave the element out")
		return
	}
	if o, ok := v.(object); ok {
		w.object(row.Type, path, o)
		switch {
		case row.Type == "Reference":
			w.reference(row, path, o)
		case row.Binding != "" && !w.profile.conceptInSet(row.Binding, o):
			w.failBinding(path, row.Binding)
		}
		return
	}
	if why := checkPrimitive(row.Type, v); why != "" {
		w.fail(rankContent, record.InvalidResource, path, row.Type, "%s", why)
	}
	if text, ok := v.(string); ok && row.Binding != "" && !w.profile.codeInSet(row.Binding, text) {
		w.failBinding(path, row.Binding)
	}
}

// primitiveExtension checks a member such as _status, whose value stands in v.
func (w *walker) primitiveExtension(path string, extension, v any) {
	if list, ok := extension.([]any); ok {
		values, _ := v.([]any)
		if len(values) > 0 && len(values) != len(list) {
			w.fail(rankContent, record.InvalidResource, path, "ele-1", "values and extensions must have the same number of places")
		}
		for i, item := range list {
			var value any
			if i < len(values) {
				value = values[i]
			}
			if item == nil && value == nil {
				w.fail(rankContent, record.InvalidResource, fmt.Sprintf("%s[%d]", path, i), "ele-1", "neither a value nor an extension")
			}
			if o, ok := item.(object); ok {
				w.primitiveExtension(fmt.Sprintf("%s[%d]", path, i), o, value)
			}
		}
		return
	}
	o, ok := extension.(object)
	if !ok {
		w.fail(rankContent, record.InvalidResource, path, "ele-1", "the extension of a value is an object")
		return
	}
	list, _ := o["extension"].([]any)
	if len(list) == 0 && v == nil {
		w.fail(rankContent, record.InvalidResource, path, "ele-1", "neither a value nor an extension")
	}
	if o["extension"] != nil {
		w.member(element{Type: "Extension", Many: true}, path+".extension", o["extension"], nil)
	}
}

// failElement names a missing element with the code that the protocol has for
// it: status and code have their own.
func (w *walker) failElement(path, name, why string) {
	full := path + "." + name
	switch {
	case path == w.check.Type && name == "status":
		w.fail(rankStatus, record.InvalidResourceStatus, full, "cardinality", "%s", why)
	case path == w.check.Type && name == types[path].code:
		w.fail(rankCode, record.InvalidResourceCode, full, "cardinality", "%s", why)
	default:
		w.fail(rankContent, record.InvalidResource, full, "cardinality", "%s", why)
	}
}

func (w *walker) failBinding(path, set string) {
	rank, code := rankCode, record.InvalidResourceCode
	if path == w.check.Type+".status" {
		rank, code = rankStatus, record.InvalidResourceStatus
	}
	detail := "the value is not in the value set http://hl7.org/fhir/ValueSet/" + set
	if all := w.profile.codes[set]; len(all) == 1 && len(all[0].Codes) > 0 && len(all[0].Codes) <= 12 {
		detail += " (" + strings.Join(all[0].Codes, ", ") + ")"
	}
	w.fail(rank, code, path, "required binding", "%s", detail)
}

// codeInSet looks a plain code up in a required value set.
func (p *Profile) codeInSet(set, code string) bool {
	switch set {
	case "mimetypes":
		return isMediaType(code)
	case "currencies":
		return len(code) == 3 && strings.ToUpper(code) == code && strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
	}
	return slices.ContainsFunc(p.codes[set], func(s codeSet) bool { return slices.Contains(s.Codes, code) })
}

// conceptInSet looks for a coding of the concept in a required value set.
func (p *Profile) conceptInSet(set string, concept object) bool {
	return slices.ContainsFunc(items(concept, "coding"), func(coding object) bool {
		return slices.ContainsFunc(p.codes[set], func(s codeSet) bool {
			code, _ := coding["code"].(string)
			return coding["system"] == s.System && slices.Contains(s.Codes, code)
		})
	})
}

// items returns the objects of an array member.
func items(o object, name string) []object {
	list, _ := o[name].([]any)
	result := make([]object, 0, len(list))
	for _, item := range list {
		if one, ok := item.(object); ok {
			result = append(result, one)
		}
	}
	return result
}

// number returns a numeric member's digits.
func number(o object, name string) (json.Number, bool) {
	n, ok := o[name].(json.Number)
	return n, ok
}
