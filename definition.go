package holdfast

import (
	"context"
)

// Definition ties a task's name to the types of its input and output, for submitters and handlers
// alike. Make it once, as a package variable, with Define.
type Definition[In, Out any] struct {
	name     string
	defaults []SubmitOption
}

// Define names a kind of task. The options are defaults of each submission.
func Define[In, Out any](name string, defaults ...SubmitOption) Definition[In, Out] {
	return Definition[In, Out]{name, defaults}
}

// Name is the task's name.
func (d Definition[In, Out]) Name() string { return d.name }

// Item is a task for Client.SubmitMany.
func (d Definition[In, Out]) Item(in In, options ...SubmitOption) Item {
	return Item{d.name, in, append(append([]SubmitOption{}, d.defaults...), options...)}
}

// Submit makes a task.
func (d Definition[In, Out]) Submit(ctx context.Context, c *Client, in In, options ...SubmitOption) (*Task, error) {
	i := d.Item(in, options...)
	return c.Submit(ctx, i.name, i.payload, i.options...)
}

// Call submits a task and waits for its result. See Client.Call.
func (d Definition[In, Out]) Call(ctx context.Context, c *Client, in In, options ...SubmitOption) (out Out, err error) {
	i := d.Item(in, options...)
	err = c.Call(ctx, i.name, i.payload, &out, i.options...)
	return out, err
}

// Wait waits for the end of a task that was submitted before, and answers its result, with the
// errors of Call.
func (d Definition[In, Out]) Wait(ctx context.Context, c *Client, id string) (out Out, err error) {
	err = c.outcome(ctx, id, &out)
	return out, err
}

// Handle registers the handler of the definition's tasks. See Worker.Handle.
func (d Definition[In, Out]) Handle(w *Worker, fn func(ctx context.Context, run *Run, in In) (Out, error), options ...HandlerOption) {
	w.Handle(d.name, func(ctx context.Context, run *Run) (any, error) {
		var in In
		if err := run.Task().Decode(&in); err != nil {
			return nil, invalidPayload(err)
		}
		out, err := fn(ctx, run, in)
		if err != nil {
			return nil, err
		}
		return out, nil
	}, options...)
}
