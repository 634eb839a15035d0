package postgres

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/eda94727/holdfast"
)

// ear listens for the protocol's notifications on a connection of its own, from the first time that
// somebody waits until the store is closed. It asks for the ends of tasks only once somebody has
// waited for one: there are as many as tasks, and a host that only works need not hear of them. When
// the connection is lost it comes back by itself; until then workers poll.
type ear struct {
	config *pgx.ConnConfig
	log    *slog.Logger
	hub    *holdfast.Hub

	mu      sync.Mutex
	stop    context.CancelFunc
	closed  bool
	running sync.WaitGroup

	tasks     context.Context // ends when the ends of tasks are wanted
	wantTasks context.CancelFunc
}

func newEar(pool *pgxpool.Pool, log *slog.Logger) *ear {
	e := &ear{config: pool.Config().ConnConfig.Copy(), log: log}
	e.tasks, e.wantTasks = context.WithCancel(context.Background())
	return e
}

// want is called when somebody waits, and when nobody does any more.
func (e *ear) want(queues, tasks bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if tasks {
		e.wantTasks()
	}
	if !queues && !tasks || e.stop != nil || e.closed {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.running.Go(func() { e.run(ctx) })
}

func (e *ear) close() {
	e.mu.Lock()
	e.closed = true
	if e.stop != nil {
		e.stop()
	}
	e.mu.Unlock()
	e.running.Wait()
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 10 * time.Second
	// quietCheck is how long a silent connection is trusted before it is asked.
	quietCheck = 30 * time.Second
)

func (e *ear) run(ctx context.Context) {
	pause := firstPause
	told := false
	for ctx.Err() == nil {
		start := time.Now()
		err := e.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > lastPause {
			pause, told = firstPause, false
		}
		if !told {
			told = true
			e.log.Warn("holdfast: no notifications from the database for now; workers poll until they come back", "error", translate("listen", err))
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		}
		pause = min(pause*2, lastPause)
	}
}

// listen connects and passes notifications on until the connection is lost.
func (e *ear) listen(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.ConnectConfig(short, e.config.Copy())
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(end) // it is over either way
	}()
	// patience ends with ctx, and once when the ends of tasks are wanted.
	patience, enough := context.WithCancel(ctx)
	defer enough()
	channels := []string{"cairnq_queued"}
	if e.tasks.Err() != nil {
		channels, patience = append(channels, "cairnq_done"), ctx
	} else {
		defer context.AfterFunc(e.tasks, enough)()
	}
	for _, channel := range channels {
		if _, err := conn.Exec(short, "listen "+channel); err != nil {
			return err
		}
	}
	e.hub.WakeAll() // whatever was missed meanwhile
	for {
		wait, cancel := context.WithTimeout(patience, quietCheck)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil && n.Channel == "cairnq_queued":
			e.hub.WakeQueue(n.Payload)
		case err == nil:
			e.hub.WakeTask(n.Payload)
		case ctx.Err() != nil:
			return ctx.Err()
		case patience.Err() != nil:
			patience = ctx
			short, cancel := context.WithTimeout(ctx, 10*time.Second)
			_, err := conn.Exec(short, "listen cairnq_done")
			cancel()
			if err != nil {
				return err
			}
			e.hub.WakeAll()
		case wait.Err() != nil:
			check, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := conn.Ping(check)
			cancel()
			if err != nil {
				return err
			}
		default:
			return err
		}
	}
}
