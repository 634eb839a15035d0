package pgtest

import (
	"io"
	"net"
	"net/url"
	"testing"
)

// Proxy answers a DSN that leads to the same database over a way of the test's own. What the client sends is passed on as it
// comes; answers passes on, for one connection, what the server says, and the connection ends when it returns. The way is closed
// to new connections when t ends.
func Proxy(t testing.TB, dsn string, answers func(client io.Writer, server io.Reader)) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	server := u.Host
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				up, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer up.Close()
				go func() {
					io.Copy(up, client)
					up.Close()
				}()
				answers(client, up)
			}()
		}
	}()
	u.Host = listener.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return u.String()
}
