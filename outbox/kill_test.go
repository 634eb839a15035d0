package outbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/host"
	"github.com/eda94727/holdfast/record/serve"
)

// served is a Host in a process of its own.
type served struct {
	Dir, Addr string
	// Die is when it kills itself, once in its life: "before" or "after" a commit.
	Die string
}

func (s served) config() (host.Config, error) {
	config, err := host.InDir(s.Dir)
	config.URL, config.Rate = "http://"+s.Addr, -1
	return config, err
}

// dieOnce kills the process, unless it has been here before.
func (s served) dieOnce() {
	mark, err := os.OpenFile(filepath.Join(s.Dir, "died"), os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		mark.Close()
		die()
	}
}

// Validate is called while the Host works on a write, before its transaction.
func (s served) Validate(context.Context, host.Validation) error { s.dieOnce(); return nil }

func (s served) run(ctx context.Context) error {
	config, err := s.config()
	if err != nil {
		return err
	}
	if s.Die == "before" {
		config.Validator = s
	}
	h, err := host.Open(ctx, config)
	if err != nil {
		return err
	}
	handler := h.Handler()
	if s.Die == "after" {
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := httptest.NewRecorder()
			h.Handler().ServeHTTP(answer, r)
			if answer.Header().Get("Operation-Receipt") != "" {
				s.dieOnce()
			}
			for name, values := range answer.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(answer.Code)
			w.Write(answer.Body.Bytes())
		})
	}
	return serve.Run(ctx, serve.Options{Addr: s.Addr, Handler: handler, Started: func(net.Addr) { fmt.Println("open") }})
}

// server is a Host's process, to be killed.
type server struct {
	t     testing.TB
	child served
	key   *record.Key // of the application
	cmd   *exec.Cmd
}

func newServed(t testing.TB) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return &server{t: t, child: served{Dir: t.TempDir(), Addr: l.Addr().String()}, key: record.NewKey()}
}

// admin works on the Host's database while its process is not running.
func (s *server) admin(do func(h *host.Host)) {
	s.t.Helper()
	config, err := s.child.config()
	must(s.t, err)
	h, err := host.Open(context.Background(), config)
	must(s.t, err)
	do(h)
	must(s.t, h.Close())
}

func (s *server) patient(t testing.TB) (id string) {
	t.Helper()
	s.admin(func(h *host.Host) {
		made, err := h.CreateRecord(context.Background(), host.NewRecord{})
		must(t, err)
		_, err = h.Grant(context.Background(), host.Grant{Record: made.ID, Client: s.key.ID(), Scope: "patient/*.cruds"})
		must(t, err)
		id = made.ID
	})
	return id
}

func (s *server) ref() (ref record.HostRef) {
	s.admin(func(h *host.Host) { ref = h.Ref() })
	return ref
}

func (s *server) client(t testing.TB) *client.Client {
	t.Helper()
	config, err := s.child.config()
	must(t, err)
	ref := record.HostRef{ID: config.Key.ID(), FHIRBase: config.URL + "/fhir", Issuer: config.URL}
	k, err := client.New(client.Config{Key: s.key, Host: &ref})
	must(t, err)
	t.Cleanup(k.Close)
	return k
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = startChild(s.t, child{Serve: &s.child}, nil)
}

// dead waits for the process's end.
func (s *server) dead() {
	s.t.Helper()
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != -1 {
		s.t.Fatalf("the Host was not killed: %v", err)
	}
}

// startChild starts a process and waits until it says that it is open. Further lines go
// to each.
func startChild(t testing.TB, c child, each func(line string)) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(c)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "open\n" {
		t.Fatalf("the child said %q (%v)", line, err)
	}
	if each != nil {
		var read sync.WaitGroup
		read.Go(func() {
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return // a line that was cut off was not answered
				}
				each(strings.TrimSpace(line))
			}
		})
		t.Cleanup(read.Wait)
	}
	return cmd
}

// load is an application under load: it enqueues writes to some records, says which
// have been answered, and runs the queue.
type load struct {
	Host  record.HostRef
	Lanes []string
	// Drain ends it when all is sent, with nothing enqueued.
	Drain bool
}

func (l load) run(ctx context.Context, c child, key *record.Key) error {
	k, err := client.New(client.Config{Key: key, Host: &l.Host, Timeout: 5 * time.Second})
	if err != nil {
		return err
	}
	b, err := Open(ctx, c.Path, k, Options{Key: testKey, Retry: Backoff{First: 2 * time.Millisecond, Most: 30 * time.Millisecond}})
	if err != nil {
		return err
	}
	fmt.Println("open")
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() { ended <- b.Run(running) }()
	waiting := func() (int64, error) {
		sum, err := b.Summary(ctx)
		if err == nil && sum.Blocked() > 0 {
			err = fmt.Errorf("blocked: %+v", sum)
		}
		return sum.Waiting(), err
	}
	changes, _ := b.Changes()
	if l.Drain {
		for {
			n, err := waiting()
			if err != nil {
				return err
			}
			if n == 0 {
				stop()
				return errors.Join(<-ended, b.Close())
			}
			<-changes
		}
	}
	// Every third write is an update of the name, based on the one before.
	versions := map[string]int64{}
	for f := (Filter{Limit: 1000}); ; {
		list, err := b.Entries(ctx, f)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			break
		}
		for _, e := range list {
			f.After = e.Sequence
			if e.Operation == record.UpdateDemographics {
				versions[e.Patient]++
			}
		}
	}
	for n := 0; ; n++ {
		for {
			depth, err := waiting()
			if err != nil {
				return err
			}
			if depth < 30 {
				break
			}
			<-changes
		}
		p := l.Lanes[n%len(l.Lanes)]
		i := create(p)
		if n/len(l.Lanes)%3 == 0 {
			i = rename(p, fmt.Sprintf("Name %d", n), versions[p]+1)
			versions[p]++
		}
		if _, err := b.Enqueue(ctx, i); err != nil {
			return err
		}
		fmt.Println(i.OperationID)
	}
}

