package host

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
)

// benchRig is a Host over loopback TLS on SQLite with synchronous=FULL, and
// clients with keys of their own.
type benchRig struct {
	host    *Host
	record  string
	clients []*client.Client
	keys    []*record.Key // of the clients
	tokens  []string      // likewise, beside those that they get themselves
	tls     *tls.Config
}

func newBench(b *testing.B, clients int) *benchRig {
	b.Helper()
	ctx := context.Background()
	room := make([]byte, 32<<20) // as the command `holdfast host` does
	b.Cleanup(func() { runtime.KeepAlive(room) })
	var host *Host
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	b.Cleanup(server.Close)
	host, err := Open(ctx, Config{URL: server.URL, Database: filepath.Join(b.TempDir(), "h.db"), Key: record.NewKey(), Rate: -1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { host.Close() })
	server.Config.Handler = host.Handler()
	made, err := host.CreateRecord(ctx, NewRecord{})
	if err != nil {
		b.Fatal(err)
	}
	g := &benchRig{host: host, record: made.ID, tls: server.Client().Transport.(*http.Transport).TLSClientConfig}
	ref := host.Ref()
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = clients
	b.Cleanup(transport.CloseIdleConnections)
	for range clients {
		key := record.NewKey()
		grant, err := host.Grant(ctx, Grant{Record: g.record, Client: key.ID(), Scope: "patient/*.cruds"})
		if err != nil {
			b.Fatal(err)
		}
		g.keys, g.tokens = append(g.keys, key), append(g.tokens, g.token(b, key, grant))
		k, err := client.New(client.Config{Key: key, Host: &ref, HTTP: &http.Client{Transport: transport}})
		if err != nil {
			b.Fatal(err)
		}
		g.clients = append(g.clients, k)
		if _, err := k.Read(ctx, g.record, "Patient", g.record); err != nil {
			b.Fatal(err)
		}
	}
	return g
}

// each runs work n times over all clients and reports the 99th percentile, and
// what Host and clients together used of the processors: the one number that
// does not depend on what else the machine does.
func (g *benchRig) each(b *testing.B, n int, work func(k *client.Client) error) {
	b.Helper()
	var wg sync.WaitGroup
	jobs := make(chan int)
	times := make([]time.Duration, n)
	before := cpuTime()
	for _, k := range g.clients {
		wg.Go(func() {
			for i := range jobs {
				start := time.Now()
				if err := work(k); err != nil {
					b.Error(err)
				}
				times[i] = time.Since(start)
			}
		})
	}
	quarter := 0.0
	for i := range n {
		jobs <- i
		if i == n/4 {
			quarter, _ = g.heap()
		}
	}
	close(jobs)
	wg.Wait()
	b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(n), "cpu-us/op")
	if n >= 10_000 { // what stays in memory after so many, and after four times as many
		end, proofs := g.heap()
		b.ReportMetric(quarter, "MB-at-1/4")
		b.ReportMetric(end, "MB-at-end")
		b.ReportMetric(proofs, "MB-of-proofs")
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[n*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "per-s")
}

// heap collects, and tells what is in use: without the used proofs of the last
// minutes, which are as many as the Host is fast, and those alone. It drops them.
func (g *benchRig) heap() (others, proofs float64) {
	runtime.GC()
	all := liveHeap()
	s := g.host.proofs
	s.mu.Lock()
	s.old, s.new = map[[16]byte]struct{}{}, map[[16]byte]struct{}{}
	s.mu.Unlock()
	runtime.GC()
	others = liveHeap()
	return others, all - others
}

// liveHeap is what the last collection has found in use, in MB, with the 32 that
// are never touched.
func liveHeap() float64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return float64(sample[0].Value.Uint64()) / (1 << 20)
}

func (g *benchRig) intent() record.Intent {
	return record.Intent{Operation: record.CreateResource, Patient: g.record, OperationID: record.NewID(), Resource: []byte(`{"resourceType":"Observation","status":"final",
"category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"laboratory"}]}],"code":{"coding":[{"system":"http://loinc.org","code":"718-7"}]},
"subject":{"reference":"Patient/` + g.record + `"},"effectiveDateTime":"2020-05-01","valueQuantity":{"value":1.10,"unit":"g/dL","system":"http://unitsofmeasure.org","code":"g/dL"}}`)}
}

func BenchmarkWrite(b *testing.B) {
	for _, clients := range []int{1, 32} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			g := newBench(b, clients)
			b.ResetTimer()
			g.each(b, b.N, func(k *client.Client) error {
				_, err := k.Write(context.Background(), g.intent())
				return err
			})
		})
	}
}

func BenchmarkRead(b *testing.B) {
	g := newBench(b, 32)
	b.ResetTimer()
	g.each(b, b.N, func(k *client.Client) error {
		_, err := k.Read(context.Background(), g.record, "Patient", g.record)
		return err
	})
}

// BenchmarkSearch searches by patient and category in a record of 100,000
// resources.
func BenchmarkSearch(b *testing.B) {
	g := newBench(b, 1)
	ctx := context.Background()
	fill(b, g.host, g.record, 100_000)
	b.ResetTimer()
	g.each(b, b.N, func(k *client.Client) error {
		n := 0
		for _, err := range k.Search(ctx, g.record, "Observation", map[string][]string{"patient": {g.record}, "category": {"laboratory"}, "_count": {"20"}}) {
			if err != nil {
				return err
			}
			if n++; n == 20 {
				break
			}
		}
		return nil
	})
}

// BenchmarkMove moves a record of b.N versions: -benchtime 100000x.
func BenchmarkMove(b *testing.B) {
	peak := manyVersions(b, max(b.N, 2), b.ResetTimer)
	b.StopTimer()
	b.ReportMetric(peak, "peak-MB")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "versions/s")
}
