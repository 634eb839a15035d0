package holdfasttest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/holdfasttest"
)

type mail struct{ To string }

var send = holdfast.Define[mail, string]("mail.send")

func TestRunTakesOneTaskThroughItsHandler(t *testing.T) {
	env := holdfasttest.New(t)
	out, task := holdfasttest.Run(t, env, send, func(_ context.Context, run *holdfast.Run, m mail) (string, error) {
		if _, err := run.Client().Submit(context.Background(), "mail.sent", m, holdfast.Queue("log")); err != nil {
			return "", err
		}
		return "sent to " + m.To, nil
	}, mail{"ada"})
	if out != "sent to ada" || task.Status != holdfast.Succeeded {
		t.Errorf("%q, %s", out, task.Status)
	}
	child := env.RequireSubmitted(t, "mail.sent", holdfasttest.Payload(map[string]any{"To": "ada"}), holdfasttest.On("log"))
	if child.ParentID != task.ID {
		t.Errorf("the child's parent is %q", child.ParentID)
	}
	env.RequireNotSubmitted(t, "mail.sent", holdfasttest.On("default"))
}

func TestTheClockMovesDelaysBackoffsAndLeases(t *testing.T) {
	env := holdfasttest.New(t)
	ctx := context.Background()
	task, err := send.Submit(ctx, env.Client, mail{"ada"}, holdfast.Delay(24*time.Hour), holdfast.MaxAttempts(2))
	if err != nil {
		t.Fatal(err)
	}
	failing := func(w *holdfast.Worker) {
		send.Handle(w, func(context.Context, *holdfast.Run, mail) (string, error) { return "", errors.New("down") })
	}
	env.Work(t, failing)
	if now := env.RequireStatus(t, task.ID, holdfast.Queued); now.Attempt != 0 {
		t.Fatal("it ran a day too early")
	}
	env.Clock.Advance(24 * time.Hour)
	env.Work(t, failing)
	if now := env.RequireStatus(t, task.ID, holdfast.Queued); now.Attempt != 1 || now.RunAt.Before(env.Clock.Now()) {
		t.Fatalf("after one attempt: %+v", now)
	}
	env.Clock.Advance(time.Minute)
	got, err := env.Store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 1}}, WorkerID: "one that dies", Lease: time.Minute})
	if err != nil || len(got.Tasks) != 1 {
		t.Fatal(got, err)
	}
	env.Clock.Advance(2 * time.Minute)
	env.Work(t, failing)
	if f := env.RequireStatus(t, task.ID, holdfast.Failed).Failure(); f.Code != holdfast.CodeLeaseExpired {
		t.Errorf("failure %v", f)
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		holdfasttest.New(b)
	}
}

func TestTheClockMovesSchedules(t *testing.T) {
	env := holdfasttest.New(t)
	nightly := send.Schedule("nightly", "30 4 * * *", mail{"ada"})
	nightly.Zone = "UTC"
	if _, err := env.Client.PutSchedule(context.Background(), nightly); err != nil {
		t.Fatal(err)
	}
	sent := 0
	work := func(w *holdfast.Worker) {
		send.Handle(w, func(context.Context, *holdfast.Run, mail) (string, error) { sent++; return "sent", nil })
	}
	env.Work(t, work)
	if sent != 0 {
		t.Fatal("it ran before its time")
	}
	for day := 1; day <= 3; day++ {
		env.Clock.Advance(24 * time.Hour)
		env.Work(t, work)
		if sent != day {
			t.Fatalf("after %d days it ran %d times", day, sent)
		}
	}
}
