package outbox

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/directory"
)

// childEnv makes this test's binary a process that works on a queue until it is
// killed.
const childEnv = "HOLDFAST_TEST_OUTBOX"

// child says what it does.
type child struct {
	Path, State, Key, Cert string
	Pin                    directory.Pin
	// Point is where it kills itself with SIGKILL, the Nth time that it comes there;
	// 0 means the first.
	Point string
	Nth   int
	// Key is for an encrypted queue.
	Sealed bool
	// Serve makes it a Host, and Load an application under load; see kill_test.go.
	Serve *served
	Load  *load
	// Enqueue, Flush and Follow are done in this order; then it waits to be killed.
	Enqueue []record.Intent
	Flush   bool
	Follow  *follow
}

type follow struct{ Patient, Document, Address string }

func runChild(text string) error {
	ctx := context.Background()
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	if c.Serve != nil {
		return c.Serve.run(ctx)
	}
	key, err := record.LoadOrCreateKey(c.Key)
	if err != nil {
		return err
	}
	if c.Load != nil {
		return c.Load.run(ctx, c, key)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(c.Cert))
	k, err := client.New(client.Config{Key: key, Pin: c.Pin, StateDir: c.State, HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}})
	if err != nil {
		return err
	}
	b, err := Open(ctx, c.Path, k, Options{ManualMoves: true})
	if err != nil {
		return err
	}
	var times atomic.Int64
	b.step = func(point string) {
		if point == c.Point && int(times.Add(1)) == max(c.Nth, 1) {
			die()
		}
	}
	fmt.Println("open")
	for _, i := range c.Enqueue {
		if _, err := b.Enqueue(ctx, i); err != nil {
			return err
		}
	}
	if c.Flush {
		if _, err := b.Flush(ctx); err != nil {
			return err
		}
	}
	if f := c.Follow; f != nil {
		if err := b.FollowMigration(ctx, f.Patient, f.Document, f.Address); err != nil {
			return err
		}
	}
	fmt.Println("done")
	select {}
}

// die is kill -9: nothing runs after it.
func die() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	fmt.Fprintln(os.Stderr, err)
	select {}
}

// process starts a child and returns it when it has opened the queue.
func (w *world) process(c child) (*exec.Cmd, *bufio.Reader) {
	w.t.Helper()
	if w.last != nil { // the child's client needs the folder
		w.last.Close()
	}
	c.Path, c.State, c.Pin = w.path, w.state, w.pin
	c.Key = filepath.Join(w.state, "app.key")
	c.Cert = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.a.server.Certificate().Raw}))
	text, err := json.Marshal(c)
	must(w.t, err)
	self, err := os.Executable()
	must(w.t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(w.t, err)
	must(w.t, cmd.Start())
	w.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "open\n" {
		w.t.Fatalf("the child said %q (%v)", line, err)
	}
	return cmd, lines
}

// crash runs a child until it has killed itself at its point.
func (w *world) crash(c child) {
	w.t.Helper()
	cmd, out := w.process(c)
	rest, err := io.ReadAll(out)
	must(w.t, err)
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != -1 || bytes.Contains(rest, []byte("done")) {
		w.t.Fatalf("the child was not killed at %q: %v, said %q", c.Point, err, rest)
	}
}

// appWorld is a world whose application's key is in a file, for children.
func appWorld(t *testing.T) *world {
	w := newWorld(t)
	key, err := record.LoadOrCreateKey(filepath.Join(w.state, "app.key"))
	must(t, err)
	w.appKey = key
	return w
}

func TestO5TheLockDiesWithItsProcess(t *testing.T) {
	w := appWorld(t)
	cmd, _ := w.process(child{})
	// The client's folder has a lock of its own: this one is about the queue's.
	_, err := w.tryOpen(w.client(func(c *client.Config) { c.StateDir = t.TempDir() }))
	wantCode(t, err, QueueInUse)
	must(t, cmd.Process.Kill())
	cmd.Wait()
	w.open(w.client())
}

func TestCrash1BeforeTheInsertCommits(t *testing.T) {
	w := appWorld(t)
	i := create(w.patient())
	w.crash(child{Point: "inserted", Enqueue: []record.Intent{i}})
	b := w.open(w.client())
	_, err := b.Entry(context.Background(), i.OperationID)
	wantCode(t, err, UnknownQueueEntry)
}

