package host

import (
	"context"
	"fmt"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/record"
)

// MoveInput is the payload of a move as a task.
type MoveInput struct {
	Record string         `json:"record"`
	To     record.HostRef `json:"to"`
}

// MoveResult says what a finished move has moved.
type MoveResult struct {
	Versions int64 `json:"versions"`
}

// moveAttempts lets a move outlast a Directory or Host that is away for days.
const moveAttempts = 1000

// MoveTask is [Host.Move] as a durable task: submit it with a key for each
// record ([MoveKey]), have it handled by [Host.HandleMoves], and watch its
// progress.
func MoveTask() holdfast.Definition[MoveInput, MoveResult] {
	return holdfast.Define[MoveInput, MoveResult]("record.move", holdfast.MaxAttempts(moveAttempts))
}

// MoveKey is the business key of the move of a record: one at a time. A move that
// has ended does not stand in the way of the next: a record may come back and
// leave again.
func MoveKey(recordID string) holdfast.SubmitOption {
	return holdfast.Key("record.move:"+recordID, holdfast.ReuseLive)
}

// HandleMoves makes a worker drive this Host's moves. A worker that is killed
// leaves a move where it stands, and the next attempt goes on there. What
// another attempt cannot mend (no such record, a move that was refused) fails
// the task at once; everything else is tried again, with pauses of up to five
// minutes.
func (h *Host) HandleMoves(w *holdfast.Worker) {
	MoveTask().Handle(w, func(ctx context.Context, run *holdfast.Run, in MoveInput) (MoveResult, error) {
		var versions int64
		told := time.Time{}
		err := h.Move(ctx, in.Record, in.To, func(step string, sent, total int64) {
			versions = max(versions, total)
			if time.Since(told) < time.Second && sent != 0 && sent != total {
				return
			}
			told = time.Now()
			share := map[string]float64{stepFrozen: 0, stepAccepted: 0.9, stepPublished: 0.95}[step]
			if step == stepFrozen && total > 0 {
				share = 0.9 * float64(sent) / float64(total)
			}
			// Progress is for the eye: a lost lease ends ctx, and with it the move.
			_ = run.Progress(ctx, share, fmt.Sprintf("%s, %d of %d versions", step, sent, total))
		})
		if err != nil && record.CodeOf(err).Class() == record.Rejected && record.CodeOf(err) != record.PublisherNotAuthorized {
			err = holdfast.Permanent(err)
		}
		return MoveResult{versions}, err
	}, holdfast.RetryBackoff(holdfast.Exponential(time.Second, 5*time.Minute)), holdfast.HandlerConcurrency(4))
}
