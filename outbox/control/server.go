package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/eda94727/holdfast/outbox"
	"github.com/eda94727/holdfast/record"
)

// Options for [Start]. The zero value is good.
type Options struct {
	// Log takes what happens, without content; nil means no log.
	Log *slog.Logger
}

// Server answers on the socket of a queue.
type Server struct {
	queue  *outbox.Outbox
	http   http.Server
	socket string
	bound  os.FileInfo
	slots  chan struct{}
	done   chan struct{}
	log    *slog.Logger
}

// atOnce bounds the requests that are worked on at the same time; others wait.
const atOnce = 16

// Start answers for a queue that this process has opened at path, until
// [Server.Close]. What an owner before has left behind is replaced. The error says
// why there can be no socket (a file system that knows none, say): the queue itself
// works without.
func Start(b *outbox.Outbox, path string, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	socket, err := socketPath(path)
	if err != nil {
		return nil, err
	}
	l, err := listen(socket)
	if err != nil {
		return nil, fmt.Errorf("control: listen on %s: %w", socket, err)
	}
	s := &Server{queue: b, socket: socket, slots: make(chan struct{}, atOnce), done: make(chan struct{}), log: o.Log}
	if s.bound, err = os.Lstat(socket); err != nil {
		return nil, errors.Join(fmt.Errorf("control: %w", err), l.Close())
	}
	s.http = http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn)}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the queue's control socket has ended", "err", err)
		}
	}()
	return s, nil
}

// closeGrace is how long requests that are running may end when a server closes.
const closeGrace = 2 * time.Second

// Close takes no more requests, lets running ones end within two seconds, and removes
// the socket. The queue stays open.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-s.done
	// Only what is still this server's: the next owner may have begun.
	if now, statErr := os.Lstat(s.socket); statErr == nil && os.SameFile(now, s.bound) {
		err = errors.Join(err, os.Remove(s.socket))
	}
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

// handler answers the calls, each a POST of a request to its name.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	calls := map[string]func(ctx context.Context, r *request) (answer, error){
		"summary": s.summary, "entries": s.entries, "heads": s.heads, "entry": s.entry, "audit": s.audit, "enqueue": s.enqueue,
		"retry": s.retry, "rebase": s.rebase, "replace": s.replace, "discard": s.discard, "follow": s.follow, "prune": s.prune, "verify": s.verify,
	}
	for name, call := range calls {
		mux.HandleFunc("POST /v1/"+name, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, name, call) })
	}
	return mux
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, name string, call func(ctx context.Context, r *request) (answer, error)) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-r.Context().Done():
		return
	}
	var a answer
	body, err := readBody(w, r)
	if err == nil {
		var q request
		if err = record.DecodeJSON(body, record.Limits{Bytes: maxRequest}, &q); err == nil {
			a, err = call(r.Context(), &q)
		}
	}
	if err != nil {
		a = answer{Error: failed(err)}
		s.log.DebugContext(r.Context(), "control request failed", "call", name, "code", string(a.Error.Code))
	}
	w.Header().Set("Content-Type", "application/json")
	// A row of an altered file may hold anything.
	if err := json.MarshalWrite(w, a, jsontext.AllowInvalidUTF8(true)); err != nil {
		s.log.DebugContext(r.Context(), "control answer was not taken", "call", name, "err", err)
	}
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > maxRequest {
		w.Header().Set("Connection", "close")
		return nil, &record.Error{Code: record.InvalidMessage, Detail: fmt.Sprintf("the request has %d bytes, and the limit is %d", r.ContentLength, maxRequest)}
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
}

// failed is an error as it travels: without its cause, which may come from anywhere.
func failed(err error) *failure {
	var e *record.Error
	if errors.As(err, &e) {
		return &failure{Code: e.Code, Field: e.Field, Rule: e.Rule, Detail: e.Detail}
	}
	return &failure{Code: record.CodeOf(err), Detail: err.Error()}
}

func (s *Server) summary(ctx context.Context, _ *request) (answer, error) {
	sum, err := s.queue.Summary(ctx)
	open := map[outbox.State]depth{}
	for state, d := range sum.Open {
		open[state] = depth{d.Count, d.Oldest.UnixMilli()}
	}
	return answer{Open: open}, err
}

func (s *Server) entries(ctx context.Context, r *request) (answer, error) {
	return page(r, func(after int64, limit int) ([]outbox.Entry, error) {
		return s.queue.Entries(ctx, outbox.Filter{States: r.States, Patient: r.Patient, After: after, Limit: limit})
	})
}

// pageStep is how many entries are read at once where they go with their content.
const pageStep = 4

// page reads entries until there are enough of them, or until they are large.
func page(r *request, read func(after int64, limit int) ([]outbox.Entry, error)) (a answer, err error) {
	limit := r.Limit
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, 1000)
	size := 0
	for len(a.Entries) < limit {
		n := limit - len(a.Entries)
		if r.Content {
			n = min(n, pageStep)
		}
		list, err := read(r.After, n)
		if err != nil {
			return answer{}, err
		}
		for _, e := range list {
			if size > 0 && size+len(e.IntentJSON) > maxPage && r.Content {
				a.More = true
				return a, nil
			}
			size += len(e.IntentJSON)
			a.Entries = append(a.Entries, pack(e, r.Content))
			r.After = e.Sequence
		}
		if len(list) < n {
			break
		}
	}
	return a, nil
}

// heads never have their content: who wants to see one asks for the entry.
func (s *Server) heads(ctx context.Context, r *request) (a answer, err error) {
	list, err := s.queue.Heads(ctx, r.Patient, r.Limit)
	for _, e := range list {
		a.Entries = append(a.Entries, pack(e, false))
	}
	return a, err
}

func (s *Server) entry(ctx context.Context, r *request) (answer, error) {
	e, err := s.queue.Entry(ctx, r.Operation)
	if err != nil {
		return answer{}, err
	}
	return answer{Entries: []entry{pack(e, r.Content)}}, nil
}

func (s *Server) audit(ctx context.Context, r *request) (answer, error) {
	lines, err := s.queue.Audit(ctx, r.Operation, r.After, r.Limit)
	return answer{Audit: lines}, err
}

func (s *Server) enqueue(ctx context.Context, r *request) (answer, error) {
	id, err := s.queue.Enqueue(ctx, r.Intent.unpack())
	return answer{New: id}, err
}

func (s *Server) retry(ctx context.Context, r *request) (answer, error) {
	return answer{}, s.queue.Retry(ctx, r.Operation, r.change())
}

func (s *Server) rebase(ctx context.Context, r *request) (answer, error) {
	id, err := s.queue.Rebase(ctx, r.Operation, r.Base, r.change())
	return answer{New: id}, err
}

func (s *Server) replace(ctx context.Context, r *request) (answer, error) {
	id, err := s.queue.Replace(ctx, r.Operation, r.Intent.unpack(), r.change())
	return answer{New: id}, err
}

func (s *Server) discard(ctx context.Context, r *request) (answer, error) {
	return answer{}, s.queue.Discard(ctx, r.Operation, r.change())
}

func (s *Server) follow(ctx context.Context, r *request) (answer, error) {
	return answer{}, s.queue.Follow(ctx, r.Patient)
}

func (s *Server) prune(ctx context.Context, r *request) (answer, error) {
	n, err := s.queue.Prune(ctx, time.UnixMilli(r.Before))
	return answer{Removed: n}, err
}

func (s *Server) verify(ctx context.Context, _ *request) (answer, error) {
	v, err := s.queue.Verify(ctx)
	return answer{Found: &v}, err
}
