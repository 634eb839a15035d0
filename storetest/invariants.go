package storetest

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// invariants are true of every task database at every moment; each query finds what breaks one.
var invariants = []struct{ rule, broken string }{
	{"a lease is not null exactly while the task runs",
		"select id from cairnq_tasks where (status = 'running') <> (lease_until_ms is not null)"},
	{"a task has ended exactly when its status is terminal",
		"select id from cairnq_tasks where (status in ('succeeded', 'failed', 'canceled')) <> (completed_at_ms is not null)"},
	{"a running task has a worker and was started",
		"select id from cairnq_tasks where status = 'running' and (worker_id is null or attempt < 1)"},
	{"a queued task belongs to nobody and is not asked to stop",
		"select id from cairnq_tasks where status = 'queued' and (worker_id is not null or cancel_requested_at_ms is not null)"},
	{"attempts are counted from 0 and bounded from 1",
		"select id from cairnq_tasks where attempt < 0 or max_attempts < 1"},
	{"only a success has a result",
		"select id from cairnq_tasks where status <> 'succeeded' and result is not null"},
	{"a failed task says why",
		"select id from cairnq_tasks where status = 'failed' and error is null"},
	{"a key points at a task that exists",
		"select k.key from cairnq_task_keys k where not exists (select 1 from cairnq_tasks t where t.id = k.task_id)"},
	{"nothing is changed before it was made",
		"select id from cairnq_tasks where updated_at_ms < created_at_ms"},
}

// CheckInvariants fails the test for every rule that the database breaks.
func CheckInvariants(t testing.TB, db *sql.DB) {
	t.Helper()
	for _, v := range invariants {
		broken, err := strings1(db, v.broken)
		if err != nil {
			t.Errorf("%s: %v", v.rule, err)
		}
		if len(broken) > 0 {
			t.Errorf("%s, but not of %s", v.rule, strings.Join(broken[:min(len(broken), 5)], ", "))
		}
	}
}

// strings1 reads the first column of a query.
func strings1(db *sql.DB, query string) (list []string, err error) {
	rows, err := db.Query(query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// parseExact reads one JSON value with numbers as fractions.
func parseExact(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return fractions(v), nil
}
