package client

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/eda94727/holdfast/record"
)

// A client without an HTTP client of the application's speaks HTTP/1.1 also to a
// Host that offers HTTP/2.
func TestOwnTransportSpeaksHTTP1(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	k, err := New(Config{Key: record.NewKey(), Host: &record.HostRef{ID: record.NewKey().ID(), FHIRBase: server.URL + "/fhir", Issuer: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	k.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	answer, err := k.http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if protocol, _ := io.ReadAll(answer.Body); string(protocol) != "HTTP/1.1" {
		t.Errorf("it speaks %s", protocol)
	}
}
