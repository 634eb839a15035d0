package service

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/eda94727/holdfast/record"
)

// maxPublication bounds the body of a publication.
const maxPublication = 32 << 10

// Handler serves the Directory under its URL's path:
//
//	GET  …/records/{id}             the newest document (application/jose or application/jose+json)
//	POST …/records/{id}             a publication; 201 and the new document
//	GET  …/records/{id}/log?after=N the documents above generation N, as a JSON array
//	GET  …/keys                     the quorum, for somebody who pins it by hand
//	GET  …/healthz, …/readyz
//
// Errors are problem details (RFC 9457) with a member code.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /records/{id}", s.getDocument)
	mux.HandleFunc("POST /records/{id}", s.postPublication)
	mux.HandleFunc("GET /records/{id}/log", s.getLog)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, s.Pin())
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.Ready(r.Context()); err != nil {
			s.fail(w, r, &record.Error{Code: record.HostUnavailable, Detail: "the database does not answer"})
			return
		}
		io.WriteString(w, "ok\n")
	})
	return http.StripPrefix(strings.TrimSuffix(s.base.Path, "/"), mux)
}

func (s *Service) getDocument(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !record.IsID(id) {
		s.fail(w, r, notFound())
		return
	}
	document, err := s.Document(r.Context(), id)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeDocument(w, http.StatusOK, document)
}

func (s *Service) getLog(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseInt(r.FormValue("after"), 10, 64)
	if r.FormValue("after") != "" && (err != nil || after < 0) {
		s.fail(w, r, invalid("after", "not a generation"))
		return
	}
	id := r.PathValue("id")
	if !record.IsID(id) {
		s.fail(w, r, notFound())
		return
	}
	documents, err := s.Log(r.Context(), id, after)
	if err == nil && len(documents) == 0 && after == 0 {
		err = notFound()
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	writeJSON(w, http.StatusOK, documents)
}

func (s *Service) postPublication(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPublication))
	if err != nil {
		s.fail(w, r, invalid("body", "a publication has at most 32 KiB"))
		return
	}
	p, _, err := record.VerifyPublication(string(body))
	if err == nil && p.Record != r.PathValue("id") {
		err = invalid("record_id", "the publication is for another record")
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	document, created, err := s.Publish(r.Context(), string(body))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		w.Header().Set("Location", s.Address(p.Record))
	}
	writeDocument(w, status, document)
}

func writeDocument(w http.ResponseWriter, status int, document string) {
	kind := "application/jose"
	if strings.HasPrefix(document, "{") {
		kind = "application/jose+json"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(status)
	io.WriteString(w, document)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(raw)
}

// fail answers with problem details. What is no protocol error is logged and
// not shown.
func (s *Service) fail(w http.ResponseWriter, r *http.Request, err error) {
	var e *record.Error
	if !errors.As(err, &e) {
		s.config.Log.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", err)
		e = &record.Error{Code: record.HostUnavailable, Detail: "the Directory cannot answer now"}
	}
	info, _ := e.Code.Info()
	raw, err := json.Marshal(struct {
		Type   string      `json:"type"`
		Title  string      `json:"title"`
		Status int         `json:"status"`
		Detail string      `json:"detail"`
		Code   record.Code `json:"code"`
	}{"about:blank", info.Meaning, e.Status(), e.Detail, e.Code}, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		raw = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	if e.Code == record.HostUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(e.Status())
	w.Write(raw)
}