// Each point with two entries: what the first leaves behind must not keep the
// second from its turn.
func TestCrashPoints(t *testing.T) {
	for _, c := range []struct {
		name, point string
		state       State // what the restarted process finds
		replayed    bool  // whether the Host had done it
		sends       int64 // until all is done
	}{
		{"2 pending, unsent", "enqueued", Pending, false, 1},
		{"3 submitted, unsent", "submitted", Pending, false, 1},
		{"5 done, the answer lost", "answered", Pending, true, 2},
		{"7 committed", "committed", Committed, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := appWorld(t)
			p := w.patient()
			i := create(p)
			var sends atomic.Int64
			w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
				if r.Header.Get("Idempotency-Key") == `"`+i.OperationID+`"` {
					sends.Add(1)
				}
				h.ServeHTTP(rw, r)
			})
			w.crash(child{Point: c.point, Enqueue: []record.Intent{i}, Flush: true})
			k := w.client() // as a new process would
			b := w.open(k)
			expect(t, b, i.OperationID, c.state, "")
			second := enqueue(t, b, create(p))[0]
			flushed(t, b)
			e := expect(t, b, i.OperationID, Committed, "")
			expect(t, b, second, Committed, "")
			if e.Result.Replayed != c.replayed || sends.Load() != c.sends {
				t.Errorf("replayed %v, sent %d times", e.Result.Replayed, sends.Load())
			}
			if seqs := w.done(k, p, i.OperationID, second); seqs[0] != 2 || seqs[1] != 3 { // 1 is the Patient
				t.Errorf("the Host's writes are %v", seqs)
			}
		})
	}
}

// The same with three entries in a lane, of which the second is marked as being sent
// while the first is under way.
func TestCrashPointsBetweenEntries(t *testing.T) {
	for _, c := range []struct {
		name, point string
		nth         int
		states      []State // what the restarted process finds
	}{
		{"the second is submitted, the first on its way", "submitted", 2, []State{Pending, Pending, Pending}},
		{"the first is answered", "answered", 1, []State{Pending, Pending, Pending}},
		{"the first is committed, the second unsent", "committed", 1, []State{Committed, Pending, Pending}},
		{"the third is submitted, the second on its way", "submitted", 3, []State{Committed, Pending, Pending}},
		{"the second is answered", "answered", 2, []State{Committed, Pending, Pending}},
		{"the second is committed", "committed", 2, []State{Committed, Committed, Pending}},
		{"the third is answered", "answered", 3, []State{Committed, Committed, Pending}},
		{"all are committed", "committed", 3, []State{Committed, Committed, Committed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := appWorld(t)
			p := w.patient()
			// Updates, each based on the one before: done twice or out of order they conflict.
			intents := []record.Intent{rename(p, "Ada", 1), rename(p, "Grace", 2), rename(p, "Emmy", 3)}
			w.crash(child{Point: c.point, Nth: c.nth, Enqueue: intents, Flush: true})
			k := w.client()
			b := w.open(k)
			for n, i := range intents {
				expect(t, b, i.OperationID, c.states[n], "")
			}
			must(t, flushAll(b))
			for n, seq := range w.done(k, p, intents[0].OperationID, intents[1].OperationID, intents[2].OperationID) {
				if seq != int64(n+2) { // 1 is the Patient
					t.Errorf("entry %d is write %d of the record", n, seq)
				}
			}
		})
	}
}

// 4: the Host's process is killed before its commit; 5: after it, before the answer.
// The queue's own death after the answer is among the crash points above.
func TestCrash4And5TheHostDies(t *testing.T) {
	for _, c := range []struct {
		name, at string
		replayed bool
	}{{"4 before its commit", "before", false}, {"5 after its commit, before its answer", "after", true}} {
		t.Run(c.name, func(t *testing.T) {
			h := newServed(t)
			p := h.patient(t)
			h.child.Die = c.at
			h.start()
			b, err := Open(context.Background(), filepath.Join(t.TempDir(), "queue.db"), h.client(t), Options{})
			must(t, err)
			defer b.Close()
			i := rename(p, "Ada", 1)
			enqueue(t, b, i)
			flushed(t, b)
			h.dead()
			if e := expect(t, b, i.OperationID, Pending, record.TransportUnavailable); !e.Unsure {
				t.Error("it is sure")
			}
			h.start()
			must(t, flushAll(b))
			if e := expect(t, b, i.OperationID, Committed, ""); e.Result.Replayed != c.replayed || e.Result.Version != 2 {
				t.Errorf("%+v", e.Result)
			}
		})
	}
}

