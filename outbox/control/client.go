package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/eda94727/holdfast/outbox"
	"github.com/eda94727/holdfast/record"
)

// ErrNobody: no owner of the queue answers on its socket. None may be running, or it
// does not call [Start].
var ErrNobody = errors.New("control: nobody answers for the queue")

// Client looks after a queue that another process owns. It is safe for concurrent
// use. Errors of the queue come as the owner's: *[record.Error] with the same code.
type Client struct {
	// Content asks for what the entries hold. Otherwise they come as [Redact] leaves
	// them. It is set before the first call.
	Content bool

	http http.Client
}

// Dial returns a client for the queue file at path: [ErrNobody] where nobody answers.
func Dial(ctx context.Context, path string) (*Client, error) {
	socket, err := socketPath(path)
	if err != nil {
		return nil, err
	}
	first, err := dial(ctx, path, socket)
	if err != nil {
		return nil, err
	}
	k := &Client{}
	ready := make(chan net.Conn, 1)
	ready <- first
	k.http.Transport = &http.Transport{MaxIdleConnsPerHost: 2, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case c := <-ready:
				return c, nil
			default:
				return dial(ctx, path, socket)
			}
		}}
	return k, nil
}

// Close lets go of the connections.
func (k *Client) Close() { k.http.CloseIdleConnections() }

func (k *Client) call(ctx context.Context, name string, r request) (a answer, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return a, fmt.Errorf("control: %s: %w", name, err)
	}
	if len(body) > maxRequest {
		return a, &record.Error{Code: record.InvalidMessage, Field: "intent", Detail: fmt.Sprintf("the request has %d bytes, and the limit is %d", len(body), maxRequest)}
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://outbox/v1/"+name, bytes.NewReader(body))
	if err != nil {
		return a, fmt.Errorf("control: %s: %w", name, err)
	}
	got, err := k.http.Do(q)
	if err != nil {
		return a, fmt.Errorf("control: %s: the queue's owner does not answer: %w", name, err)
	}
	defer got.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(got.Body, maxAnswer+1))
	switch {
	case err != nil:
		return a, fmt.Errorf("control: %s: the queue's owner has stopped answering: %w", name, err)
	case len(raw) > maxAnswer:
		return a, fmt.Errorf("control: %s: the answer has more than %d bytes", name, maxAnswer)
	case got.StatusCode != http.StatusOK:
		return a, fmt.Errorf("control: the queue's owner does not know the call %s (status %d); it may be of another version", name, got.StatusCode)
	}
	if err := json.Unmarshal(raw, &a, jsontext.AllowInvalidUTF8(true)); err != nil {
		return a, fmt.Errorf("control: %s: the answer cannot be read: %w", name, err)
	}
	if f := a.Error; f != nil {
		if f.Code == "" {
			return answer{}, errors.New(f.Detail)
		}
		return answer{}, &record.Error{Code: f.Code, Field: f.Field, Rule: f.Rule, Detail: f.Detail}
	}
	return a, nil
}

// Summary is [outbox.Outbox.Summary].
func (k *Client) Summary(ctx context.Context) (outbox.Summary, error) {
	a, err := k.call(ctx, "summary", request{})
	if err != nil {
		return outbox.Summary{}, err
	}
	sum := outbox.Summary{Open: map[outbox.State]outbox.Depth{}}
	for state, d := range a.Open {
		sum.Open[state] = outbox.Depth{Count: d.Count, Oldest: time.UnixMilli(d.Oldest)}
	}
	return sum, nil
}

// Entries is [outbox.Outbox.Entries].
func (k *Client) Entries(ctx context.Context, f outbox.Filter) (list []outbox.Entry, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	f.Limit = min(f.Limit, 1000)
	for len(list) < f.Limit {
		a, err := k.call(ctx, "entries", request{States: f.States, Patient: f.Patient, After: f.After, Limit: f.Limit - len(list), Content: k.Content})
		if err != nil {
			return nil, err
		}
		for _, e := range a.Entries {
			list = append(list, e.unpack())
			f.After = e.Sequence
		}
		if !a.More {
			break
		}
	}
	return list, nil
}

// Heads is [outbox.Outbox.Heads], always as [Redact] leaves them.
func (k *Client) Heads(ctx context.Context, after string, limit int) (list []outbox.Entry, err error) {
	a, err := k.call(ctx, "heads", request{Patient: after, Limit: limit})
	for _, e := range a.Entries {
		list = append(list, e.unpack())
	}
	return list, err
}

// Entry is [outbox.Outbox.Entry].
func (k *Client) Entry(ctx context.Context, operationID string) (outbox.Entry, error) {
	a, err := k.call(ctx, "entry", request{Operation: operationID, Content: k.Content})
	if err != nil {
		return outbox.Entry{}, err
	}
	if len(a.Entries) != 1 {
		return outbox.Entry{}, errors.New("control: the queue's owner answers without an entry")
	}
	return a.Entries[0].unpack(), nil
}

// Audit is [outbox.Outbox.Audit].
func (k *Client) Audit(ctx context.Context, operationID string, after int64, limit int) ([]outbox.AuditLine, error) {
	a, err := k.call(ctx, "audit", request{Operation: operationID, After: after, Limit: limit})
	return a.Audit, err
}

// Enqueue is [outbox.Outbox.Enqueue].
func (k *Client) Enqueue(ctx context.Context, i record.Intent) (operationID string, err error) {
	a, err := k.call(ctx, "enqueue", request{Intent: packIntent(i)})
	return a.New, err
}

func changed(operationID string, ch outbox.Change) request {
	return request{Operation: operationID, Reason: ch.Reason, By: ch.By, Unsure: ch.Unsure}
}

// Retry is [outbox.Outbox.Retry].
func (k *Client) Retry(ctx context.Context, operationID string, ch outbox.Change) error {
	_, err := k.call(ctx, "retry", changed(operationID, ch))
	return err
}

// Rebase is [outbox.Outbox.Rebase].
func (k *Client) Rebase(ctx context.Context, operationID string, baseVersion int64, ch outbox.Change) (newID string, err error) {
	r := changed(operationID, ch)
	r.Base = baseVersion
	a, err := k.call(ctx, "rebase", r)
	return a.New, err
}

// Replace is [outbox.Outbox.Replace].
func (k *Client) Replace(ctx context.Context, operationID string, i record.Intent, ch outbox.Change) (newID string, err error) {
	r := changed(operationID, ch)
	r.Intent = packIntent(i)
	a, err := k.call(ctx, "replace", r)
	return a.New, err
}

// Discard is [outbox.Outbox.Discard].
func (k *Client) Discard(ctx context.Context, operationID string, ch outbox.Change) error {
	_, err := k.call(ctx, "discard", changed(operationID, ch))
	return err
}

// Follow is [outbox.Outbox.Follow].
func (k *Client) Follow(ctx context.Context, patient string) error {
	_, err := k.call(ctx, "follow", request{Patient: patient})
	return err
}

// Prune is [outbox.Outbox.Prune].
func (k *Client) Prune(ctx context.Context, before time.Time) (removed int64, err error) {
	a, err := k.call(ctx, "prune", request{Before: before.UnixMilli()})
	return a.Removed, err
}

// Verify is [outbox.Outbox.Verify].
func (k *Client) Verify(ctx context.Context) (outbox.Verification, error) {
	a, err := k.call(ctx, "verify", request{})
	if err == nil && a.Found == nil {
		err = errors.New("control: the queue's owner answers without a verification")
	}
	if err != nil {
		return outbox.Verification{}, err
	}
	return *a.Found, nil
}
