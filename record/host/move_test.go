package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/directory"
	"github.com/eda94727/holdfast/record/directory/service"
	"github.com/eda94727/holdfast/record/internal/db"
	"github.com/eda94727/holdfast/record/internal/db/dbtest"
)

// land is a Directory with Hosts over real HTTP; the Hosts can be restarted.
type land struct {
	t         testing.TB
	directory *service.Service
	pin       directory.Pin
	a, b      *station
}

// station is a Host that can be stopped and started again on its database.
type station struct {
	t       testing.TB
	config  Config
	server  *httptest.Server
	handler atomic.Value
	host    *Host
}

func newLand(t testing.TB, database func(t testing.TB) string) *land {
	t.Helper()
	l := &land{t: t}
	var handler atomic.Value
	server := newPlainServer(func(w http.ResponseWriter, r *http.Request) { handler.Load().(http.Handler).ServeHTTP(w, r) })
	t.Cleanup(server.Close)
	var err error
	l.directory, err = service.Open(context.Background(), service.Config{URL: server.URL, Database: dbtest.SQLite(t), Keys: []*record.Key{record.NewKey()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.directory.Close() })
	handler.Store(l.directory.Handler())
	l.pin = directory.Pin{Directory: server.URL, Quorum: l.directory.Quorum()}
	l.a, l.b = l.station(database(t)), l.station(database(t))
	return l
}

func (l *land) station(database string) *station {
	s := &station{t: l.t}
	s.server = newPlainServer(func(w http.ResponseWriter, r *http.Request) { s.handler.Load().(http.Handler).ServeHTTP(w, r) })
	l.t.Cleanup(s.server.Close)
	s.config = Config{URL: s.server.URL, Database: database, Key: record.NewKey(), Rate: -1,
		Directory: &Directory{Pin: l.pin, TrustFile: filepath.Join(l.t.TempDir(), "trust.json")}}
	s.start()
	l.t.Cleanup(func() { s.host.Close() })
	if err := l.directory.AdmitHost(context.Background(), s.host.ID(), "host"); err != nil {
		l.t.Fatal(err)
	}
	return s
}

func (s *station) start() {
	host, err := Open(context.Background(), s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.host = host
	s.handler.Store(host.Handler())
}

func (s *station) restart() {
	if err := s.host.Close(); err != nil {
		s.t.Error(err)
	}
	s.start()
}

// patient is a record at Host a with some history, and an application's client.
type patient struct {
	*land
	id     string
	key    *record.Key
	client *client.Client
	ops    []record.Intent
	first  []record.Result
}

func (l *land) patient(writes int, change ...func(*client.Config)) *patient {
	l.t.Helper()
	ctx := context.Background()
	made, err := l.a.host.CreateRecord(ctx, NewRecord{})
	if err != nil {
		l.t.Fatal(err)
	}
	p := &patient{land: l, id: made.ID}
	config := client.Config{Key: record.NewKey(), Pin: l.pin, StateDir: l.t.TempDir()}
	for _, c := range change {
		c(&config)
	}
	p.key = config.Key
	if p.client, err = client.New(config); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(p.client.Close)
	if _, err := l.a.host.Grant(ctx, Grant{Record: p.id, Client: p.client.Subject(), Scope: "patient/*.cruds"}); err != nil {
		l.t.Fatal(err)
	}
	for i := range writes {
		p.write(record.Intent{Operation: record.CreateResource, Resource: p.obs(fmt.Sprintf(`,"valueInteger":%d`, i))})
	}
	r := p.first[0]
	p.write(record.Intent{Operation: record.UpdateResource, BaseVersion: 1, Resource: []byte(strings.Replace(string(p.obs(`,"valueQuantity":{"value":1.10}`)), "{", `{"id":"`+r.ID+`",`, 1))})
	p.write(record.Intent{Operation: record.DeleteResource, BaseVersion: 1, ResourceType: "Observation", ResourceID: p.first[1].ID})
	p.write(record.Intent{Operation: record.UpdateDemographics, BaseVersion: 1, Resource: []byte(`{"name":"Ada"}`)})
	return p
}

func (p *patient) obs(more string) []byte {
	return []byte(`{"resourceType":"Observation","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/` + p.id + `"}` + more + `}`)
}

func (p *patient) write(i record.Intent) {
	p.t.Helper()
	i.Patient, i.OperationID = p.id, record.NewID()
	r, err := p.client.Write(context.Background(), i)
	if err != nil {
		p.t.Fatal(err)
	}
	p.ops, p.first = append(p.ops, i), append(p.first, r)
}

// check wants the whole record at the new Host: history, chain and receipts of
// operations that were done at the old one.
func (p *patient) check() {
	p.t.Helper()
	ctx := context.Background()
	if l, err := p.client.Locate(ctx, p.id); err != nil || l.Host.ID != p.b.host.ID() || l.Generation != 2 {
		p.t.Fatalf("%+v, %v", l, err)
	}
	for i, op := range p.ops {
		r, err := p.client.Write(ctx, op)
		if err != nil || !r.Replayed || r.Receipt != p.first[i].Receipt {
			p.t.Errorf("operation %d again: %+v, %v", i, r, err)
		}
	}
	first := p.first[0]
	r, err := p.client.Read(ctx, p.id, first.Type, first.ID)
	if err != nil || r.Version != 2 || !strings.Contains(string(r.Content), "1.10") {
		p.t.Errorf("%+v, %v", r, err)
	}
	if _, err := p.client.Read(ctx, p.id, p.first[1].Type, p.first[1].ID); !errors.Is(err, record.ResourceDeleted) {
		p.t.Errorf("the deleted one: %v", err)
	}
	old, err := p.a.host.Record(ctx, p.id)
	if err != nil {
		p.t.Fatal(err)
	}
	moved, err := p.b.host.Record(ctx, p.id)
	if err != nil || old.State != stateMoved || moved.State != stateActive || moved.Writes < old.Writes {
		p.t.Errorf("old %+v, new %+v, %v", old, moved, err)
	}
	p.write(record.Intent{Operation: record.CreateLab, Resource: p.obs(`,"category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"laboratory"}]}]`)})
	if dump(p.t, p.a.host, p.id, old.Writes) != dump(p.t, p.b.host, p.id, old.Writes) {
		p.t.Error("the history differs")
	}
}

// dump is everything that a Host has of a record's first writes.
func dump(t testing.TB, h *Host, id string, writes int64) string {
	var b strings.Builder
	err := h.db.Read(context.Background(), func(tx db.Tx) error {
		b.Reset()
		return tx.Adhoc(`select v.type, v.id, v.version, v.seq, v.deleted, v.last_updated, v.content, r.client, r.op, r.fp, r.receipt from versions v
			join receipts r on r.rk = v.rk and r.seq = v.seq join records x on x.rk = v.rk where x.record_id = :id and v.seq <= :n order by v.seq`, db.Args{"id": id, "n": writes}, func(row db.Row) error {
			var s [7]string
			var n [4]int64
			var content []byte
			err := row.Scan(&s[0], &s[1], &n[0], &n[1], &n[2], &n[3], &content, &s[2], &s[3], &s[4], &s[5])
			fmt.Fprintln(&b, s, n, string(content))
			return err
		})
	})
	if err != nil || b.Len() == 0 {
		t.Errorf("dump: %v", err)
	}
	return b.String()
}

func TestMove(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database string) {
		l := newLand(t, func(t testing.TB) string {
			if db.IsPostgres(database) {
				return dbtest.Postgres(t)
			}
			return dbtest.SQLite(t)
		})
		p := l.patient(250) // more than a page
		ctx := context.Background()
		if err := l.a.host.Move(ctx, p.id, l.b.host.Ref(), nil); !errors.Is(err, record.PublisherNotAuthorized) {
			t.Errorf("a Host that does not expect the record: %v", err)
		}
		// Frozen: read, but not written, and grants stand still.
		if _, err := p.client.Write(ctx, record.Intent{Operation: record.CreateResource, Patient: p.id, OperationID: record.NewID(), Resource: p.obs("")}); !errors.Is(err, record.RecordFrozen) {
			t.Errorf("a write while it moves: %v", err)
		}
		if _, err := p.client.Read(ctx, p.id, "Patient", p.id); err != nil {
			t.Errorf("a read while it moves: %v", err)
		}
		if _, err := l.a.host.Grant(ctx, Grant{Record: p.id, Client: p.client.Subject(), Scope: "patient/*.r"}); !errors.Is(err, record.RecordFrozen) {
			t.Errorf("a grant while it moves: %v", err)
		}
		if err := l.b.host.Expect(ctx, p.id); err != nil {
			t.Fatal(err)
		}
		steps := map[string]int64{}
		if err := l.a.host.Move(ctx, p.id, l.b.host.Ref(), func(step string, sent, total int64) { steps[step] = max(steps[step], sent) }); err != nil {
			t.Fatal(err)
		}
		if steps[stepFrozen] != 254 || len(steps) != 3 {
			t.Errorf("progress: %v", steps)
		}
		// The old Host sends the client to the Directory, with no redirect.
		_, err := p.client.Read(ctx, p.id, "Patient", p.id)
		var e *record.Error
		if !errors.As(err, &e) || e.Code != record.RecordMoved || e.Address != l.directory.Address(p.id) {
			t.Errorf("the old Host: %v", err)
		}
		p.check()
		if err := l.a.host.Move(ctx, p.id, l.b.host.Ref(), nil); err != nil {
			t.Errorf("once more: %v", err)
		}
		// The copy that is left is deleted when its operator says so, and the old Host answers as before.
		if n, err := l.b.host.Purge(ctx, p.id); !errors.Is(err, record.RecordFrozen) || n != 0 {
			t.Errorf("a record that lives here: %d, %v", n, err)
		}
		if n, err := l.a.host.Purge(ctx, p.id); err != nil || n != 254 {
			t.Errorf("%d versions, %v", n, err)
		}
		if n, err := l.a.host.Purge(ctx, p.id); err != nil || n != 0 {
			t.Errorf("%d versions, %v", n, err)
		}
		left := 0
		err = l.a.host.db.Read(ctx, func(tx db.Tx) error {
			const sql = `select (select count(*) from versions) + (select count(*) from receipts) + (select count(*) from resources) + (select count(*) from tokens) + (select count(*) from dates)`
			return tx.Adhoc(sql, nil, func(row db.Row) error { return row.Scan(&left) })
		})
		if err != nil || left != 0 {
			t.Errorf("%d rows are left, %v", left, err)
		}
		ref := l.a.host.Ref()
		old, err := client.New(client.Config{Key: p.key, Host: &ref})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := old.Read(ctx, p.id, "Patient", p.id); !errors.As(err, &e) || e.Code != record.RecordMoved || e.Address != l.directory.Address(p.id) {
			t.Errorf("after the purge, the old Host: %v", err)
		}
		// And back again.
		if err := l.a.host.Expect(ctx, p.id); err != nil {
			t.Fatal(err)
		}
		if err := l.b.host.Move(ctx, p.id, l.a.host.Ref(), nil); err != nil {
			t.Fatal(err)
		}
		if at, err := p.client.Locate(ctx, p.id); err != nil || at.Generation != 3 || at.Host.ID != l.a.host.ID() {
			t.Errorf("%+v, %v", at, err)
		}
		if r, err := p.client.Write(ctx, p.ops[0]); err != nil || !r.Replayed {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Both Hosts are stopped at each step, and the move goes on or goes back.
func TestMoveStoppedAtEachStep(t *testing.T) {
	crash := errors.New("stopped")
	for _, point := range []string{"frozen", "sending", "receiving", "signed", "accepted", "directory knows", "published", "activating"} {
		for _, back := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/back=%v", point, back), func(t *testing.T) {
				l := newLand(t, dbtest.SQLite)
				p := l.patient(3)
				ctx := context.Background()
				if err := l.b.host.Expect(ctx, p.id); err != nil {
					t.Fatal(err)
				}
				hit := atomic.Bool{}
				for _, s := range []*station{l.a, l.b} {
					s.host.step = func(name string) error {
						if name == point {
							hit.Store(true)
							return crash
						}
						return nil
					}
				}
				if err := l.a.host.Move(ctx, p.id, l.b.host.Ref(), nil); err == nil || !hit.Load() {
					t.Fatalf("the move did not stop: %v", err)
				}
				l.a.restart()
				l.b.restart()
				published := point == "directory knows" || point == "published" || point == "activating"
				if back {
					err := l.a.host.CancelMove(ctx, p.id)
					if published != errors.Is(err, record.RecordMoved) || !published && err != nil {
						t.Fatalf("cancel: %v", err)
					}
					if !published {
						if got, err := l.b.host.Record(ctx, p.id); !errors.Is(err, record.NotFound) {
							t.Errorf("the other Host keeps a copy: %+v, %v", got, err)
						}
						p.write(record.Intent{Operation: record.CreateResource, Resource: p.obs("")})
						if err := l.a.host.CancelMove(ctx, p.id); !errors.Is(err, record.NotFound) {
							t.Errorf("canceled twice: %v", err)
						}
						if err := l.b.host.Expect(ctx, p.id); err != nil {
							t.Fatal(err)
						}
						if err := l.a.host.Move(ctx, p.id, l.b.host.Ref(), nil); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := l.a.host.ResumeMoves(ctx); err != nil {
					t.Fatal(err)
				}
				p.check()
			})
		}
	}
}

// Two records moved at once do not mix.
func TestMovesAtOnce(t *testing.T) {
	l := newLand(t, dbtest.SQLite)
	patients := []*patient{l.patient(10), l.patient(20)}
	var wg sync.WaitGroup
	for _, p := range patients {
		if err := l.b.host.Expect(context.Background(), p.id); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := l.a.host.Move(context.Background(), p.id, l.b.host.Ref(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, p := range patients {
		p.check()
	}
}

// manyVersions moves a record of n versions and returns the most memory that was
// in use meanwhile, beyond what was before, in MB.
func manyVersions(t testing.TB, n int, begin func()) float64 {
	t.Helper()
	ctx := context.Background()
	l := newLand(t, dbtest.SQLite)
	made, err := l.a.host.CreateRecord(ctx, NewRecord{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l.a.host, made.ID, n-1) // one is the Patient's
	if err := l.b.host.Expect(ctx, made.ID); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	before, peak := liveHeap(), 0.0
	pages := 0
	for _, h := range []*Host{l.a.host, l.b.host} {
		h.step = func(name string) error {
			if pages++; name == "sending" || name == "receiving" {
				peak = max(peak, liveHeap())
			}
			return nil
		}
	}
	begin()
	if err := l.a.host.Move(ctx, made.ID, l.b.host.Ref(), nil); err != nil {
		t.Fatal(err)
	}
	moved, err := l.b.host.Record(ctx, made.ID)
	if err != nil || moved.Writes != int64(n) || moved.State != stateActive {
		t.Errorf("%+v, %v", moved, err)
	}
	return peak - before
}

// A record of any length moves in the memory of a few pages: one of 10,000
// versions, which has 15 MB, in less than half of that.
func TestMoveInBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 versions are not for short tests")
	}
	if peak := manyVersions(t, 10_000, func() {}); peak > 7 {
		t.Errorf("%.1f MB", peak)
	}
}

// What an export may be that is not the record: none of it is taken.
func TestImportRefusals(t *testing.T) {
	l := newLand(t, dbtest.SQLite)
	p, other := l.patient(3), l.patient(3)
	ctx := context.Background()
	now, err := l.a.config.Directory.locate(ctx, p.id)
	if err != nil {
		t.Fatal(err)
	}
	publication := l.a.host.publication(p.id, 2, now.Hash(), l.b.host.Ref(), "moved")
	export := func(id, to string) []byte {
		var b bytes.Buffer
		if err := l.a.host.export(ctx, id, to, &b, func(int64) {}); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	good := export(p.id, l.b.host.ID())
	send := func(key *record.Key, change func(*record.Transfer), body []byte) (record.Code, string) {
		transfer := record.Transfer{Publication: publication, To: l.b.host.ID()}
		change(&transfer)
		signed, _ := record.SignTransfer(key, transfer)
		r, _ := http.NewRequest("POST", l.b.server.URL+"/transfers/"+p.id, bytes.NewReader(body))
		r.Header.Set(transferHeader, signed)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		data, _ := io.ReadAll(answer.Body)
		return reply{answer.StatusCode, answer.Header, string(data)}.code(), string(data)
	}
	same := func(*record.Transfer) {}
	if code, text := send(l.a.config.Key, same, good); code != record.PublisherNotAuthorized {
		t.Errorf("not expected: %s", text)
	}
	if err := l.b.host.Expect(ctx, p.id); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key    *record.Key
		change func(*record.Transfer)
		code   record.Code
	}{
		"another Host's key":  {record.NewKey(), same, record.PublisherNotAuthorized},
		"for another Host":    {l.a.config.Key, func(t *record.Transfer) { t.To = l.a.host.ID() }, record.PublisherNotAuthorized},
		"another generation":  {l.a.config.Key, func(t *record.Transfer) { t.Generation++ }, record.PublisherNotAuthorized},
		"another hash":        {l.a.config.Key, func(t *record.Transfer) { t.Prev = "x" }, record.PublisherNotAuthorized},
		"another record":      {l.a.config.Key, func(t *record.Transfer) { t.Record = other.id }, record.PublisherNotAuthorized},
		"expired":             {l.a.config.Key, func(t *record.Transfer) { t.Expires = 1 }, record.PublisherNotAuthorized},
		"to another Host URL": {l.a.config.Key, func(t *record.Transfer) { t.Host.FHIRBase = "https://evil/fhir" }, record.PublisherNotAuthorized},
	} {
		if code, text := send(c.key, c.change, good); code != c.code {
			t.Errorf("%s: %s", name, text)
		}
	}
	lines := bytes.SplitAfter(good, []byte("\n"))
	without := func(i int) []byte {
		return bytes.Join(append(append([][]byte{}, lines[:i]...), lines[i+1:]...), nil)
	}
	for name, body := range map[string][]byte{
		"empty":                 nil,
		"cut off":               good[:len(good)/2],
		"no manifest":           bytes.Join(lines[:len(lines)-2], nil),
		"a version less":        without(2),
		"a grant less":          without(len(lines) - 3),
		"something behind":      append(bytes.Clone(good), []byte("{}\n")...),
		"another record":        export(other.id, l.b.host.ID()),
		"for another Host":      export(p.id, l.a.host.ID()),
		"altered content":       bytes.Replace(good, []byte(`\"valueInteger\":2`), []byte(`\"valueInteger\":3`), 1),
		"swapped":               bytes.Join([][]byte{lines[0], lines[2], lines[1], bytes.Join(lines[3:], nil)}, nil),
		"garbage":               []byte("x\n"),
		"unknown kind":          []byte(`{"kind":"x"}` + "\n"),
		"unknown member":        []byte(`{"kind":"version","x":1}` + "\n"),
		"a line without an end": bytes.Repeat([]byte("x"), 8<<20),
	} {
		if bytes.Equal(body, good) {
			t.Fatalf("%s changes nothing", name)
		}
		if code, text := send(l.a.config.Key, same, body); code == "" {
			t.Errorf("%s: %s", name, text)
		}
		if r, err := l.b.host.Record(ctx, p.id); err == nil && r.State != stateImporting {
			t.Fatalf("%s: the record is %s", name, r.State)
		}
	}
	// Without the Directory's word the record stays closed.
	if code, text := send(l.a.config.Key, same, good); code != "" {
		t.Fatalf("the true export: %s", text)
	}
	if err := l.b.host.Activate(ctx, p.id); !errors.Is(err, record.RecordFrozen) {
		t.Errorf("activated without a publication: %v", err)
	}
	if err := l.b.host.Activate(ctx, record.NewID()); !errors.Is(err, record.NotFound) {
		t.Errorf("activated what is not here: %v", err)
	}
}

// A client whose FollowMoves is set goes on by itself; an old Host that goes on
// answering is not asked again.
func TestClientFollowsMoves(t *testing.T) {
	l := newLand(t, dbtest.SQLite)
	p := l.patient(2, func(c *client.Config) { c.FollowMoves = true })
	ctx := context.Background()
	if err := l.b.host.Expect(ctx, p.id); err != nil {
		t.Fatal(err)
	}
	if err := l.a.host.Move(ctx, p.id, l.b.host.Ref(), nil); err != nil {
		t.Fatal(err)
	}
	p.write(record.Intent{Operation: record.CreateResource, Resource: p.obs("")})
	if at, _ := p.client.Location(p.id); at.Host.ID != l.b.host.ID() || at.Generation != 2 {
		t.Errorf("%+v", at)
	}
}

// An old Host that goes on answering after a move: the client that has seen the
// new location never goes back, and the old Host cannot publish itself again.
func TestOldHostGoesOnAnswering(t *testing.T) {
	l := newLand(t, dbtest.SQLite)
	p := l.patient(2)
	ctx := context.Background()
	before, err := directory.Client{}.Document(ctx, l.directory.Address(p.id))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.b.host.Expect(ctx, p.id); err != nil {
		t.Fatal(err)
	}
	if err := l.a.host.Move(ctx, p.id, l.b.host.Ref(), nil); err != nil {
		t.Fatal(err)
	}
	p.check()
	err = l.a.host.db.Write(ctx, "go on", func(tx db.Tx) error { return l.a.host.setState(tx, p.id, stateActive) })
	if err != nil {
		t.Fatal(err)
	}
	// The document of the time before is still signed and not expired.
	if _, err := p.client.FollowMigration(ctx, p.id, before, l.directory.Address(p.id), 1); !errors.Is(err, record.StaleDiscoveryGeneration) {
		t.Errorf("the old document: %v", err)
	}
	p.write(record.Intent{Operation: record.CreateResource, Resource: p.obs("")})
	if r, err := record.ReadReceipt(p.first[len(p.first)-1].Receipt); err != nil || r.Host != l.b.host.ID() {
		t.Errorf("the write went to %s, %v", r.Host, err)
	}
	now, err := l.a.config.Directory.locate(ctx, p.id)
	if err != nil {
		t.Fatal(err)
	}
	grab := l.a.host.publication(p.id, 3, now.Hash(), l.a.host.Ref(), "mine again")
	signed, err := record.SignPublication([]*record.Key{l.a.config.Key}, grab)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.a.config.Directory.publish(ctx, grab, signed); !errors.Is(err, record.PublisherNotAuthorized) {
		t.Errorf("the old Host publishes itself: %v", err)
	}
	// And a replay by it is no receipt of the record's present Host.
	if l, err := p.client.Locate(ctx, p.id); err != nil || l.Generation != 2 {
		t.Errorf("%+v, %v", l, err)
	}
}
