package profile

import (
	"strings"
)

// Token is one coded value of a resource under a search parameter.
type Token struct {
	Param  string
	System string
	Value  string
}

// DateRange is the time that a resource covers under a search parameter, in
// milliseconds since 1970, from inclusive, to exclusive.
type DateRange struct {
	Param    string
	From, To int64
}

// Index has what searches compare.
type Index struct {
	Tokens []Token
	Dates  []DateRange
}

// param says where a search parameter's values stand: element names, or the
// stem of a choice.
type param struct {
	name     string
	elements []string
}

// tokenParams and dateParams are R4's search parameters for the profile's
// types, as far as a record offers them. Beside R4's own name a type answers
// to code, category, status and date wherever it has something of the kind.
var (
	tokenParams = map[string][]param{
		"Patient":             {{"identifier", []string{"identifier"}}, {"gender", []string{"gender"}}},
		"Observation":         {{"identifier", []string{"identifier"}}, {"code", []string{"code"}}, {"category", []string{"category"}}, {"status", []string{"status"}}},
		"Condition":           {{"identifier", []string{"identifier"}}, {"code", []string{"code"}}, {"category", []string{"category"}}, {"clinical-status", []string{"clinicalStatus"}}, {"status", []string{"clinicalStatus"}}},
		"AllergyIntolerance":  {{"identifier", []string{"identifier"}}, {"code", []string{"code"}}, {"category", []string{"category"}}, {"clinical-status", []string{"clinicalStatus"}}, {"status", []string{"clinicalStatus"}}},
		"MedicationStatement": {{"identifier", []string{"identifier"}}, {"code", []string{"medicationCodeableConcept"}}, {"category", []string{"category"}}, {"status", []string{"status"}}},
		"MedicationRequest":   {{"identifier", []string{"identifier"}}, {"code", []string{"medicationCodeableConcept"}}, {"category", []string{"category"}}, {"status", []string{"status"}}, {"intent", []string{"intent"}}},
		"Immunization":        {{"identifier", []string{"identifier"}}, {"vaccine-code", []string{"vaccineCode"}}, {"code", []string{"vaccineCode"}}, {"status", []string{"status"}}},
		"Procedure":           {{"identifier", []string{"identifier"}}, {"code", []string{"code"}}, {"category", []string{"category"}}, {"status", []string{"status"}}},
		"DiagnosticReport":    {{"identifier", []string{"identifier"}}, {"code", []string{"code"}}, {"category", []string{"category"}}, {"status", []string{"status"}}},
		"DocumentReference":   {{"identifier", []string{"identifier", "masterIdentifier"}}, {"type", []string{"type"}}, {"code", []string{"type"}}, {"category", []string{"category"}}, {"status", []string{"status"}}},
	}
	dateParams = map[string][]param{
		"Patient":             {{"birthdate", []string{"birthDate"}}},
		"Observation":         {{"date", []string{"effective"}}},
		"Condition":           {{"onset-date", []string{"onset"}}, {"recorded-date", []string{"recordedDate"}}, {"date", []string{"recordedDate"}}},
		"AllergyIntolerance":  {{"date", []string{"recordedDate"}}},
		"MedicationStatement": {{"effective", []string{"effective"}}, {"date", []string{"effective"}}},
		"MedicationRequest":   {{"authoredon", []string{"authoredOn"}}, {"date", []string{"authoredOn"}}},
		"Immunization":        {{"date", []string{"occurrence"}}},
		"Procedure":           {{"date", []string{"performed"}}},
		"DiagnosticReport":    {{"date", []string{"effective"}}},
		"DocumentReference":   {{"date", []string{"date"}}},
	}
)

// TokenParams and DateParams return the search parameters of a type by kind,
// for a Host's CapabilityStatement and its parser of searches.
func TokenParams(resourceType string) []string { return names(tokenParams[resourceType]) }

// DateParams returns the type's search parameters that compare dates.
func DateParams(resourceType string) []string { return names(dateParams[resourceType]) }

func names(params []param) []string {
	result := make([]string, len(params))
	for i, p := range params {
		result[i] = p.name
	}
	return result
}

// index gathers a valid resource's values.
func index(resourceType string, root object) Index {
	var ix Index
	for _, p := range tokenParams[resourceType] {
		for _, name := range p.elements {
			ix.addTokens(p.name, root[name])
		}
	}
	for _, p := range dateParams[resourceType] {
		for _, name := range p.elements {
			for _, key := range []string{name, name + "DateTime", name + "Instant", name + "Period"} {
				if from, to, ok := dateValue(root[key]); ok {
					ix.Dates = append(ix.Dates, DateRange{p.name, from, to})
				}
			}
		}
	}
	return ix
}

// addTokens adds the codes of a code, Coding, CodeableConcept or Identifier, or
// of an array of them, each once.
func (ix *Index) addTokens(name string, v any) {
	switch v := v.(type) {
	case string:
		ix.add(Token{name, "", v})
	case []any:
		for _, item := range v {
			ix.addTokens(name, item)
		}
	case object:
		system, _ := v["system"].(string)
		if value, ok := v["value"].(string); ok { // Identifier
			ix.add(Token{name, system, value})
		}
		if code, ok := v["code"].(string); ok { // Coding
			ix.add(Token{name, system, code})
		}
		if coding, ok := v["coding"]; ok { // CodeableConcept
			ix.addTokens(name, coding)
		}
	}
}

// add keeps tokens distinct and bounded in length: an index row is no place
// for a text of any size.
func (ix *Index) add(t Token) {
	if t.Value == "" || len(t.Value) > 256 || len(t.System) > 256 || strings.ContainsRune(t.Value, 0) || strings.ContainsRune(t.System, 0) {
		return
	}
	for _, have := range ix.Tokens {
		if have == t {
			return
		}
	}
	ix.Tokens = append(ix.Tokens, t)
}

// dateValue reads a date, dateTime, instant or Period.
func dateValue(v any) (from, to int64, ok bool) {
	switch v := v.(type) {
	case string:
		return interval(v)
	case object:
		from, to = minInterval, maxInterval
		start, hasStart := v["start"].(string)
		if hasStart {
			if from, _, ok = interval(start); !ok {
				return 0, 0, false
			}
		}
		end, hasEnd := v["end"].(string)
		if hasEnd {
			if _, to, ok = interval(end); !ok {
				return 0, 0, false
			}
		}
		return from, to, hasStart || hasEnd
	}
	return 0, 0, false
}
