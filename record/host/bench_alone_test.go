package host

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
)

// BenchmarkHostAlone measures what the Host takes, without the clients: the
// bytes of each request, with its proof, are made before the clock starts, go
// through real TLS, and of the answer only the status is looked at.
// BenchmarkWrite and BenchmarkRead have both ends.
func BenchmarkHostAlone(b *testing.B) {
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		for _, clients := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/clients=%d", map[string]string{http.MethodPost: "write", http.MethodGet: "read"}[method], clients), func(b *testing.B) {
				g := newBench(b, clients)
				requests := make([][]byte, b.N)
				var made sync.WaitGroup
				for c := range clients {
					made.Go(func() {
						for i := c; i < b.N; i += clients {
							requests[i] = g.raw(b, c, method)
						}
					})
				}
				made.Wait()
				var conns []*tls.Conn
				for range clients {
					conns = append(conns, g.dial(b))
				}
				b.ResetTimer()
				before := cpuTime()
				var next atomic.Int64
				var all sync.WaitGroup
				for _, conn := range conns {
					all.Go(func() {
						answers := bufio.NewReader(conn)
						for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
							_, err := conn.Write(requests[i])
							if err == nil {
								err = readSuccess(answers)
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-us/op")
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per-s")
			})
		}
	}
}

// raw makes the bytes of a request of the client of the given number.
func (g *benchRig) raw(b *testing.B, client int, method string) []byte {
	key, now := g.keys[client], time.Now()
	path, body := "/fhir/Patient/"+g.record, []byte(nil)
	if method == http.MethodPost {
		path, body = "/fhir/Observation", g.intent().Resource
	}
	token := g.tokens[client]
	proof, err := record.NewProof(key, record.ProofParams{Method: method, URL: g.host.config.URL + path, AccessToken: token, Nonce: g.host.nonces.New(now)})
	if err != nil {
		b.Error(err)
	}
	r, err := http.NewRequest(method, g.host.config.URL+path, bytes.NewReader(body))
	if err != nil {
		b.Error(err)
		return nil
	}
	r.Header = http.Header{"Authorization": {"DPoP " + token}, "Dpop": {proof}, "Accept": {"application/fhir+json"}}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/fhir+json")
		r.Header.Set("Content-Digest", record.ContentDigest(body))
		r.Header.Set("Idempotency-Key", `"`+record.NewID()+`"`)
	}
	var raw bytes.Buffer
	if err := r.Write(&raw); err != nil {
		b.Error(err)
	}
	return raw.Bytes()
}

func (g *benchRig) dial(b *testing.B) *tls.Conn {
	b.Helper()
	u, err := url.Parse(g.host.config.URL)
	if err != nil {
		b.Fatal(err)
	}
	conn, err := tls.Dial("tcp", u.Host, g.tls)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return conn
}

// readSuccess reads one answer (RFC 9112) and looks at its status alone.
func readSuccess(r *bufio.Reader) error {
	length := -1
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 20")) {
			return errors.New(string(line))
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		}
		if len(line) > 0 {
			continue
		}
		if length < 0 {
			return errors.New("an answer without its length")
		}
		_, err = r.Discard(length)
		return err
	}
}

// token makes an access token as the Host's token endpoint does.
func (g *benchRig) token(b *testing.B, key *record.Key, grant string) string {
	b.Helper()
	now := time.Now().Unix()
	token, err := record.NewToken(g.host.config.Key, record.Token{Issuer: g.host.config.URL, Subject: key.ID(), Client: key.ID(), ID: record.NewID(), Scope: "patient/*.cruds",
		Record: g.record, Grant: grant, Confirmation: record.Confirmation{Thumbprint: key.Public().Thumbprint()}, IssuedAt: now, Expires: now + 600}, g.host.fhirBase())
	if err != nil {
		b.Fatal(err)
	}
	return token
}
