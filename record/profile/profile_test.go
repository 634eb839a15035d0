package profile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/eda94727/holdfast/record"
)

const patientID = "0190f3a0-0000-7000-8000-000000000001"

// base has a valid resource of each type; REST is replaced by more members.
var base = map[string]string{
	"Patient":             `{"resourceType":"Patient","id":"` + patientID + `" REST}`,
	"Observation":         `{"resourceType":"Observation","status":"final","code":{"coding":[{"system":"http://loinc.org","code":"718-7"}]},"subject":{"reference":"Patient/` + patientID + `"} REST}`,
	"Condition":           `{"resourceType":"Condition","code":{"text":"Asthma"},"subject":{"reference":"Patient/` + patientID + `"} REST}`,
	"AllergyIntolerance":  `{"resourceType":"AllergyIntolerance","clinicalStatus":{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/allergyintolerance-clinical","code":"active"}]},"code":{"text":"Nuts"},"patient":{"reference":"Patient/` + patientID + `"} REST}`,
	"MedicationStatement": `{"resourceType":"MedicationStatement","status":"active","medicationCodeableConcept":{"text":"Aspirin"},"subject":{"reference":"Patient/` + patientID + `"} REST}`,
	"MedicationRequest":   `{"resourceType":"MedicationRequest","status":"active","intent":"order","medicationCodeableConcept":{"text":"Aspirin"},"subject":{"reference":"Patient/` + patientID + `"} REST}`,
	"Immunization":        `{"resourceType":"Immunization","status":"completed","vaccineCode":{"text":"MMR"},"occurrenceDateTime":"2020-05","patient":{"reference":"Patient/` + patientID + `"} REST}`,
	"Procedure":           `{"resourceType":"Procedure","status":"completed","code":{"text":"Appendectomy"},"subject":{"reference":"Patient/` + patientID + `"} REST}`,
	"DiagnosticReport":    `{"resourceType":"DiagnosticReport","status":"final","code":{"text":"Blood count"},"subject":{"reference":"Patient/` + patientID + `"} REST}`,
	"DocumentReference":   `{"resourceType":"DocumentReference","status":"current","content":[{"attachment":{"contentType":"text/plain","data":"eA=="}}],"subject":{"reference":"Patient/` + patientID + `"} REST}`,
}

func build(resourceType, rest string) string {
	if rest != "" && !strings.HasPrefix(rest, ",") {
		rest = "," + rest
	}
	return strings.Replace(base[resourceType], " REST", rest, 1)
}

