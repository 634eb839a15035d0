package host

import (
	"net/http"

	"github.com/eda94727/holdfast/record/profile"
)

// Version is the version that the CapabilityStatement names.
const Version = "1"

type capability struct {
	ResourceType string           `json:"resourceType"`
	Status       string           `json:"status"`
	Date         string           `json:"date"`
	Kind         string           `json:"kind"`
	Software     software         `json:"software"`
	Impl         implementation   `json:"implementation"`
	FHIRVersion  string           `json:"fhirVersion"`
	Format       []string         `json:"format"`
	PatchFormat  []string         `json:"patchFormat"`
	Rest         []capabilityRest `json:"rest"`
}

type software struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type implementation struct {
	Description string `json:"description"`
	URL         string `json:"url"`
}

type capabilityRest struct {
	Mode     string               `json:"mode"`
	Security capabilitySecurity   `json:"security"`
	Resource []capabilityResource `json:"resource"`
}

type capabilitySecurity struct {
	Service     []concept `json:"service"`
	Description string    `json:"description"`
}

type named struct {
	Code string `json:"code,omitzero"`
	Name string `json:"name,omitzero"`
	Type string `json:"type,omitzero"`
	Def  string `json:"definition,omitzero"`
}

type capabilityResource struct {
	Type              string   `json:"type"`
	Interaction       []named  `json:"interaction"`
	Versioning        string   `json:"versioning"`
	ReadHistory       bool     `json:"readHistory"`
	UpdateCreate      bool     `json:"updateCreate"`
	ConditionalCreate bool     `json:"conditionalCreate"`
	ReferencePolicy   []string `json:"referencePolicy"`
	SearchParam       []named  `json:"searchParam"`
	Operation         []named  `json:"operation,omitempty"`
}

// serveMetadata answers the CapabilityStatement, to anybody.
func (h *Host) serveMetadata(w http.ResponseWriter, r *http.Request) error {
	rest := capabilityRest{Mode: "server", Security: capabilitySecurity{
		Service:     []concept{{[]coding{{"http://terminology.hl7.org/CodeSystem/restful-security-service", "SMART-on-FHIR"}}, "SMART v2 scopes, client_credentials with private_key_jwt, tokens bound to the application's key by DPoP"}},
		Description: "Writes also carry Idempotency-Key and Content-Digest, and are answered with a signed Operation-Receipt.",
	}}
	for _, t := range profile.Types() {
		one := capabilityResource{Type: t, Versioning: "versioned-update", ReadHistory: true, ConditionalCreate: t != "Patient", ReferencePolicy: []string{"literal", "local", "logical"},
			SearchParam: []named{{Name: "_id", Type: "token"}, {Name: "_lastUpdated", Type: "date"}}}
		for _, code := range []string{"read", "vread", "history-instance", "search-type", "update"} {
			one.Interaction = append(one.Interaction, named{Code: code})
		}
		if t == "Patient" {
			one.Interaction = append(one.Interaction, named{Code: "patch"})
			one.Operation = []named{{Name: "everything", Def: "http://hl7.org/fhir/OperationDefinition/Patient-everything"}}
		} else {
			one.Interaction = append(one.Interaction, named{Code: "create"}, named{Code: "delete"})
			one.SearchParam = append(one.SearchParam, named{Name: "patient", Type: "reference"})
		}
		for _, name := range profile.TokenParams(t) {
			one.SearchParam = append(one.SearchParam, named{Name: name, Type: "token"})
		}
		for _, name := range profile.DateParams(t) {
			one.SearchParam = append(one.SearchParam, named{Name: name, Type: "date"})
		}
		rest.Resource = append(rest.Resource, one)
	}
	writeJSON(w, "application/fhir+json", http.StatusOK, capability{"CapabilityStatement", "active", "2026-01-01", "instance", software{"Holdfast", Version},
		implementation{"A Host of patients' records", h.fhirBase()}, "4.0.1", []string{"application/fhir+json"}, []string{"application/json-patch+json"}, []capabilityRest{rest}})
	return nil
}
