package service_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/directory"
	"github.com/eda94727/holdfast/record/directory/service"
	"github.com/eda94727/holdfast/record/internal/db/dbtest"
	"github.com/eda94727/holdfast/record/internal/dirtest"
)

func TestPublish(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		w := dirtest.New(t, url)
		if _, err := w.Client.Document(context.Background(), w.Address); !errors.Is(err, record.NotFound) {
			t.Errorf("an unpublished record: %v", err)
		}
		first := w.Publication(1, "", w.A)
		if _, err := w.Publish(first, w.B); !errors.Is(err, record.PublisherNotAuthorized) {
			t.Errorf("signed by another Host: %v", err)
		}
		stranger := record.NewKey()
		if _, err := w.Publish(w.Publication(1, "", stranger), stranger); !errors.Is(err, record.PublisherNotAuthorized) {
			t.Errorf("a Host that is not admitted: %v", err)
		}
		one, err := w.Publish(first, w.A)
		if err != nil || one.Generation != 1 || one.Host.ID != w.A.ID() {
			t.Fatalf("%+v, %v", one, err)
		}
		if again, err := w.Publish(first, w.A); err != nil || again.Hash() != one.Hash() {
			t.Errorf("the same publication again: %v", err)
		}
		// The move needs both Hosts, the right generation and the right hash.
		for name, c := range map[string]struct {
			p       record.Publication
			signers []*record.Key
			code    record.Code
		}{
			"only the new Host":  {w.Publication(2, one.Hash(), w.B), []*record.Key{w.B}, record.PublisherNotAuthorized},
			"only the old Host":  {w.Publication(2, one.Hash(), w.B), []*record.Key{w.A}, record.PublisherNotAuthorized},
			"wrong generation":   {w.Publication(3, one.Hash(), w.B), []*record.Key{w.A, w.B}, record.PublicationConflict},
			"wrong hash":         {w.Publication(2, "x", w.B), []*record.Key{w.A, w.B}, record.PublicationConflict},
			"generation 1 again": {w.Publication(1, "", w.B), []*record.Key{w.A, w.B}, record.PublicationConflict},
		} {
			if _, err := w.Publish(c.p, c.signers...); record.CodeOf(err) != c.code {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, alter := range map[string]func(*record.Publication){
			"directory": func(p *record.Publication) { p.Directory = "https://other" },
			"address":   func(p *record.Publication) { p.Address += "x" },
			"record":    func(p *record.Publication) { p.Record = record.NewID() },
			"host URL":  func(p *record.Publication) { p.Host.FHIRBase = "x" },
			"expired":   func(p *record.Publication) { p.Expires = w.Now.Unix() },
			"future":    func(p *record.Publication) { p.IssuedAt = w.Now.Add(time.Hour).Unix() },
			"long":      func(p *record.Publication) { p.Expires = w.Now.Add(24 * time.Hour).Unix() },
			"reason":    func(p *record.Publication) { p.Reason = strings.Repeat("x", 201) },
		} {
			p := w.Publication(2, one.Hash(), w.B)
			alter(&p)
			if _, err := w.Publish(p, w.A, w.B); !errors.Is(err, record.InvalidMessage) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := w.Client.Publish(context.Background(), w.Address, strings.Repeat("x", 40<<10)); !errors.Is(err, record.InvalidMessage) {
			t.Errorf("a large body: %v", err)
		}
		two, err := w.Publish(w.Publication(2, one.Hash(), w.B), w.A, w.B)
		if err != nil || two.Prev != one.Hash() {
			t.Fatalf("%+v, %v", two, err)
		}
		log, err := w.Client.Log(context.Background(), w.Address, 0, 2)
		if err != nil || len(log) != 2 {
			t.Errorf("log %d, %v", len(log), err)
		}
	})
}

// Of many who publish the next generation at once, one succeeds.
func TestPublishRace(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		w := dirtest.New(t, url)
		one := w.Chain(1)[0]
		var wg sync.WaitGroup
		results := make(chan error, 16)
		for i := range 16 {
			wg.Go(func() {
				p := w.Publication(2, one.Hash(), w.B)
				p.Reason = fmt.Sprint("racer ", i)
				signed, _ := record.SignPublication([]*record.Key{w.A, w.B}, p)
				_, err := w.Client.Publish(context.Background(), w.Address, signed)
				results <- err
			})
		}
		wg.Wait()
		close(results)
		won := 0
		for err := range results {
			if err == nil {
				won++
			} else if !errors.Is(err, record.PublicationConflict) && !errors.Is(err, record.PublisherNotAuthorized) {
				t.Errorf("a loser got %v", err)
			}
		}
		if won != 1 {
			t.Errorf("%d publications of one generation", won)
		}
	})
}

