package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/directory"
	"github.com/eda94727/holdfast/record/directory/service"
	"github.com/eda94727/holdfast/record/internal/db"
	"github.com/eda94727/holdfast/record/serve"
)

// childEnv makes this test's binary a Host, with the JSON of a child in it.
const childEnv = "HOLDFAST_TEST_HOST"

// child is a Host in a process of its own, to be killed.
type child struct {
	Dir, Addr string
	Pin       *directory.Pin
	// Move is a record that the Host moves away when it starts, To where.
	Move string
	To   record.HostRef
	// DieAt is the step of a move at which the process kills itself with SIGKILL.
	DieAt string
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := runChild(text); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func (c child) config() (Config, error) {
	config, err := InDir(c.Dir)
	if err != nil {
		return config, err
	}
	config.URL, config.Rate = "http://"+c.Addr, -1
	if c.Pin != nil {
		config.Directory = &Directory{Pin: *c.Pin, TrustFile: TrustIn(c.Dir)}
	}
	return config, nil
}

func runChild(text string) error {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	ctx := context.Background()
	h, err := Open(ctx, config)
	if err != nil {
		return err
	}
	h.step = func(name string) error {
		if name == c.DieAt {
			self, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			fmt.Println("dying")
			if err := self.Kill(); err != nil {
				return err
			}
			select {}
		}
		return nil
	}
	return serve.Run(ctx, serve.Options{Addr: c.Addr, Handler: h.Handler(), Started: func(net.Addr) {
		fmt.Println("started")
		if c.Move == "" {
			return
		}
		go func() {
			for h.Move(ctx, c.Move, c.To, nil) != nil {
				time.Sleep(5 * time.Millisecond) // the other Host is away for a moment
			}
			fmt.Println("moved")
		}()
	}})
}

// process is a child that runs.
type process struct {
	t     *testing.T
	child child
	cmd   *exec.Cmd
	moved chan bool
	dying chan bool
}

// start starts the child and waits until it listens.
func (p *process) start() {
	p.t.Helper()
	text, err := json.Marshal(p.child)
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd = exec.Command(os.Args[0], "-test.run=^$")
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	started := make(chan bool)
	moved, dying := make(chan bool), make(chan bool)
	p.moved, p.dying = moved, dying
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			switch lines.Text() {
			case "started":
				close(started)
			case "moved":
				close(moved)
			case "dying":
				close(dying)
			default:
				p.t.Log(lines.Text())
			}
		}
	}()
	select {
	case <-started:
	case <-time.After(20 * time.Second):
		p.t.Fatal("the Host does not start")
	}
}

// kill is kill -9.
func (p *process) kill() {
	if p.cmd != nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		p.cmd = nil
	}
}

// newProcess prepares a Host on a free port; init works on it in this process
// before it starts.
func newProcess(t *testing.T, pin *directory.Pin, init func(h *Host)) *process {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, child: child{Dir: t.TempDir(), Addr: listener.Addr().String(), Pin: pin}}
	listener.Close()
	p.inside(init)
	t.Cleanup(p.kill)
	return p
}

// inside opens the stopped Host in this process.
func (p *process) inside(work func(h *Host)) {
	p.t.Helper()
	config, err := p.child.config()
	if err != nil {
		p.t.Fatal(err)
	}
	h, err := Open(context.Background(), config)
	if err != nil {
		p.t.Fatal(err)
	}
	defer h.Close()
	work(h)
}

