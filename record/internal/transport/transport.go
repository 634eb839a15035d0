// Package transport has the HTTP transport of those who write to Hosts.
package transport

import "net/http"

// New returns a transport that speaks HTTP/1.1 and keeps up to 64 connections to
// each Host, which costs both sides less than HTTP/2. It is the caller's own.
func New() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return t
}
