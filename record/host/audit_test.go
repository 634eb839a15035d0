package host

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
)

// A line waits for those that are expected, but not for ever, and the last line
// that comes lets all go. Each part hangs if that is not so.
func TestAuditLinesWaitForEachOther(t *testing.T) {
	ctx := context.Background()
	host, err := Open(ctx, Config{URL: "https://h.example", Database: filepath.Join(t.TempDir(), "h.db"), Key: record.NewKey()})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	line := AuditEntry{At: time.Now(), Record: "r", Action: "read", Outcome: "ok"}

	alone := newAuditor(host.db, slog.New(slog.DiscardHandler), time.Hour)
	if err := alone.add(ctx, line); err != nil {
		t.Error(err)
	}
	answers, ready := make(chan error), make(chan struct{})
	for range 3 {
		go func() {
			err := alone.before(func() error { <-ready; return nil })
			answers <- errors.Join(err, alone.add(ctx, line))
		}()
	}
	for alone.expected.Load() < 3 {
		runtime.Gosched()
	}
	close(ready)
	for range 3 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	never := make(chan struct{})
	defer close(never)
	go alone.before(func() error { <-never; return nil })
	for alone.expected.Load() < 1 {
		runtime.Gosched()
	}
	go func() { answers <- alone.add(ctx, line) }()
	for lines := 0; lines == 0; runtime.Gosched() { // until it stands in the queue
		alone.mu.Lock()
		lines = len(alone.lines)
		alone.mu.Unlock()
	}
	alone.close() // does not wait for what is expected, and loses nothing
	if err := <-answers; err != nil {
		t.Error(err)
	}
	if err := alone.add(ctx, line); record.CodeOf(err) != record.HostUnavailable {
		t.Errorf("after the end: %v", err)
	}

	short := newAuditor(host.db, slog.New(slog.DiscardHandler), time.Millisecond)
	defer short.close()
	go short.before(func() error { <-never; return nil }) // and it never comes
	for short.expected.Load() < 1 {
		runtime.Gosched()
	}
	if err := short.add(ctx, line); err != nil {
		t.Error(err)
	}
	list, err := host.Audit(ctx, "r", 0, 100)
	if err != nil || len(list) != 6 {
		t.Errorf("%d lines, %v; want 6", len(list), err)
	}
}
