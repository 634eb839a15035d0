package directory

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/eda94727/holdfast/record"
)

// What a Directory may answer: none of it is a document.
func TestClientAnswers(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"redirect":     func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"large":        func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, maxDocumentAnswer+1)) },
		"error":        func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) },
		"unknown code": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(400); w.Write([]byte(`{"code":"x"}`)) },
		"closed":       func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
		"half an answer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("x"))
		},
	}
	for name, handler := range answers {
		server := httptest.NewServer(handler)
		defer server.Close()
		if _, err := (Client{}).Document(context.Background(), server.URL); !errors.Is(err, record.TransportUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(`{"a":1}`)) }))
	defer server.Close()
	if _, err := (Client{}).Log(context.Background(), server.URL, 0, 2); !errors.Is(err, record.TransportUnavailable) {
		t.Errorf("a log that is none: %v", err)
	}
}
