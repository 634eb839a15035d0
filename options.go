package holdfast

import (
	"cmp"
	"time"
)

// SubmitOption changes one submission. Given to Define, it is that definition's default.
type SubmitOption func(*submission)

// submission collects options; the first mistake is kept and refused at the edge.
type submission struct {
	Submission
	metadata  any
	partition string
	err       error
}

func (s *submission) refuse(err error) { s.err = cmp.Or(s.err, err) }

// Queue puts the task on that queue instead of "default".
func Queue(name string) SubmitOption {
	return func(s *submission) {
		s.refuse(checkText("queue", name, true))
		s.Submission.Queue = name
	}
}

// Key gives the task a business key: at most one current task stands under it. The strategy (Reuse
// unless given) decides what happens when the key is taken.
func Key(key string, strategy ...Strategy) SubmitOption {
	return func(s *submission) {
		s.refuse(checkText("key", key, true))
		s.Submission.Key, s.Strategy = key, Reuse
		for _, st := range strategy {
			s.Strategy = st
		}
	}
}

// Priority: higher runs first, among all tasks of the worker's queues. 0 unless given.
func Priority(n int) SubmitOption { return func(s *submission) { s.Submission.Priority = n } }

// MaxAttempts is how often the task is started at most; 3 unless given.
func MaxAttempts(n int) SubmitOption {
	return func(s *submission) {
		if n < 1 {
			s.refuse(invalid("max_attempts", n, "is below 1; a task is tried at least once"))
		}
		s.Submission.MaxAttempts = n
	}
}

// Delay keeps the task from starting for that long.
func Delay(d time.Duration) SubmitOption { return func(s *submission) { s.Submission.Delay = d } }

// At keeps the task from starting before t. A time that has passed means now.
func At(t time.Time) SubmitOption {
	return func(s *submission) { s.Submission.Delay = max(0, time.Until(t)) }
}

// Metadata is a value of the submitter's own that travels with the task, encoded as JSON.
func Metadata(v any) SubmitOption { return func(s *submission) { s.metadata = v } }

// CorrelationID lets tasks be found by an id of another system.
func CorrelationID(id string) SubmitOption {
	return func(s *submission) {
		s.refuse(checkText("correlation_id", id, true))
		s.Submission.CorrelationID = id
	}
}

// Parent places the task in parent's tree. Run.Client does so by itself.
func Parent(parent *Task) SubmitOption {
	return func(s *submission) { s.ParentID, s.RootID = parent.ID, cmp.Or(parent.RootID, parent.ID) }
}

// Item is one task for Client.SubmitMany. Make it with NewItem or Definition.Item.
type Item struct {
	name    string
	payload any
	options []SubmitOption
}

// NewItem is a task by name.
func NewItem(name string, payload any, options ...SubmitOption) Item {
	return Item{name, payload, options}
}

// build makes the submission, with the client's own options before the item's.
func (i Item) build(limit int, before []SubmitOption) (*Submission, error) {
	s := &submission{}
	s.Name = i.name
	for _, list := range [...][]SubmitOption{before, i.options} {
		for _, o := range list {
			o(s)
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	var err error
	if i.payload != nil {
		if s.Payload, err = encode("payload", i.payload, limit); err != nil {
			return nil, err
		}
	}
	if s.metadata != nil {
		if s.Submission.Metadata, err = encode("metadata", s.metadata, limit); err != nil {
			return nil, err
		}
	}
	if s.partition != "" {
		if s.Submission.Metadata, err = withField("metadata", s.Submission.Metadata, partitionField, s.partition); err != nil {
			return nil, err
		}
	}
	return &s.Submission, nil
}