// A Host is killed again and again while clients write. Each operation is done
// exactly once, whatever its client saw, and the chain of receipts is whole.
func TestHostKilledUnderWrites(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var recordID string
	var ref record.HostRef
	key := record.NewKey()
	p := newProcess(t, nil, func(h *Host) {
		made, err := h.CreateRecord(ctx, NewRecord{})
		if err != nil {
			t.Fatal(err)
		}
		recordID, ref = made.ID, h.Ref()
		if _, err := h.Grant(ctx, Grant{Record: recordID, Client: key.ID(), Scope: "patient/*.cruds"}); err != nil {
			t.Fatal(err)
		}
	})
	p.start()
	k, err := client.New(client.Config{Key: key, Host: &ref, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	body := []byte(`{"resourceType":"Observation","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/` + recordID + `"}}`)
	var wg sync.WaitGroup
	var done, failed atomic.Int64
	var mu sync.Mutex
	results := map[string]record.Result{}
	stop := make(chan bool)
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				intent := record.Intent{Operation: record.CreateResource, Patient: recordID, OperationID: record.NewID(), Resource: body}
				for { // the same operation until the Host has done it
					r, err := k.Write(ctx, intent)
					if err == nil {
						mu.Lock()
						results[intent.OperationID] = r
						mu.Unlock()
						done.Add(1)
						break
					}
					if failed.Add(1); record.CodeOf(err).Class() != record.Pending {
						t.Errorf("a killed Host is no reason for %v", err)
						return
					}
					if ctx.Err() != nil {
						return
					}
					time.Sleep(2 * time.Millisecond)
				}
			}
		})
	}
	for range 8 {
		before := done.Load()
		for done.Load() < before+5 && ctx.Err() == nil { // some writes between two deaths
			time.Sleep(time.Millisecond)
		}
		time.Sleep(rand.N(20 * time.Millisecond))
		p.kill()
		p.start()
	}
	close(stop)
	wg.Wait()
	p.kill()
	if failed.Load() == 0 {
		t.Error("no write ever failed: the kills came to nothing")
	}
	p.inside(func(h *Host) {
		seen := checkChain(t, h, recordID)
		if len(seen) != len(results)+1 { // and the Patient
			t.Errorf("%d writes at the Host, %d at the clients", len(seen), len(results))
		}
		for op, r := range results {
			if seen[op] != r.ID {
				t.Errorf("operation %s made %s for the client and %q at the Host", op, r.ID, seen[op])
			}
		}
	})
}

// checkChain wants every version with its receipt and every link whole, and
// returns the resource that each operation made.
func checkChain(t *testing.T, h *Host, recordID string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	err := h.db.Read(context.Background(), func(tx db.Tx) error {
		clear(seen)
		prev, seq := "", int64(0)
		return tx.Adhoc("select r.receipt, v.type, v.id, v.version from records x join receipts r on r.rk = x.rk join versions v on v.rk = r.rk and v.seq = r.seq where x.record_id = :record order by r.seq",
			db.Args{"record": recordID}, func(row db.Row) error {
				var text, resourceType, id string
				var n int64
				if err := row.Scan(&text, &resourceType, &id, &n); err != nil {
					return err
				}
				r, err := record.ReadReceipt(text)
				if seq++; err != nil || r.Seq != seq || r.Prev != prev || r.Type != resourceType || r.ID != id || r.Version != n {
					t.Errorf("receipt %d: %+v, %v", seq, r, err)
				}
				if seen[r.Operation] != "" {
					t.Errorf("operation %s was done twice", r.Operation)
				}
				seen[r.Operation], prev = id, record.ReceiptHash(text)
				return nil
			})
	})
	if err != nil {
		t.Error(err)
	}
	return seen
}

// movingPair is two Hosts that are processes, and a record of n writes that is
// to move from the one to the other.
type movingPair struct {
	t      *testing.T
	a, b   *process
	record string
	ops    []string
}

