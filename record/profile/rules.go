package profile

import (
	"slices"
	"strings"
)

// rule is an error-level invariant of FHIR R4, under its name there. check
// returns "" or what is wrong. The invariants about contained resources
// (dom-2 to dom-5), references (ref-1) and empty elements (ele-1) are checked
// on the way through the resource.
type rule struct {
	name  string
	check func(w *walker, o object) string
}

// simple makes a rule that looks at nothing but the element itself.
func simple(name, why string, ok func(o object) bool) rule {
	return rule{name, func(_ *walker, o object) string {
		if ok(o) {
			return ""
		}
		return why
	}}
}

func has(o object, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return present(o, name) })
}

// hasChoice reports whether any type of a choice is there: value[x].
func hasChoice(o object, group string) bool {
	for name := range o {
		rest, ok := strings.CutPrefix(strings.TrimPrefix(name, "_"), group)
		if ok && rest != "" && rest[0] >= 'A' && rest[0] <= 'Z' {
			return true
		}
	}
	return false
}

// hasCode reports whether a concept has a coding of the system with one of the
// codes.
func hasCode(o object, concept, system string, codes ...string) bool {
	c, _ := o[concept].(object)
	return slices.ContainsFunc(items(c, "coding"), func(coding object) bool {
		code, _ := coding["code"].(string)
		return coding["system"] == system && slices.Contains(codes, code)
	})
}

const (
	ucum                = "http://unitsofmeasure.org"
	allergyVerification = "http://terminology.hl7.org/CodeSystem/allergyintolerance-verification"
	conditionClinical   = "http://terminology.hl7.org/CodeSystem/condition-clinical"
	conditionVerStatus  = "http://terminology.hl7.org/CodeSystem/condition-ver-status"
)

// quantityRules are the invariants that every kind of Quantity has.
func quantityRules(more ...rule) []rule {
	return append([]rule{simple("qty-3", "a unit's code needs its system", func(o object) bool { return !has(o, "code") || has(o, "system") })}, more...)
}

// unitRule wants a code where there is a value, and UCUM where there is a system.
func unitRule(name, why string, more func(o object) bool) rule {
	return simple(name, why, func(o object) bool {
		return (has(o, "code") || !has(o, "value")) && (!has(o, "system") || o["system"] == ucum) && (more == nil || more(o))
	})
}

