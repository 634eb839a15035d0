package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/eda94727/holdfast/internal/pgtest"
)

// TestMain makes this test program the one that measures, when it is started for that.
func TestMain(m *testing.M) {
	serve()
	os.Exit(m.Run())
}

func TestEveryContenderOnSQLite(t *testing.T) { measureAll(t, "sqlite") }

func TestEveryContenderOnPostgres(t *testing.T) {
	server := pgtest.Start(t, pgtest.Options{}) // also decides what happens where there is none
	t.Setenv("HOLDFAST_TEST_POSTGRES", server.DSN())
	measureAll(t, "postgres")
}

// measureAll takes every measurement of every contender with few tasks. That each ran once is checked where they are measured.
func measureAll(t *testing.T, db string) {
	chosen, err := choose("", db)
	if err != nil {
		t.Fatal(err)
	}
	r, err := suite{Tasks: 150, Rounds: 1, Pickups: 1}.run(t.Context(), chosen, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.failed(); err != nil {
		t.Error(err)
	}
	for _, row := range r.Rows {
		for _, m := range measures() {
			if m.what != "pickup" && len(row.PerSecond[m.String()]) != 1 {
				t.Errorf("%s: %s: %v", row.name, m, row.PerSecond[m.String()])
			}
		}
		if len(row.Pickups) != 1 || row.Pickups[0] <= 0 || row.Pickups[0] > 60_000 {
			t.Errorf("%s: picked up after %v ms", row.name, row.Pickups)
		}
	}
	text, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(text), `"per_second":{"drain 16":[`) {
		t.Errorf("as JSON: %v\n%s", err, text)
	}
}

func TestATaskThatRanTwiceOrNeverFailsADrain(t *testing.T) {
	for _, c := range []struct {
		name string
		runs []int64
		want string
	}{
		{"once each", []int64{2, 0, 1}, ""},
		{"one twice", []int64{0, 1, 2, 1}, "of 3 tasks 0 did not run, 1 ran more than once, and 0 ran that nobody submitted"},
		{"one never", []int64{0, 1}, "of 3 tasks 1 did not run, 0 ran more than once, and 0 ran that nobody submitted"},
		{"a strange one", []int64{0, 1, 2, 3}, "of 3 tasks 0 did not run, 0 ran more than once, and 1 ran that nobody submitted"},
	} {
		tally := newTally(3)
		for _, n := range c.runs {
			tally.add(n)
		}
		got := ""
		if err := tally.check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAFailureIsReported(t *testing.T) {
	broken := contender{library: "broken", db: "sqlite", open: holdfastContenders()[0].open} // no process knows it
	r, err := suite{Tasks: 1, Rounds: 1, Pickups: 1}.run(t.Context(), []contender{broken}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.failed(); err == nil || !strings.Contains(err.Error(), `there is no "sqlite/broken"`) {
		t.Errorf("got %v", err)
	}
}

func TestTables(t *testing.T) {
	r := &report{Rows: []*row{
		{Library: "holdfast", Database: "sqlite", name: "holdfast", PerSecond: map[string][]float64{"submit 1": {9000, 12345, 13000}, "drain 16": {20000}}, Pickups: []float64{1, 2, 30}},
		{Library: "other", Database: "sqlite", name: "other, tuned", PerSecond: map[string][]float64{"submit 1": {24690}, "drain 16": {200}}, Pickups: []float64{4}},
	}}
	const want = `| holdfast | 12,300 | – | 20,000 | – | 2.0 | 30 | – |
| other, tuned | 24,700 (0.5×) | – | 200 (100×) | – | 4.0 (2.0×) | 4.0 (0.13×) | – |
`
	if got := r.markdown(); !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s", got)
	}
	lines := strings.Split(strings.TrimSpace(r.text()), "\n")
	if a, b := lines[len(lines)-2], lines[len(lines)-1]; len([]rune(a)) != len([]rune(b)) {
		t.Errorf("columns do not line up:\n%s\n%s", a, b)
	}
}

func TestBadArguments(t *testing.T) {
	devNull, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer devNull.Close()
	for args, want := range map[string]string{
		"-peers asynq":          `-peers: there is no "asynq"`,
		"-peers gue -db sqlite": "-peers gue: none of them is measured on sqlite",
		"-db mysql":             `-db: there is no "mysql"`,
		"-tasks 0":              "-tasks 0: write a number from 1",
		"-peers holdfast river": `what is "river"?`,
	} {
		err := command(context.Background(), strings.Fields(args), devNull, devNull)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}
