package holdfast

import (
	"bytes"
	"encoding/json"
	"time"
)

// tickField is the member of a task's metadata that tells the tick, for programs in any language.
const tickField = "holdfast_schedule"

type tickRecord struct {
	Schedule string `json:"name"`
	AtMS     int64  `json:"tick_ms"`
	LateMS   int64  `json:"late_ms,omitempty"`
	FromMS   int64  `json:"missed_from_ms,omitempty"`
	Manual   bool   `json:"manual,omitempty"`
}

// Tick says why a task was submitted: a schedule's time had come.
type Tick struct {
	// Schedule is the schedule's name.
	Schedule string
	// At is the time for which the task was planned, or of RunSchedule.
	At time.Time
	// Late is how long after At the task was submitted.
	Late time.Duration
	// MissedFrom is the first of the ticks that were left out before this one because they were missed;
	// zero where none was.
	MissedFrom time.Time
	// Manual tells that RunSchedule submitted the task.
	Manual bool
}

// TickOf answers the tick that submitted the task; false if no schedule did.
func TickOf(t *Task) (Tick, bool) {
	var m struct {
		Tick *tickRecord `json:"holdfast_schedule"`
	}
	if !bytes.Contains(t.Metadata, []byte(tickField)) || json.Unmarshal(t.Metadata, &m) != nil || m.Tick == nil {
		return Tick{}, false
	}
	r := m.Tick
	tick := Tick{Schedule: r.Schedule, At: time.UnixMilli(r.AtMS), Late: time.Duration(r.LateMS) * time.Millisecond, Manual: r.Manual}
	if r.FromMS != 0 {
		tick.MissedFrom = time.UnixMilli(r.FromMS)
	}
	return tick, true
}

// ScheduledAt is the time for which a schedule planned the task: At of TickOf. It is the same in each
// attempt, however late the task runs; false if no schedule submitted it.
func ScheduledAt(t *Task) (time.Time, bool) {
	tick, ok := TickOf(t)
	return tick.At, ok
}

// withTick adds the tick to the submitter's own metadata.
func withTick(metadata json.RawMessage, tick tickRecord) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if metadata != nil {
		if err := json.Unmarshal(metadata, &members); err != nil || members == nil {
			return nil, invalid("metadata", string(metadata), "is no JSON object, so the tick cannot be told in it; give such as map[string]string{\"tenant\": \"a\"}")
		}
	}
	raw, err := json.Marshal(tick)
	if err != nil {
		return nil, err
	}
	members[tickField] = raw
	return json.Marshal(members)
}