func load(t testing.TB) *Profile {
	p, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func checkFor(resourceType string) Check {
	c := Check{Type: resourceType, Record: patientID}
	if resourceType == "Patient" {
		c.ID = patientID
	}
	return c
}

func TestValidResources(t *testing.T) {
	p := load(t)
	for name := range base {
		if _, err := p.Validate([]byte(build(name, "")), checkFor(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"exact numbers":         build("Observation", `"valueQuantity":{"value":1.10},"component":[{"code":{"text":"a"},"valueQuantity":{"value":1.2E+2}},{"code":{"text":"b"},"valueQuantity":{"value":9007199254740993}}]`),
		"extension for a value": build("Patient", `"_birthDate":{"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/data-absent-reason","valueCode":"unknown"}]}`),
		"status by extension":   strings.Replace(build("Observation", ""), `"status":"final"`, `"_status":{"extension":[{"url":"http://x","valueString":"y"}]}`, 1),
		"nulls in arrays":       build("Patient", `"name":[{"given":["Ada",null],"_given":[null,{"extension":[{"url":"http://x","valueString":"y"}]}]}]`),
		"contained":             build("Observation", `"contained":[{"resourceType":"Practitioner","id":"p"}],"performer":[{"reference":"#p"}]`),
		"contained refers back": build("Observation", `"contained":[{"resourceType":"Observation","id":"s","status":"final","code":{"text":"x"},"hasMember":[{"reference":"#"}]}]`),
		"nested extension":      build("Patient", `"extension":[{"url":"http://x","extension":[{"url":"a","valueBoolean":true}]}]`),
		"narrative":             build("Patient", `"text":{"status":"generated","div":"<div xmlns=\"http://www.w3.org/1999/xhtml\"><p>Ada &nbsp;<b>B</b></p></div>"}`),
		"partial dates":         build("Patient", `"birthDate":"1990-02"`),
		"leap second":           build("Observation", `"effectiveInstant":"2016-12-31T23:59:60Z"`),
		"own id":                strings.Replace(build("Observation", ""), `{`, `{"id":"`+record.NewID()+`",`, 1),
		"equal period":          build("Observation", `"effectivePeriod":{"start":"2020","end":"2020-05-01"}`),
		"logical reference":     build("Observation", `"performer":[{"identifier":{"system":"http://x","value":"1"},"display":"Dr. B"}]`),
	} {
		resourceType := "Observation"
		if strings.Contains(text, `"Patient","id"`) {
			resourceType = "Patient"
		}
		if _, err := p.Validate([]byte(text), checkFor(resourceType)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each case breaks one rule; want is code, rule and a part of the field.
func TestRefusals(t *testing.T) {
	p := load(t)
	type refusal struct {
		resourceType, text string
		code               record.Code
		rule, field        string
	}
	obs := func(rest string) string { return build("Observation", rest) }
	swap := func(resourceType, old, new string) string {
		text := strings.Replace(build(resourceType, ""), old, new, 1)
		if text == build(resourceType, "") {
			t.Fatalf("%s: %s is not there", resourceType, old)
		}
		return text
	}
	const bad = record.InvalidResource
	cases := []refusal{
		// Type and shape.
		{"Encounter", `{}`, record.UnsupportedResourceType, "", ""},
		{"observation", `{}`, record.UnsupportedResourceType, "", ""},
		{"Observation", build("Condition", ""), bad, "", "resourceType"},
		{"Observation", `[]`, bad, "", ""},
		{"Observation", `{`, bad, "", ""},
		{"Observation", obs(`"status":"final"`), bad, "", "status"}, // twice
		{"Observation", obs(`"Status":"final"`), bad, "R4 structure", "Observation"},
		{"Observation", obs(`"note":"x"`), bad, "R4 structure", "note"},
		{"Observation", obs(`"valueQuantity":{"value":"1.10"}`), bad, "R4 structure", "valueQuantity.value"},
		{"Observation", obs(`"valueString":""`), bad, "R4 structure", "valueString"},
		{"Observation", obs(`"effectiveDateTime":"2020-13-01"`), bad, "R4 structure", "effectiveDateTime"},
		{"Observation", obs(`"component":[{"code":{"text":"a"},"x":1}]`), bad, "R4 structure", "component[0]"},
		{"Patient", build("Patient", `"name":null`), bad, "R4 structure", "name"},
		// Id.
		{"Observation", swap("Observation", `{`, `{"id":"a-1",`), record.InvalidResourceID, "", "id"},
		{"Patient", swap("Patient", patientID, record.NewID()), record.InvalidResourceID, "", "id"},
		// Code.
		{"Observation", swap("Observation", `"code":{"coding":[{"system":"http://loinc.org","code":"718-7"}]},`, ``), record.InvalidResourceCode, "", "Observation.code"},
		{"Observation", swap("Observation", `"coding":[{"system":"http://loinc.org","code":"718-7"}]`, `"coding":[{"display":"x"}]`), record.InvalidResourceCode, "", "Observation.code"},
		{"Condition", swap("Condition", `"code":{"text":"Asthma"},`, ``), record.InvalidResourceCode, "", "Condition.code"},
		{"Immunization", swap("Immunization", `"vaccineCode":{"text":"MMR"},`, ``), record.InvalidResourceCode, "", "vaccineCode"},
		{"MedicationRequest", swap("MedicationRequest", `"medicationCodeableConcept":{"text":"Aspirin"},`, ``), record.InvalidResourceCode, "", "medication"},
		{"Patient", build("Patient", `"gender":"f"`), record.InvalidResourceCode, "required binding", "gender"},
		{"Condition", build("Condition", `"verificationStatus":{"coding":[{"system":"http://x","code":"confirmed"}]}`), record.InvalidResourceCode, "required binding", "verificationStatus"},
		{"MedicationRequest", swap("MedicationRequest", `"order"`, `"wish"`), record.InvalidResourceCode, "required binding", "intent"},
		{"DocumentReference", swap("DocumentReference", `text/plain`, `text`), record.InvalidResourceCode, "required binding", "contentType"},
		{"Patient", build("Patient", `"extension":[{"url":"http://x","valueMoney":{"value":1,"currency":"eur"}}]`), record.InvalidResourceCode, "required binding", "currency"},
		// Status.
		{"Observation", swap("Observation", `"status":"final",`, ``), record.InvalidResourceStatus, "cardinality", "Observation.status"},
		{"Observation", swap("Observation", `final`, `done`), record.InvalidResourceStatus, "required binding", "Observation.status"},
		// Patient and references.
		{"Observation", swap("Observation", patientID, record.NewID()), record.WrongResourcePatient, "", "Observation.subject"},
		{"Observation", swap("Observation", `,"subject":{"reference":"Patient/`+patientID+`"}`, ``), record.WrongResourcePatient, "", "Observation.subject"},
		{"Observation", swap("Observation", `"Patient/`, `"http://h/fhir/Patient/`), record.WrongResourcePatient, "", "Observation.subject"},
		{"Observation", obs(`"focus":[{"reference":"Patient/other"}]`), record.WrongResourcePatient, "", "focus[0]"},
		{"Observation", obs(`"contained":[{"resourceType":"Specimen","id":"s","subject":{"reference":"Patient/other"}}],"specimen":{"reference":"#s"}`), record.WrongResourcePatient, "", "contained[0].subject"},
		{"Observation", obs(`"extension":[{"url":"http://x","valueReference":{"reference":"Patient/other"}}]`), record.WrongResourcePatient, "", "valueReference"},
		{"Observation", obs(`"hasMember":[{"reference":"https://elsewhere/fhir/Observation/1"}]`), record.UnsupportedResourceContent, "", "hasMember[0]"},
		{"Observation", obs(`"hasMember":[{"reference":"urn:uuid:` + patientID + `"}]`), record.UnsupportedResourceContent, "", "hasMember[0]"},
		{"Observation", obs(`"performer":[{"reference":"Practitioner/1"}]`), record.UnsupportedResourceContent, "", "performer[0]"},
		{"Observation", obs(`"hasMember":[{"reference":"../Observation/1"}]`), record.UnsupportedResourceContent, "", "hasMember[0]"},
		{"Observation", obs(`"hasMember":[{"reference":"Condition/1"}]`), bad, "reference target", "hasMember[0]"},
		{"Observation", obs(`"hasMember":[{"reference":"Observation/1","type":"Condition"}]`), bad, "reference type", "hasMember[0]"},
		{"Observation", obs(`"contained":[{"resourceType":"Patient","id":"p"}],"focus":[{"reference":"#p"}]`), record.UnsupportedResourceContent, "", "contained[0]"},
		{"Observation", obs(`"contained":[{"resourceType":"Binary","id":"p"}],"focus":[{"reference":"#p"}]`), record.UnsupportedResourceContent, "", "contained[0]"},
		{"Observation", obs(`"implicitRules":"http://x"`), record.UnsupportedResourceContent, "", "implicitRules"},
		{"Observation", obs(`"valueQuantity":{"value":1e99999}`), record.UnsupportedResourceContent, "", ""},
		{"Observation", obs(`"valueQuantity":{"value":0.` + strings.Repeat("1", 70) + `}`), record.UnsupportedResourceContent, "", ""},
		// Contained resources.
		{"Observation", obs(`"contained":[{"resourceType":"Practitioner","id":"p","contained":[{"resourceType":"Practitioner","id":"q"}]}],"performer":[{"reference":"#p"}]`), bad, "dom-2", "contained[0]"},
		{"Observation", obs(`"contained":[{"resourceType":"Practitioner","id":"p"}]`), bad, "dom-3", "contained[0]"},
		{"Observation", obs(`"contained":[{"resourceType":"Practitioner","id":"p","meta":{"versionId":"1"}}],"performer":[{"reference":"#p"}]`), bad, "dom-4", "contained[0]"},
		{"Observation", obs(`"contained":[{"resourceType":"Practitioner","id":"p","meta":{"security":[{"code":"x"}]}}],"performer":[{"reference":"#p"}]`), bad, "dom-5", "contained[0]"},
		{"Observation", obs(`"contained":[{"resourceType":"Practitioner","id":"p","x":1}],"performer":[{"reference":"#p"}]`), bad, "R4 structure", "contained[0]"},
		{"Observation", obs(`"contained":[{"resourceType":"Practitioner","id":"p"},{"resourceType":"Practitioner","id":"p"}],"performer":[{"reference":"#p"}]`), bad, "", "contained[1]"},
		{"Observation", obs(`"contained":[]`), bad, "ele-1", "contained"},
		{"Observation", obs(`"performer":[{"reference":"#p"}]`), bad, "ref-1", "performer[0]"},
		// Elements.
		{"Observation", obs(`"category":[]`), bad, "ele-1", "category"},
		{"Observation", obs(`"method":{}`), bad, "ele-1", "method"},
		{"Patient", build("Patient", `"name":[{"given":["A",null]}]`), bad, "ele-1", "given[1]"},
		{"Patient", build("Patient", `"name":[{"given":[null],"_given":[null]}]`), bad, "ele-1", "given"},
		{"Patient", build("Patient", `"_birthDate":{"id":"x"}`), bad, "ele-1", "birthDate"},
		{"Observation", obs(`"valueString":"x","valueBoolean":true`), bad, "choice", "value[x]"},
		{"Observation", obs(`"component":[{"valueString":"x"}]`), bad, "cardinality", "component[0].code"},
		{"Immunization", swap("Immunization", `"occurrenceDateTime":"2020-05",`, ``), bad, "cardinality", "occurrence"},
		{"DocumentReference", swap("DocumentReference", `"content":[{"attachment":{"contentType":"text/plain","data":"eA=="}}],`, ``), bad, "cardinality", "content"},
		{"Patient", build("Patient", `"birthDate":"2021-02-30"`), bad, "date", "birthDate"},
		{"Patient", build("Patient", `"multipleBirthInteger":1.5`), bad, "integer", "multipleBirthInteger"},
		{"Patient", build("Patient", `"multipleBirthInteger":3000000000`), bad, "integer", "multipleBirthInteger"},
		{"Patient", build("Patient", `"telecom":[{"rank":0}]`), bad, "positiveInt", "rank"},
		{"DocumentReference", swap("DocumentReference", `eA==`, `e`), bad, "base64Binary", "data"},
		// Invariants.
		{"Patient", build("Patient", `"extension":[{"url":"http://x"}]`), bad, "ext-1", "extension[0]"},
		{"Patient", build("Patient", `"extension":[{"url":"http://x","valueCode":"a","extension":[{"url":"y","valueCode":"a"}]}]`), bad, "ext-1", "extension[0]"},
		{"Observation", obs(`"valueQuantity":{"value":1,"code":"mg"}`), bad, "qty-3", "valueQuantity"},
		{"Observation", obs(`"valueRatio":{"numerator":{"value":1}}`), bad, "rat-1", "valueRatio"},
		{"Observation", obs(`"valueRatio":{"id":"x"}`), bad, "ele-1", "valueRatio"},
		{"Observation", obs(`"valueRange":{"low":{"value":10.1},"high":{"value":9.9}}`), bad, "rng-2", "valueRange"},
		{"Observation", obs(`"effectivePeriod":{"start":"2020-02","end":"2020-01"}`), bad, "per-1", "effectivePeriod"},
		{"Observation", obs(`"effectiveTiming":{"repeat":{"duration":1}}`), bad, "tim-1", "repeat"},
		{"Observation", obs(`"effectiveTiming":{"repeat":{"period":1}}`), bad, "tim-2", "repeat"},
		{"Observation", obs(`"effectiveTiming":{"repeat":{"duration":-1,"durationUnit":"h"}}`), bad, "tim-4", "repeat"},
		{"Observation", obs(`"effectiveTiming":{"repeat":{"period":-1,"periodUnit":"h"}}`), bad, "tim-5", "repeat"},
		{"Observation", obs(`"effectiveTiming":{"repeat":{"periodMax":1}}`), bad, "tim-6", "repeat"},
		{"Observation", obs(`"effectiveTiming":{"repeat":{"durationMax":1}}`), bad, "tim-7", "repeat"},
		{"Observation", obs(`"effectiveTiming":{"repeat":{"countMax":1}}`), bad, "tim-8", "repeat"},
		{"Observation", obs(`"effectiveTiming":{"repeat":{"offset":1}}`), bad, "tim-9", "repeat"},
		{"Observation", obs(`"effectiveTiming":{"repeat":{"offset":1,"when":["C"]}}`), bad, "tim-9", "repeat"},
		{"Observation", obs(`"effectiveTiming":{"repeat":{"timeOfDay":["10:00:00"],"when":["AC"]}}`), bad, "tim-10", "repeat"},
		{"Condition", build("Condition", `"extension":[{"url":"http://x","valueDuration":{"value":1,"system":"http://x","code":"h"}}]`), bad, "drt-1", "valueDuration"},
		{"Condition", build("Condition", `"extension":[{"url":"http://x","valueDistance":{"value":1}}]`), bad, "dis-1", "valueDistance"},
		{"Condition", build("Condition", `"extension":[{"url":"http://x","valueCount":{"value":1.0,"system":"http://unitsofmeasure.org","code":"1"}}]`), bad, "cnt-3", "valueCount"},
		{"Condition", build("Condition", `"onsetAge":{"value":0,"system":"http://unitsofmeasure.org","code":"a"}`), bad, "age-1", "onsetAge"},
		{"Patient", build("Patient", `"extension":[{"url":"http://x","valueTriggerDefinition":{"type":"periodic","timingDate":"2020","data":[{"type":"Patient"}]}}]`), bad, "trd-1", "valueTriggerDefinition"},
		{"Patient", build("Patient", `"extension":[{"url":"http://x","valueTriggerDefinition":{"type":"named-event","name":"x","condition":{"language":"text/cql","expression":"x"}}}]`), bad, "trd-2", "valueTriggerDefinition"},
		{"Patient", build("Patient", `"extension":[{"url":"http://x","valueTriggerDefinition":{"type":"named-event"}}]`), bad, "trd-3", "valueTriggerDefinition"},
		{"Patient", build("Patient", `"extension":[{"url":"http://x","valueExpression":{"language":"text/cql"}}]`), bad, "exp-1", "valueExpression"},
		{"Patient", build("Patient", `"extension":[{"url":"http://x","valueDataRequirement":{"type":"Patient","codeFilter":[{"valueSet":"http://x"}]}}]`), bad, "drq-1", "codeFilter[0]"},
		{"Patient", build("Patient", `"extension":[{"url":"http://x","valueDataRequirement":{"type":"Patient","dateFilter":[{"path":"a","searchParam":"b"}]}}]`), bad, "drq-2", "dateFilter[0]"},
		{"DocumentReference", swap("DocumentReference", `"contentType":"text/plain",`, ``), bad, "att-1", "attachment"},
		{"DocumentReference", swap("DocumentReference", `"data":"eA=="`, `"url":"Binary/1"`), bad, "attachment url", "attachment"},
		{"Patient", build("Patient", `"telecom":[{"value":"1"}]`), bad, "cpt-2", "telecom[0]"},
		{"Patient", build("Patient", `"text":{"status":"generated","div":"<div xmlns=\"http://www.w3.org/1999/xhtml\"><script>x</script></div>"}`), bad, "txt-1", "text"},
		{"Patient", build("Patient", `"text":{"status":"generated","div":"<div xmlns=\"http://www.w3.org/1999/xhtml\"><p onclick=\"x\">x</p></div>"}`), bad, "txt-1", "text"},
		{"Patient", build("Patient", `"text":{"status":"generated","div":"<div xmlns=\"http://www.w3.org/1999/xhtml\"><a href=\"javascript:x\">x</a></div>"}`), bad, "txt-1", "text"},
		{"Patient", build("Patient", `"text":{"status":"generated","div":"<!DOCTYPE x><div xmlns=\"http://www.w3.org/1999/xhtml\">x</div>"}`), bad, "txt-1", "text"},
		{"Patient", build("Patient", `"text":{"status":"generated","div":"<div>x</div>"}`), bad, "txt-1", "text"},
		{"Patient", build("Patient", `"text":{"status":"generated","div":"x"}`), bad, "txt-1", "text"},
		{"Patient", build("Patient", `"text":{"status":"generated","div":"<div xmlns=\"http://www.w3.org/1999/xhtml\"> </div>"}`), bad, "txt-1", "text"},
		{"Immunization", build("Immunization", `"education":[{"publicationDate":"2020"}]`), bad, "imm-1", "education[0]"},
		{"AllergyIntolerance", swap("AllergyIntolerance", `"clinicalStatus":{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/allergyintolerance-clinical","code":"active"}]},`, ``), bad, "ait-1", "AllergyIntolerance"},
		{"AllergyIntolerance", build("AllergyIntolerance", `"verificationStatus":{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/allergyintolerance-verification","code":"entered-in-error"}]}`), bad, "ait-2", "AllergyIntolerance"},
		{"Condition", build("Condition", `"abatementString":"x"`), bad, "con-4", "Condition"},
		{"Condition", build("Condition", `"clinicalStatus":{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/condition-clinical","code":"active"}]},"verificationStatus":{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/condition-ver-status","code":"entered-in-error"}]}`), bad, "con-5", "Condition"},
		{"Condition", build("Condition", `"stage":[{"type":{"text":"x"}}]`), bad, "con-1", "stage[0]"},
		{"Condition", build("Condition", `"evidence":[{"extension":[{"url":"http://x","valueCode":"a"}]}]`), bad, "con-2", "evidence[0]"},
		{"Observation", obs(`"valueString":"x","dataAbsentReason":{"text":"x"}`), bad, "obs-6", "Observation"},
		{"Observation", obs(`"valueString":"x","component":[{"code":{"coding":[{"system":"http://loinc.org","code":"718-7"}]}}]`), bad, "obs-7", "Observation"},
		{"Observation", obs(`"referenceRange":[{"type":{"text":"x"}}]`), bad, "obs-3", "referenceRange[0]"},
		{"Patient", build("Patient", `"contact":[{"gender":"male"}]`), bad, "pat-1", "contact[0]"},
		{"Observation", obs(`"contained":[{"resourceType":"Organization","id":"o","active":true}],"performer":[{"reference":"#o"}]`), bad, "org-1", "contained[0]"},
		{"Observation", obs(`"contained":[{"resourceType":"Organization","id":"o","name":"x","address":[{"use":"home"}]}],"performer":[{"reference":"#o"}]`), bad, "org-2", "contained[0]"},
		{"Observation", obs(`"contained":[{"resourceType":"Organization","id":"o","name":"x","telecom":[{"use":"home"}]}],"performer":[{"reference":"#o"}]`), bad, "org-3", "contained[0]"},
	}
	tried := map[string]bool{}
	for i, c := range cases {
		_, err := p.Validate([]byte(c.text), checkFor(c.resourceType))
		var e *record.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Rule != c.rule || !strings.Contains(e.Field, c.field) {
			t.Errorf("case %d: got %v; want %s [%s] at %s\n%s", i, err, c.code, c.rule, c.field, c.text)
		}
		tried[c.rule] = true
	}
	for typeName, list := range rules() {
		for _, r := range list {
			if !tried[r.name] {
				t.Errorf("%s of %s is broken by no case", r.name, typeName)
			}
		}
	}
}

func TestLab(t *testing.T) {
	p := load(t)
	check := checkFor("Observation")
	check.Lab = true
	if _, err := p.Validate([]byte(build("Observation", "")), check); !errors.Is(err, record.InvalidLabCategory) {
		t.Errorf("no category: %v", err)
	}
	for text, want := range map[string]record.Code{
		`"category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"laboratory"}]}]`:  "",
		`"category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"vital-signs"}]}]`: record.InvalidLabCategory,
		`"category":[{"coding":[{"system":"http://x","code":"laboratory"}]}]`:                                                    record.InvalidLabCategory,
	} {
		if _, err := p.Validate([]byte(build("Observation", text)), check); record.CodeOf(err) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Of several faults the first in the protocol's order is named.
func TestOrderOfFaults(t *testing.T) {
	p := load(t)
	text := `{"resourceType":"Observation","id":"x","status":"done","subject":{"reference":"Patient/other"},"method":{}}`
	for _, step := range []struct {
		code     record.Code
		old, new string
	}{
		{record.InvalidResourceID, `"id":"x",`, ``},
		{record.InvalidResourceCode, `"status"`, `"code":{"text":"x"},"status"`},
		{record.InvalidResourceStatus, `done`, `final`},
		{record.WrongResourcePatient, `other`, patientID},
		{record.InvalidResource, `,"method":{}`, ``},
		{"", "", ""},
	} {
		if _, err := p.Validate([]byte(text), checkFor("Observation")); record.CodeOf(err) != step.code {
			t.Fatalf("got %v, want %s", err, step.code)
		}
		text = strings.Replace(text, step.old, step.new, 1)
	}
}

func TestReferencesAndIndex(t *testing.T) {
	p := load(t)
	r, err := p.Validate([]byte(build("Observation", `"identifier":[{"system":"http://x","value":"7"}],"category":[{"coding":[{"system":"s","code":"c"},{"code":"d"}]}],
		"effectiveDateTime":"2020-05-01T10:00:00+02:00","hasMember":[{"reference":"Observation/a/_history/2"}],"derivedFrom":[{"reference":"DocumentReference/d"}]`)), checkFor("Observation"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "[{Observation.derivedFrom[0] DocumentReference d} {Observation.hasMember[0] Observation a}]"; fmt.Sprint(r.References) != want {
		t.Errorf("references %v", r.References)
	}
	for _, want := range []Token{{"identifier", "http://x", "7"}, {"code", "http://loinc.org", "718-7"}, {"category", "s", "c"}, {"category", "", "d"}, {"status", "", "final"}} {
		if !slices.Contains(r.Index.Tokens, want) {
			t.Errorf("no token %v in %v", want, r.Index.Tokens)
		}
	}
	if len(r.Index.Dates) != 1 || r.Index.Dates[0] != (DateRange{"date", 1588320000000, 1588320001000}) {
		t.Errorf("dates %v", r.Index.Dates)
	}
}

func TestInterval(t *testing.T) {
	for text, width := range map[string]int64{"2020": 366 * 86400000, "2021-02": 28 * 86400000, "2021-02-28": 86400000, "2021-02-28T00:00:00Z": 1000, "2021-02-28T00:00:00.5-05:00": 1} {
		if from, to, ok := Interval(text); !ok || to-from != width {
			t.Errorf("%s: %d %v", text, to-from, ok)
		}
	}
	for _, text := range []string{"", "20", "2021-02-29", "2021-2-1", "2021-02-28T00:00:00", "x", strings.Repeat("1", 50)} {
		if _, _, ok := Interval(text); ok {
			t.Errorf("%q passes", text)
		}
	}
}

func FuzzValidate(f *testing.F) {
	p := load(f)
	for name := range base {
		f.Add(name, []byte(build(name, "")))
	}
	f.Add("Observation", []byte(build("Observation", `"contained":[{"resourceType":"Specimen","id":"s","subject":{"reference":"Patient/other"}}],"_status":{"extension":[]}`)))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		r, err := p.Validate(data, checkFor(name))
		var e *record.Error
		if err != nil && (!errors.As(err, &e) || e.Status() >= 500) {
			t.Fatalf("not a refusal: %v", err)
		}
		if err == nil && name != "Patient" && !strings.Contains(string(data), patientID) && !strings.Contains(string(data), `\u`) {
			t.Fatalf("%v passed without its patient", r)
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	p := load(b)
	data := []byte(build("Observation", `"category":[{"coding":[{"system":"s","code":"c"}]}],"effectiveDateTime":"2020-05-01","valueQuantity":{"value":1.10,"unit":"g/dL","system":"http://unitsofmeasure.org","code":"g/dL"}`))
	for b.Loop() {
		if _, err := p.Validate(data, checkFor("Observation")); err != nil {
			b.Fatal(err)
		}
	}
}