// The application and its Host are killed at any time, under load, again and again. In
// the end each operation has been done exactly once, in its lane's order, and every
// entry says so.
func TestRandomKills(t *testing.T) {
	t.Parallel() // it waits most of the time
	rounds := 200
	if testing.Short() {
		rounds = 8
	}
	h := newServed(t)
	var lanes []string
	for range 4 {
		lanes = append(lanes, h.patient(t))
	}
	dir := t.TempDir()
	keyFile := filepath.Join(dir, "app.key")
	must(t, h.key.Save(keyFile))
	app := child{Path: filepath.Join(dir, "queue.db"), Key: keyFile, Load: &load{Host: h.ref(), Lanes: lanes}}
	var mu sync.Mutex
	var answered []string
	start := func() *exec.Cmd {
		return startChild(t, app, func(line string) {
			mu.Lock()
			defer mu.Unlock()
			answered = append(answered, line)
		})
	}
	kill := func(cmd *exec.Cmd) {
		t.Helper()
		must(t, cmd.Process.Kill())
		err := cmd.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("the process ended before it was killed: %v", err)
		}
	}
	h.start()
	running := start()
	luck := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for range rounds {
		time.Sleep(time.Duration(luck.IntN(250)) * time.Millisecond) // not to synchronize: the kill comes at any time
		switch luck.IntN(5) {
		case 0, 1:
			kill(h.cmd)
			h.start()
		case 2, 3:
			kill(running)
			running = start()
		default:
			kill(h.cmd)
			kill(running)
			running = start() // the application is there first
			h.start()
		}
	}
	kill(running)
	app.Load.Drain = true
	running = startChild(t, app, nil)
	must(t, running.Wait())

	k := h.client(t)
	ctx := context.Background()
	b, err := Open(ctx, app.Path, k, Options{Key: testKey})
	must(t, err)
	defer b.Close()
	if v, err := b.Verify(ctx); err != nil || len(v.Problems) > 0 {
		t.Errorf("%+v, %v", v, err)
	}
	next := map[string]int64{}
	renamed := map[string]int64{}
	known := map[string]bool{}
	replayed := 0
	for f := (Filter{Limit: 1000}); ; {
		list, err := b.Entries(ctx, f)
		must(t, err)
		if len(list) == 0 {
			break
		}
		for _, e := range list {
			f.After = e.Sequence
			known[e.OperationID] = true
			if e.State != Committed || e.Unsure || e.Code != "" {
				t.Fatalf("%+v", e)
			}
			// The record's writes are numbered without gaps: none is missing, none there twice,
			// none out of order.
			receipt, err := k.Receipt(ctx, e.Patient, e.OperationID)
			must(t, err)
			if next[e.Patient]++; receipt.Seq != next[e.Patient]+1 { // 1 is the Patient
				t.Fatalf("entry %d is write %d of its record, want %d", e.Sequence, receipt.Seq, next[e.Patient]+1)
			}
			if e.Operation == record.UpdateDemographics {
				renamed[e.Patient]++
			}
			if e.Result.Replayed {
				replayed++
			}
			if e.Result.Version != receipt.Version || e.Result.ID != receipt.ID {
				t.Errorf("%+v, %+v", e.Result, receipt)
			}
		}
	}
	for _, id := range answered {
		if !known[id] {
			t.Errorf("Enqueue has answered %s, and it is gone", id)
		}
	}
	for _, p := range lanes {
		found, err := k.Read(ctx, p, "Patient", p)
		must(t, err)
		if found.Version != renamed[p]+1 {
			t.Errorf("the Patient has version %d, want %d", found.Version, renamed[p]+1)
		}
		n := int64(0)
		for _, err := range k.Search(ctx, p, "Observation", nil) {
			must(t, err)
			n++
		}
		if n != next[p]-renamed[p] {
			t.Errorf("%d Observations, want %d", n, next[p]-renamed[p])
		}
	}
	t.Logf("%d rounds: %d writes, %d of them answered from their receipts", rounds, len(known), replayed)
	if len(known) < rounds || slices.Contains(lanes, "") {
		t.Errorf("%d entries: there was no load", len(known))
	}
}
