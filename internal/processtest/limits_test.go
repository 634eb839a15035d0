package processtest

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// Four processes share limits while one after the other is killed: neither the concurrency of a name
// nor the rate of another is ever exceeded, the places of the dead come back, and all the work is done.
func TestLimitsHoldWhileProcessesAreKilled(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		const (
			tasks       = 120
			concurrency = 3
			rate        = 20 // a second
			burst       = 4
			kills       = 6
			slack       = 150 * time.Millisecond
		)
		store := d.open(t)
		client := holdfast.NewClient(store)
		db := d.noteClaims(t)
		ctx := deadline(t)
		for _, l := range []holdfast.Limit{
			{Kind: holdfast.LimitName, Name: "slow", Concurrency: concurrency},
			{Kind: holdfast.LimitName, Name: "quick", Rate: rate, Per: time.Second, Burst: burst},
		} {
			if err := client.SetLimit(ctx, l); err != nil {
				t.Fatal(err)
			}
		}
		items := make([]holdfast.Item, 0, 2*tasks)
		for range tasks {
			// A killed process spends an attempt of each task that it ran.
			items = append(items, holdfast.NewItem("slow", nil, holdfast.MaxAttempts(50)), holdfast.NewItem("quick", nil, holdfast.MaxAttempts(50)))
		}
		if _, err := client.SubmitMany(ctx, items); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		started := 0
		spawn := func() *child {
			started++
			return d.start(t, process{ID: fmt.Sprintf("w%d", started), Concurrency: 8, Lease: 20 * time.Second})
		}
		var children []*child
		for range 4 {
			children = append(children, spawn())
		}

		for i := range kills {
			children[i%4].all("started", 1)
			children[i%4].kill()
			children[i%4] = spawn()
		}
		for {
			left := 0
			for _, status := range []holdfast.Status{holdfast.Queued, holdfast.Running} {
				some, err := client.List(ctx, holdfast.Filter{Status: status, Limit: 1})
				if err != nil {
					t.Fatal(err)
				}
				left += len(some)
			}
			if left == 0 {
				break
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				t.Fatal("the work is not done: places of killed processes did not come back")
			}
		}
		took := time.Since(began)
		// What the database itself has noted of each claim.
		most, quick := 0, []int64{}
		rows, err := db.QueryContext(ctx, "select name, at_ms, running from claims order by n")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			var at int64
			var running int
			if err := rows.Scan(&name, &at, &running); err != nil {
				t.Fatal(err)
			}
			if name == "quick" {
				quick = append(quick, at)
			} else {
				most = max(most, running)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		if most > concurrency || most == 0 {
			t.Errorf("%d tasks ran at once, the limit is %d", most, concurrency)
		}
		// In any time, at most burst + rate × time begin. What is noted is when the row was written, which on
		// Postgres is a little later than when the rate was looked at.
		if len(quick) < tasks {
			t.Errorf("%d starts were noted of %d tasks", len(quick), tasks)
		}
		slices.Sort(quick)
		for i := range quick {
			for j := i + burst; j < len(quick); j++ {
				if most := burst + float64(quick[j]-quick[i]+slack.Milliseconds())*rate/1000; float64(j-i+1) > most {
					t.Fatalf("%d began within %d ms, at %d a second and a burst of %d", j-i+1, quick[j]-quick[i], rate, burst)
				}
			}
		}
		// A rate of n a period with a burst lets at most burst + n × periods start.
		if least := time.Duration(tasks-burst) * time.Second / rate; took < least {
			t.Errorf("%d tasks at %d a second were done after %v, sooner than %v", tasks, rate, took, least)
		}
		failed, err := client.List(ctx, holdfast.Filter{Status: holdfast.Failed})
		if err != nil || len(failed) != 0 {
			t.Errorf("%d tasks failed, %v", len(failed), err)
		}
	})
}

// noteClaims lets the database note every claim: when it was, and how many tasks of the name run then.
func (d *database) noteClaims(t testing.TB) *sql.DB {
	t.Helper()
	statements := []string{
		"create table claims (n integer primary key, name text, at_ms integer, running integer)",
		`create trigger note_claims after update of status on cairnq_tasks when new.status = 'running' begin
			insert into claims (name, at_ms, running) values (new.name, new.updated_at_ms,
				(select count(*) from cairnq_tasks where status = 'running' and name = new.name)); end`,
	}
	if d.name == "postgres" {
		statements = []string{
			"create table claims (n bigserial primary key, name text, at_ms bigint, running integer)",
			`create function note_claim() returns trigger language plpgsql as $$ begin
				insert into claims (name, at_ms, running) values (new.name, new.updated_at_ms,
					(select count(*) from cairnq_tasks where status = 'running' and name = new.name)); return null; end $$`,
			"create trigger note_claims after update of status on cairnq_tasks for each row when (new.status = 'running') execute function note_claim()",
		}
	}
	db := d.sql(t)
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	return db
}
