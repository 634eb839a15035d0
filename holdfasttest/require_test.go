package holdfasttest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/holdfasttest"
)

// recorder is a test that keeps why it failed.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure runs fn as a test of its own, and answers why it failed.
func failure(t *testing.T, fn func(t testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(r)
	}()
	<-done
	return r.said
}

// What does not hold fails the test, and says what there is instead.
func TestRequirementsFail(t *testing.T) {
	env := holdfasttest.New(t)
	ctx := context.Background()
	if said := failure(t, func(t testing.TB) { env.RequireSubmitted(t, "mail.send") }); !strings.Contains(said, `"mail.send"`) || !strings.Contains(said, "nothing") {
		t.Errorf("of an empty store: %q", said)
	}
	task, err := send.Submit(ctx, env.Client, mail{"ada"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		fn   func(t testing.TB)
		says string
	}{
		"another name":      {func(t testing.TB) { env.RequireSubmitted(t, "mail.sent") }, task.ID},
		"another payload":   {func(t testing.TB) { env.RequireSubmitted(t, "mail.send", holdfasttest.Payload(mail{"bob"})) }, `{"To":"ada"}`},
		"another queue":     {func(t testing.TB) { env.RequireSubmitted(t, "mail.send", holdfasttest.On("bulk")) }, "on default"},
		"not submitted":     {func(t testing.TB) { env.RequireNotSubmitted(t, "mail.send") }, "found 1"},
		"another status":    {func(t testing.TB) { env.RequireStatus(t, task.ID, holdfast.Succeeded) }, "is queued, want succeeded"},
		"no such task":      {func(t testing.TB) { env.RequireStatus(t, "task_none", holdfast.Succeeded) }, "no such task"},
		"a worker's config": {func(t testing.TB) { env.Work(t, func(*holdfast.Worker) {}) }, "handlers"},
	} {
		if said := failure(t, c.fn); !strings.Contains(said, "holdfasttest: ") || !strings.Contains(said, c.says) {
			t.Errorf("%s: it says %q, want %q in it", name, said, c.says)
		}
	}
	if said := failure(t, func(t testing.TB) { env.RequireSubmitted(t, "mail.send", holdfasttest.Payload(mail{"ada"})) }); said != "" {
		t.Errorf("what holds fails: %q", said)
	}
	if _, err := send.Submit(ctx, env.Client, mail{"ada"}); err != nil {
		t.Fatal(err)
	}
	if said := failure(t, func(t testing.TB) { env.RequireSubmitted(t, "mail.send") }); !strings.Contains(said, "found 2") {
		t.Errorf("two that fit: %q", said)
	}
}

// Run answers how a task ended whose handler failed.
func TestRunOfAFailure(t *testing.T) {
	env := holdfasttest.New(t)
	out, task := holdfasttest.Run(t, env, send, func(context.Context, *holdfast.Run, mail) (string, error) {
		return "not this", holdfast.Permanent(errors.New("no such address"))
	}, mail{"ada"})
	if out != "" || task.Status != holdfast.Failed || task.Failure().Message != "no such address" {
		t.Errorf("%q, %s, %v", out, task.Status, task.Failure())
	}
}