func newMovingPair(t *testing.T, n int) *movingPair {
	ctx := t.Context()
	p := &movingPair{t: t}
	var handler atomic.Value
	server := newPlainServer(func(w http.ResponseWriter, r *http.Request) { handler.Load().(http.Handler).ServeHTTP(w, r) })
	t.Cleanup(server.Close)
	d, err := service.Open(ctx, service.Config{URL: server.URL, Database: filepath.Join(t.TempDir(), "d.db"), Keys: []*record.Key{record.NewKey()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	handler.Store(d.Handler())
	pin := d.Pin()
	admit := func(h *Host) {
		if err := d.AdmitHost(ctx, h.ID(), ""); err != nil {
			t.Fatal(err)
		}
	}
	var to record.HostRef
	p.b = newProcess(t, &pin, func(h *Host) { admit(h); to = h.Ref() })
	p.a = newProcess(t, &pin, func(h *Host) {
		admit(h)
		made, err := h.CreateRecord(ctx, NewRecord{})
		if err != nil {
			t.Fatal(err)
		}
		p.record = made.ID
		fill(t, h, p.record, n)
		for op := range checkChain(t, h, p.record) {
			p.ops = append(p.ops, op)
		}
	})
	p.b.inside(func(h *Host) {
		if err := h.Expect(ctx, p.record); err != nil {
			t.Fatal(err)
		}
	})
	p.a.child.Move, p.a.child.To = p.record, to
	return p
}

// check kills both, and wants everything at the new Host and nothing twice.
func (p *movingPair) check() {
	p.t.Helper()
	ctx := p.t.Context()
	p.a.kill()
	p.b.kill()
	p.a.inside(func(h *Host) {
		if r, err := h.Record(ctx, p.record); err != nil || r.State != stateMoved {
			p.t.Errorf("the old Host: %+v, %v", r, err)
		}
	})
	p.b.inside(func(h *Host) {
		if r, err := h.Record(ctx, p.record); err != nil || r.State != stateActive {
			p.t.Errorf("the new Host: %+v, %v", r, err)
		}
		var got []string
		for op := range checkChain(p.t, h, p.record) {
			got = append(got, op)
		}
		slices.Sort(got)
		slices.Sort(p.ops)
		if !slices.Equal(got, p.ops) {
			p.t.Errorf("%d operations arrived of %d", len(got), len(p.ops))
		}
	})
}

// Both Hosts of a move are killed at random moments until it is done.
func TestHostsKilledWhileMoving(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p := newMovingPair(t, 1500)
	p.b.start()
	p.a.start()
	finished := func() bool {
		select {
		case <-p.a.moved:
			return true
		case <-time.After(rand.N(400 * time.Millisecond)):
			return false
		}
	}
	kills := 0
	for ; kills < 12 && !finished(); kills++ {
		q := []*process{p.a, p.b}[rand.N(2)]
		q.kill()
		q.start()
	}
	select {
	case <-p.a.moved:
	case <-ctx.Done():
		t.Fatal("the move does not end")
	}
	t.Logf("moved after %d kills", kills)
	p.check()
}

// Each Host dies by kill -9 at each step of a move that it takes part in; started
// again, the move goes on and ends.
func TestHostsKilledAtEachStep(t *testing.T) {
	for _, c := range []struct {
		point    string
		receiver bool
	}{
		{"frozen", false}, {"sending", false}, {"signed", false}, {"accepted", false}, {"directory knows", false}, {"published", false},
		{"receiving", true}, {"activating", true},
	} {
		t.Run(c.point, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p := newMovingPair(t, 40)
			victim := p.a
			if c.receiver {
				victim = p.b
			}
			victim.child.DieAt = c.point
			p.b.start()
			p.a.start()
			select {
			case <-victim.dying:
			case <-ctx.Done():
				t.Fatal("the step is never reached")
			}
			victim.kill()
			victim.child.DieAt = ""
			victim.start()
			select {
			case <-p.a.moved:
			case <-ctx.Done():
				t.Fatal("the move does not end")
			}
			p.check()
		})
	}
}

// fill makes n Observations without HTTP.
func fill(t testing.TB, h *Host, recordID string, n int) {
	t.Helper()
	c := &caller{token: record.Token{Client: record.NewKey().ID(), Record: recordID}}
	body := []byte(`{"resourceType":"Observation","status":"final","category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"laboratory"}]}],
"code":{"coding":[{"system":"http://loinc.org","code":"718-7"}]},"subject":{"reference":"Patient/` + recordID + `"},"effectiveDateTime":"2020-05-01","valueQuantity":{"value":1.10}}`)
	for made := 0; made < n; {
		page := min(500, n-made)
		err := h.db.Write(context.Background(), "fill", func(tx db.Tx) error {
			for range page {
				var a access
				var created int64
				found, err := db.One(tx, "record_get", db.Args{"record": recordID}, &a.rk, &a.state, &a.address, &a.seq, &a.lastHash, &created)
				if err != nil || !found {
					return errors.Join(err, errors.New("no record"))
				}
				a.record = recordID
				q := &write{caller: c, method: http.MethodPost, resourceType: "Observation", op: record.NewID(), body: body, fp: record.Fingerprint(http.MethodPost, "/Observation", "", body)}
				if q.judge(h); q.invalid != nil {
					return q.invalid
				}
				if _, err := h.commit(tx, a, q, version{}, q.resource, q.body); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		made += page
	}
}