// rules returns the invariants by the type of element that they stand on.
func rules() map[string][]rule {
	return map[string][]rule{
		"Extension": {simple("ext-1", "an extension has a value or extensions, not both and not neither", func(o object) bool {
			return has(o, "extension") != hasChoice(o, "value")
		})},
		"Quantity": quantityRules(),
		"Duration": quantityRules(simple("drt-1", "a duration with a code has a value and a UCUM unit", func(o object) bool {
			return !has(o, "code") || o["system"] == ucum && has(o, "value")
		})),
		"Distance": quantityRules(unitRule("dis-1", "a distance has a UCUM code of length", nil)),
		"Count": quantityRules(unitRule("cnt-3", "a count is a whole number with the UCUM code 1", func(o object) bool {
			n, _ := number(o, "value")
			return (!has(o, "code") || o["code"] == "1") && !strings.Contains(string(n), ".")
		})),
		"Age": quantityRules(unitRule("age-1", "an age has a UCUM code of time and is above zero", func(o object) bool {
			n, ok := number(o, "value")
			return !ok || sign(n) > 0
		})),
		"Ratio": {simple("rat-1", "a ratio has both numerator and denominator, or neither and an extension", func(o object) bool {
			if has(o, "numerator") != has(o, "denominator") {
				return false
			}
			return has(o, "numerator", "extension")
		})},
		"Range": {simple("rng-2", "low is above high", func(o object) bool {
			low, _ := o["low"].(object)
			high, _ := o["high"].(object)
			a, okA := number(low, "value")
			b, okB := number(high, "value")
			// Quantities of different units do not compare, and then the rule holds.
			return !okA || !okB || low["system"] != high["system"] || low["code"] != high["code"] || low["unit"] != high["unit"] || compareNumbers(a, b) <= 0
		})},
		"Period": {simple("per-1", "start is after end", func(o object) bool {
			start, _ := o["start"].(string)
			end, _ := o["end"].(string)
			from, _, okA := interval(start)
			_, to, okB := interval(end)
			return !okA || !okB || from < to
		})},
		"Timing.repeat": timingRules(),
		"TriggerDefinition": {
			simple("trd-1", "either timing or data, not both", func(o object) bool { return !has(o, "data") || !hasChoice(o, "timing") }),
			simple("trd-2", "a condition needs data", func(o object) bool { return !has(o, "condition") || has(o, "data") }),
			simple("trd-3", "a named event has a name, a periodic one a timing, a data event data", func(o object) bool {
				kind, _ := o["type"].(string)
				return (kind != "named-event" || has(o, "name")) && (kind != "periodic" || hasChoice(o, "timing")) && (!strings.HasPrefix(kind, "data-") || has(o, "data"))
			}),
		},
		"Expression":                 {simple("exp-1", "an expression or a reference is needed", func(o object) bool { return has(o, "expression", "reference") })},
		"DataRequirement.codeFilter": {simple("drq-1", "either path or searchParam", func(o object) bool { return has(o, "path") != has(o, "searchParam") })},
		"DataRequirement.dateFilter": {simple("drq-2", "either path or searchParam", func(o object) bool { return has(o, "path") != has(o, "searchParam") })},
		"Attachment": {
			simple("att-1", "data needs a contentType", func(o object) bool { return !has(o, "data") || has(o, "contentType") }),
			simple("attachment url", "a url is absolute: a record holds no files beside its resources", func(o object) bool {
				text, ok := o["url"].(string)
				return !ok || isAbsolute(text)
			}),
		},
		"ContactPoint": {simple("cpt-2", "a value needs a system", func(o object) bool { return !has(o, "value") || has(o, "system") })},
		"Narrative": {{"txt-1", func(_ *walker, o object) string {
			text, _ := o["div"].(string)
			return checkNarrative(text)
		}}},
		"Immunization.education": {simple("imm-1", "documentType or reference is needed", func(o object) bool { return has(o, "documentType", "reference") })},
		"AllergyIntolerance": {
			simple("ait-1", "clinicalStatus is needed, unless verificationStatus is entered-in-error", func(o object) bool {
				return hasCode(o, "verificationStatus", allergyVerification, "entered-in-error") || has(o, "clinicalStatus")
			}),
			simple("ait-2", "clinicalStatus must not be there when verificationStatus is entered-in-error", func(o object) bool {
				return !hasCode(o, "verificationStatus", allergyVerification, "entered-in-error") || !has(o, "clinicalStatus")
			}),
		},
		"Condition": {
			simple("con-4", "an abated condition has the clinicalStatus inactive, resolved or remission", func(o object) bool {
				return !hasChoice(o, "abatement") || hasCode(o, "clinicalStatus", conditionClinical, "resolved", "remission", "inactive")
			}),
			simple("con-5", "clinicalStatus must not be there when verificationStatus is entered-in-error", func(o object) bool {
				return !hasCode(o, "verificationStatus", conditionVerStatus, "entered-in-error") || !has(o, "clinicalStatus")
			}),
		},
		"Condition.stage":    {simple("con-1", "a stage has a summary or an assessment", func(o object) bool { return has(o, "summary", "assessment") })},
		"Condition.evidence": {simple("con-2", "evidence has a code or details", func(o object) bool { return has(o, "code", "detail") })},
		"Observation": {
			simple("obs-6", "dataAbsentReason must not be there beside a value", func(o object) bool { return !has(o, "dataAbsentReason") || !hasChoice(o, "value") }),
			simple("obs-7", "a value must not be there when a component has the observation's own code", func(o object) bool {
				return !hasChoice(o, "value") || !componentRepeatsCode(o)
			}),
		},
		"Observation.referenceRange": {simple("obs-3", "a low, a high or a text is needed", func(o object) bool { return has(o, "low", "high", "text") })},
		"Patient.contact":            {simple("pat-1", "a contact has a name, telecom, address or organization", func(o object) bool { return has(o, "name", "telecom", "address", "organization") })},
		"Organization": {
			simple("org-1", "an identifier or a name is needed", func(o object) bool { return has(o, "identifier", "name") }),
			simple("org-2", "an organization's address is not of use home", func(o object) bool { return !hasUse(o, "address", "home") }),
			simple("org-3", "an organization's telecom is not of use home", func(o object) bool { return !hasUse(o, "telecom", "home") }),
		},
	}
}

func hasUse(o object, name, use string) bool {
	return slices.ContainsFunc(items(o, name), func(item object) bool { return item["use"] == use })
}

// componentRepeatsCode reports whether a component has a coding of the
// observation's code.
func componentRepeatsCode(o object) bool {
	code, _ := o["code"].(object)
	for _, component := range items(o, "component") {
		inner, _ := component["code"].(object)
		for _, a := range items(inner, "coding") {
			for _, b := range items(code, "coding") {
				if a["code"] != nil && a["code"] == b["code"] && a["system"] == b["system"] {
					return true
				}
			}
		}
	}
	return false
}

func timingRules() []rule {
	needs := func(name, one, other string) rule {
		return simple(name, one+" needs "+other, func(o object) bool { return !has(o, one) || has(o, other) })
	}
	notNegative := func(name, field string) rule {
		return simple(name, field+" is below zero", func(o object) bool {
			n, ok := number(o, field)
			return !ok || sign(n) >= 0
		})
	}
	return []rule{
		needs("tim-1", "duration", "durationUnit"), needs("tim-2", "period", "periodUnit"),
		notNegative("tim-4", "duration"), notNegative("tim-5", "period"),
		needs("tim-6", "periodMax", "period"), needs("tim-7", "durationMax", "duration"), needs("tim-8", "countMax", "count"),
		simple("tim-9", "an offset needs a when, and none of C, CM, CD, CV", func(o object) bool {
			if !has(o, "offset") {
				return true
			}
			whens, _ := o["when"].([]any)
			return len(whens) > 0 && !slices.ContainsFunc(whens, func(v any) bool { return v == "C" || v == "CM" || v == "CD" || v == "CV" })
		}),
		simple("tim-10", "either timeOfDay or when", func(o object) bool { return !has(o, "timeOfDay") || !has(o, "when") }),
	}
}
