package control

import (
	"context"
	"time"

	"github.com/eda94727/holdfast/outbox"
	"github.com/eda94727/holdfast/record"
)

// Queue is what can be done to a queue from outside: an [outbox.Outbox] that this
// process owns, or a [Client] of one that another owns.
type Queue interface {
	Summary(ctx context.Context) (outbox.Summary, error)
	Entries(ctx context.Context, f outbox.Filter) ([]outbox.Entry, error)
	Heads(ctx context.Context, after string, limit int) ([]outbox.Entry, error)
	Entry(ctx context.Context, operationID string) (outbox.Entry, error)
	Audit(ctx context.Context, operationID string, after int64, limit int) ([]outbox.AuditLine, error)
	Enqueue(ctx context.Context, intent record.Intent) (operationID string, err error)
	Retry(ctx context.Context, operationID string, ch outbox.Change) error
	Rebase(ctx context.Context, operationID string, baseVersion int64, ch outbox.Change) (newID string, err error)
	Replace(ctx context.Context, operationID string, intent record.Intent, ch outbox.Change) (newID string, err error)
	Discard(ctx context.Context, operationID string, ch outbox.Change) error
	Follow(ctx context.Context, patient string) error
	Prune(ctx context.Context, before time.Time) (removed int64, err error)
	Verify(ctx context.Context) (outbox.Verification, error)
}

var (
	_ Queue = (*outbox.Outbox)(nil)
	_ Queue = (*Client)(nil)
)

// Bounds of what goes over the socket. A page of entries with content is cut when it
// has grown to maxPage, so that only a single entry can be larger.
const (
	maxRequest = 64 << 20
	maxPage    = 4 << 20
	maxAnswer  = 128 << 20
)

// Times of one request on the socket. A prune may take its time.
const (
	readTimeout  = 30 * time.Second
	writeTimeout = 10 * time.Minute
)

// request is the body of every call; each uses the members that it needs.
type request struct {
	Operation string         `json:"operation_id,omitzero"`
	States    []outbox.State `json:"states,omitzero"`
	Patient   string         `json:"patient,omitzero"`
	After     int64          `json:"after,omitzero"`
	Limit     int            `json:"limit,omitzero"`
	Content   bool           `json:"content,omitzero"`
	Base      int64          `json:"base_version,omitzero"`
	Before    int64          `json:"before_ms,omitzero"`
	Reason    string         `json:"reason,omitzero"`
	By        string         `json:"by,omitzero"`
	Unsure    bool           `json:"unsure,omitzero"`
	Intent    *intent        `json:"intent,omitzero"`
}

func (r *request) change() outbox.Change {
	return outbox.Change{Reason: r.Reason, By: r.By, Unsure: r.Unsure}
}

// intent carries the resource as text, so that each of its bytes arrives.
type intent struct {
	record.Intent
	Resource string `json:"resource_text,omitzero"`
}

func packIntent(i record.Intent) *intent {
	p := intent{Intent: i, Resource: string(i.Resource)}
	p.Intent.Resource = nil
	return &p
}

func (p *intent) unpack() record.Intent {
	if p == nil {
		return record.Intent{}
	}
	i := p.Intent
	if p.Resource != "" {
		i.Resource = []byte(p.Resource)
	}
	return i
}

// answer is the body of every answer.
type answer struct {
	Entries []entry                `json:"entries,omitzero"`
	More    bool                   `json:"more,omitzero"`
	Audit   []outbox.AuditLine     `json:"audit,omitzero"`
	Open    map[outbox.State]depth `json:"open,omitzero"`
	New     string                 `json:"operation_id,omitzero"`
	Removed int64                  `json:"removed,omitzero"`
	Found   *outbox.Verification   `json:"found,omitzero"`
	Error   *failure               `json:"error,omitzero"`
}

type depth struct {
	Count  int64 `json:"count"`
	Oldest int64 `json:"oldest_ms"`
}

// entry is an [outbox.Entry] on its way; the intent travels as text.
type entry struct {
	Sequence   int64            `json:"sequence"`
	Operation  string           `json:"operation_id"`
	Patient    string           `json:"patient"`
	Kind       record.Operation `json:"operation"`
	Position   int64            `json:"position"`
	State      outbox.State     `json:"state"`
	Intent     string           `json:"intent,omitzero"`
	Digest     string           `json:"digest,omitzero"`
	Result     *record.Result   `json:"result,omitzero"`
	Code       record.Code      `json:"code,omitzero"`
	Detail     string           `json:"detail,omitzero"`
	Attempts   int64            `json:"attempts"`
	Unsure     bool             `json:"unsure"`
	ReplacedBy string           `json:"replaced_by,omitzero"`
	Created    int64            `json:"created_ms"`
	Changed    int64            `json:"changed_ms"`
}

// Redact takes patients' data out of an entry: the intent, its digest, and the
// failure's detail, which may quote it.
func Redact(e outbox.Entry) outbox.Entry {
	e.IntentJSON, e.Digest = nil, ""
	if e.Detail != "" {
		e.Detail = Redacted
	}
	return e
}

// Redacted stands where a detail was that [Redact] took out.
const Redacted = "(not shown)"

func pack(e outbox.Entry, content bool) entry {
	if !content {
		e = Redact(e)
	}
	return entry{e.Sequence, e.OperationID, e.Patient, e.Operation, e.Position, e.State, string(e.IntentJSON), e.Digest, e.Result, e.Code, e.Detail,
		e.Attempts, e.Unsure, e.ReplacedBy, e.Created.UnixMilli(), e.Changed.UnixMilli()}
}

func (e entry) unpack() outbox.Entry {
	u := outbox.Entry{Sequence: e.Sequence, OperationID: e.Operation, Patient: e.Patient, Operation: e.Kind, Position: e.Position, State: e.State,
		Digest: e.Digest, Result: e.Result, Code: e.Code, Detail: e.Detail, Attempts: e.Attempts, Unsure: e.Unsure, ReplacedBy: e.ReplacedBy,
		Created: time.UnixMilli(e.Created), Changed: time.UnixMilli(e.Changed)}
	if e.Intent != "" {
		u.IntentJSON = []byte(e.Intent)
	}
	return u
}

// failure is an error on its way.
type failure struct {
	Code   record.Code `json:"code,omitzero"`
	Field  string      `json:"field,omitzero"`
	Rule   string      `json:"rule,omitzero"`
	Detail string      `json:"detail,omitzero"`
}