func TestOverrideAndHosts(t *testing.T) {
	w := dirtest.New(t, dbtest.SQLite(t))
	ctx := context.Background()
	one := w.Chain(1)[0]
	signed, _ := record.SignPublication([]*record.Key{w.B}, w.Publication(2, one.Hash(), w.B))
	if _, err := w.Service.Override(ctx, signed); err != nil {
		t.Fatal(err)
	}
	if err := w.Service.RemoveHost(ctx, w.B.ID()); err != nil {
		t.Fatal(err)
	}
	if err := w.Service.RemoveHost(ctx, w.B.ID()); !errors.Is(err, record.NotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if err := w.Service.AdmitHost(ctx, "x", ""); !errors.Is(err, record.InvalidMessage) {
		t.Errorf("a bad id: %v", err)
	}
	hosts, err := w.Service.Hosts(ctx)
	if err != nil || len(hosts) != 1 || hosts[0].ID != w.A.ID() {
		t.Errorf("%v, %v", hosts, err)
	}
}

// A document is signed again before it expires, and says the same.
func TestSignedAgain(t *testing.T) {
	w := dirtest.New(t, dbtest.SQLite(t))
	one := w.Chain(1)[0]
	w.Now = w.Now.Add(5 * 24 * time.Hour)
	document, err := w.Client.Document(context.Background(), w.Address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := record.VerifyLocation(document, w.Service.Quorum())
	if err != nil || l.Hash() != one.Hash() || l.Expires != w.Now.Add(7*24*time.Hour).Unix() {
		t.Errorf("%+v, %v", l, err)
	}
	if again, _ := w.Client.Document(context.Background(), w.Address); again != document {
		t.Error("signed at every request")
	}
}

func TestThreshold(t *testing.T) {
	w := dirtest.New(t, dbtest.SQLite(t), record.NewKey(), record.NewKey(), record.NewKey())
	w.Chain(3)
	trust, err := directory.OpenTrust(filepath.Join(t.TempDir(), "trust"), w.Pin(), func() time.Time { return w.Now })
	if err != nil {
		t.Fatal(err)
	}
	document, err := w.Client.Document(context.Background(), w.Address)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := trust.Accept(context.Background(), document, w.Address, 1, w.Client.Log); err != nil || l.Generation != 3 {
		t.Errorf("%+v, %v", l, err)
	}
	// One of the keys alone is not believed.
	l, err := record.VerifyLocation(document, w.Service.Quorum())
	if err != nil {
		t.Fatal(err)
	}
	forged, _ := record.SignLocation(w.Keys[:1], l)
	if _, err := trust.Accept(context.Background(), forged, w.Address, 1, w.Client.Log); !errors.Is(err, record.InvalidDiscovery) {
		t.Errorf("one key of three: %v", err)
	}
}

func TestHandlerAnswers(t *testing.T) {
	w := dirtest.New(t, dbtest.SQLite(t))
	w.Chain(1)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/keys": 200, "/records/" + w.Record: 200, "/records/" + w.Record + "/log": 200,
		"/records/" + w.Record + "/log?after=-1": 400, "/records/x": 404, "/records/x/log": 404, "/x": 404} {
		answer, err := w.Client.HTTP.Get(w.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
		if want >= 400 && path != "/x" && answer.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %s", path, answer.Header.Get("Content-Type"))
		}
	}
	w.Service.Close()
	answer, err := w.Client.HTTP.Get(w.URL + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("not ready: %d", answer.StatusCode)
	}
}

func TestOpenRefusals(t *testing.T) {
	for name, c := range map[string]service.Config{
		"no URL": {Keys: []*record.Key{record.NewKey()}}, "no keys": {URL: "https://d"}, "slash": {URL: "https://d/", Keys: []*record.Key{record.NewKey()}},
		"threshold": {URL: "https://d", Keys: []*record.Key{record.NewKey()}, Threshold: 2}, "lifetime": {URL: "https://d", Keys: []*record.Key{record.NewKey()}, Lifetime: time.Second},
	} {
		c.Database = dbtest.SQLite(t)
		if _, err := service.Open(context.Background(), c); err == nil {
			t.Errorf("%s passes", name)
		}
		if _, err := os.Stat(c.Database); err == nil {
			t.Errorf("%s: a database was made", name)
		}
	}
}

func TestFolderAndPin(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	c, err := service.InDir(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	again, err := service.InDir(dir, 2)
	if err != nil || again.Keys[1].ID() != c.Keys[1].ID() {
		t.Fatalf("other keys: %v", err)
	}
	if _, err := service.InDir(dir, 0); err == nil {
		t.Error("no keys pass")
	}
	w := dirtest.New(t, dbtest.SQLite(t), c.Keys...)
	answer, err := w.Client.HTTP.Get(w.URL + "/keys")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "pin.json")
	os.WriteFile(path, data, 0o600)
	pin, err := directory.LoadPin(path)
	if err != nil || pin.Directory != w.URL || pin.Threshold != 2 || !pin.Keys[0].Equal(w.Service.Pin().Keys[0]) {
		t.Errorf("%+v, %v", pin, err)
	}
	os.WriteFile(path, []byte(`{"directory":"https://d"}`), 0o600)
	if _, err := directory.LoadPin(path); err == nil {
		t.Error("a pin without keys passes")
	}
}