// 12: the update that records a failure fails itself, and then the process dies. (The
// process that lives on is F9's test.)
func TestCrash12TheFailureCannotBeRecorded(t *testing.T) {
	w := appWorld(t)
	p := w.patient()
	k := w.client()
	b, err := w.tryOpen(k)
	must(t, err)
	enqueue(t, b, create(p))
	flushed(t, b)
	must(t, b.Close())
	i := create(p)
	w.a.code(record.RecordFrozen)
	execSQL(t, w.path, `create trigger fail before update on queue when new.error = 'record_frozen' begin select raise(abort, 'no'); end`)
	w.crash(child{Point: "unsettled", Enqueue: []record.Intent{i}, Flush: true})
	if n := number(t, w.path, "select count(*) from queue where state = 'submitted'"); n != 1 {
		t.Errorf("%d entries are submitted", n)
	}
	execSQL(t, w.path, "drop trigger fail")
	w.a.unwrap()
	k = w.client()
	b = w.open(k)
	expect(t, b, i.OperationID, Pending, "")
	must(t, flushAll(b))
	if seqs := w.done(k, p, i.OperationID); seqs[0] != 3 {
		t.Errorf("%v", seqs)
	}
}

func TestCrash6TheFirstAttemptStillRuns(t *testing.T) {
	w := appWorld(t)
	p := w.patient()
	i := create(p)
	asked, release := make(chan struct{}), make(chan struct{})
	w.a.validate.Store(func() { close(asked); <-release })
	cmd, _ := w.process(child{Enqueue: []record.Intent{i}, Flush: true})
	<-asked
	must(t, cmd.Process.Kill())
	cmd.Wait()
	k := w.client()
	b := w.open(k)
	r := flushed(t, b)
	if len(r.Stops) != 1 || r.Stops[0].RetryAfter <= 0 {
		t.Errorf("%+v", r)
	}
	expect(t, b, i.OperationID, Pending, record.OperationInProgress)
	w.a.validate.Store(func() {})
	close(release)
	deadline := time.Now().Add(20 * time.Second)
	for flushed(t, b).Committed == 0 && time.Now().Before(deadline) {
		expect(t, b, i.OperationID, Pending, record.OperationInProgress)
	}
	expect(t, b, i.OperationID, Committed, "")
	if seqs := w.done(k, p, i.OperationID); seqs[0] != 2 {
		t.Errorf("%v", seqs)
	}
}

// 8 to 10, around FollowMigration: whatever was reached, nothing is sent to a wrong
// Host, and the same document again heals it (M5).
func TestCrash8To10AroundFollowMigration(t *testing.T) {
	for _, c := range []struct {
		name, point string
		code        record.Code // of a flush after the crash
	}{
		{"8 before anything", "before the client's state", record.RecordMoved},
		{"9 the client's state is saved, the route is not", "between the client's state and the route", QueueRouteUpdateRequired},
		{"10 both are saved", "route changed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := appWorld(t)
			p := w.patient()
			k := w.client()
			b, err := w.tryOpen(k, manual)
			must(t, err)
			enqueue(t, b, create(p))
			flushed(t, b)
			id := enqueue(t, b, create(p))[0]
			must(t, b.Close())
			w.move(p)
			document, address := w.document(k, p)
			w.crash(child{Point: c.point, Follow: &follow{p, document, address}})
			k = w.client() // as a new process would
			b = w.open(k, manual)
			was := w.b.writes.Load()
			r := flushed(t, b)
			if c.code == "" {
				expect(t, b, id, Committed, "")
			} else {
				if len(r.Stops) != 1 || r.Stops[0].Code != c.code || w.b.writes.Load() != was {
					t.Errorf("%+v", r)
				}
				must(t, b.FollowMigration(context.Background(), p, document, address))
				flushed(t, b)
				expect(t, b, id, Committed, "")
			}
			if seqs := w.done(k, p, id); seqs[0] != 3 {
				t.Errorf("%v", seqs)
			}
		})
	}
}

// 11: done at the old Host, the answer lost, and the record moved: the new Host has
// the receipt.
func TestCrash11DoneBeforeTheMove(t *testing.T) {
	w := appWorld(t)
	p := w.patient()
	i := create(p)
	w.crash(child{Point: "answered", Enqueue: []record.Intent{i}, Flush: true})
	w.move(p)
	k := w.client()
	b := w.open(k)
	next := enqueue(t, b, create(p))[0]
	flushed(t, b) // follows by itself
	if e := expect(t, b, i.OperationID, Committed, ""); !e.Result.Replayed {
		t.Error("it was done twice")
	}
	expect(t, b, next, Committed, "")
	if r, _, _ := b.Route(context.Background(), p); r.Host != w.b.host.ID() || r.Generation != 2 {
		t.Errorf("%+v", r)
	}
	if seqs := w.done(k, p, i.OperationID, next); seqs[0] != 2 || seqs[1] != 3 {
		t.Errorf("%v", seqs)
	}
}
