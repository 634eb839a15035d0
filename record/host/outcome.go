package host

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/eda94727/holdfast/record"
)

// CodeSystem is the coding system of the protocol's codes in OperationOutcome.
const CodeSystem = "urn:holdfast:record-code"

type coding struct {
	System string `json:"system"`
	Code   string `json:"code"`
}

type concept struct {
	Coding []coding `json:"coding"`
	Text   string   `json:"text"`
}

type issue struct {
	Severity    string   `json:"severity"`
	Code        string   `json:"code"`
	Details     concept  `json:"details"`
	Diagnostics string   `json:"diagnostics,omitzero"`
	Expression  []string `json:"expression,omitempty"`
}

type operationOutcome struct {
	ResourceType string  `json:"resourceType"`
	Issue        []issue `json:"issue"`
}

// protocolError finds the protocol's error in err. What is none is logged and
// becomes host_unavailable, without its text: it may hold anything.
func (h *Host) protocolError(r *http.Request, err error) *record.Error {
	var e *record.Error
	if errors.As(err, &e) {
		return e
	}
	if r.Context().Err() == nil || !errors.Is(err, context.Canceled) {
		h.config.Log.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	return &record.Error{Code: record.HostUnavailable, Detail: "the Host cannot answer now"}
}

// failHeaders sets what an error's status comes with.
func failHeaders(w http.ResponseWriter, e *record.Error) {
	header := w.Header()
	switch e.Status() {
	case http.StatusUnauthorized:
		name := "invalid_token"
		if e.Code == record.UseDPoPNonce {
			name = "use_dpop_nonce"
		}
		header.Set("WWW-Authenticate", `DPoP error="`+name+`", algs="EdDSA"`)
	case http.StatusForbidden:
		header.Set("WWW-Authenticate", `DPoP error="insufficient_scope", algs="EdDSA"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusConflict:
		header.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(e.RetryAfter.Seconds())))))
	case http.StatusMisdirectedRequest:
		if e.Address != "" {
			header.Set("Link", "<"+e.Address+`>; rel="describedby"`)
		}
	}
}

// failFHIR answers with an OperationOutcome.
func (h *Host) failFHIR(w http.ResponseWriter, r *http.Request, err error) {
	e := h.protocolError(r, err)
	info, _ := e.Code.Info()
	one := issue{Severity: "error", Code: info.Issue, Details: concept{[]coding{{CodeSystem, string(e.Code)}}, info.Meaning}, Diagnostics: e.Detail}
	if e.Rule != "" {
		one.Diagnostics = e.Rule + ": " + e.Detail
	}
	if e.Field != "" {
		one.Expression = []string{e.Field}
	}
	failHeaders(w, e)
	writeJSON(w, "application/fhir+json", e.Status(), operationOutcome{"OperationOutcome", []issue{one}})
}

// problem is an RFC 9457 problem with the protocol's code.
type problem struct {
	Type   string      `json:"type"`
	Title  string      `json:"title"`
	Status int         `json:"status"`
	Detail string      `json:"detail,omitzero"`
	Code   record.Code `json:"code"`
}

// failProblem answers with problem details.
func (h *Host) failProblem(w http.ResponseWriter, r *http.Request, err error) {
	e := h.protocolError(r, err)
	info, _ := e.Code.Info()
	failHeaders(w, e)
	writeJSON(w, "application/problem+json", e.Status(), problem{"about:blank", info.Meaning, e.Status(), e.Detail, e.Code})
}

func writeJSON(w http.ResponseWriter, kind string, status int, v any) {
	// An error may name what a client sent: bytes that are no text are replaced.
	raw, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	w.Write(raw)
}
