package serve

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRunAndStop(t *testing.T) {
	dir := t.TempDir()
	cert, err := Certificate(dir, []string{"127.0.0.1", "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Certificate(dir, nil)
	if err != nil || !again.Leaf.Equal(cert.Leaf) {
		t.Fatalf("another certificate was made: %v", err)
	}
	entered, leave := make(chan bool), make(chan bool)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	address, ended := make(chan net.Addr, 1), make(chan error, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- Run(ctx, Options{Listener: listener, Certificate: cert, Started: func(a net.Addr) { address <- a },
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(entered)
				<-leave
				io.WriteString(w, "done")
			})})
	}()
	client, err := TrustingClient(filepath.Join(dir, "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		answer, err := client.Get("https://" + (<-address).String() + "/")
		if err != nil {
			got <- err.Error()
			return
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		got <- string(body)
	}()
	<-entered
	cancel() // a stop lets the running request end
	close(leave)
	if text := <-got; text != "done" {
		t.Errorf("the running request got %q", text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Requests at the same time have a connection each, over HTTP/1.1, and those
// that follow use them again.
func TestTrustingClientKeepsItsConnections(t *testing.T) {
	const many = 16
	dir := t.TempDir()
	cert, err := Certificate(dir, []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	var together sync.WaitGroup // each request waits for the others of its round
	ctx, cancel := context.WithCancel(context.Background())
	address, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Addr: "127.0.0.1:0", Certificate: cert, Started: func(a net.Addr) { address <- a },
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				together.Done()
				together.Wait()
				io.WriteString(w, r.Proto+" "+r.RemoteAddr)
			})})
	}()
	client, err := TrustingClient(filepath.Join(dir, "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	at := "https://" + (<-address).String() + "/"
	var mu sync.Mutex
	seen := map[string]int{}
	for range 3 {
		together.Add(many)
		var round sync.WaitGroup
		for range many {
			round.Go(func() {
				answer, err := client.Get(at)
				if err != nil {
					t.Error(err)
					return
				}
				body, _ := io.ReadAll(answer.Body)
				answer.Body.Close()
				mu.Lock()
				defer mu.Unlock()
				seen[string(body)]++
			})
		}
		round.Wait()
	}
	if len(seen) != many {
		t.Errorf("%d connections for %d requests at once: %v", len(seen), many, seen)
	}
	for connection := range seen {
		if !strings.HasPrefix(connection, "HTTP/1.1 ") {
			t.Errorf("it speaks %s", connection)
		}
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestGraceEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	address, ended, entered, done := make(chan net.Addr, 1), make(chan error, 1), make(chan bool), make(chan bool)
	go func() {
		ended <- Run(ctx, Options{Addr: "127.0.0.1:0", Grace: 50 * time.Millisecond, Started: func(a net.Addr) { address <- a },
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(entered)
				<-r.Context().Done()
				close(done)
			})})
	}()
	go http.Get("http://" + (<-address).String() + "/")
	<-entered
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("%v", err)
	}
	<-done
}

func TestRefusals(t *testing.T) {
	if err := Run(context.Background(), Options{Addr: "127.0.0.1:-1"}); err == nil {
		t.Error("listened on no port")
	}
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "tls.crt"), []byte("x"), 0o600)
	os.WriteFile(filepath.Join(dir, "tls.key"), []byte("x"), 0o600)
	if _, err := Certificate(dir, nil); err == nil {
		t.Error("a damaged certificate was replaced")
	}
	if _, err := TrustingClient(filepath.Join(dir, "tls.crt")); err == nil {
		t.Error("no certificate was taken for one")
	}
}
