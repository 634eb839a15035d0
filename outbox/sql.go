package outbox

import (
	_ "embed"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast/internal/sqlitefile"
)

//go:embed schema.sql
var schemaSQL string

// open is the condition of the partial indexes. SQLite uses them only where it
// stands in a statement word for word.
const open = `waits = 1`

func query(name, sql string) *sqlitefile.Query { return &sqlitefile.Query{Name: name, SQL: sql} }

const entryColumns = `q.sequence, q.operation_id, q.patient, q.operation, q.position, q.intent, q.digest, q.state, coalesce(q.result, ''), coalesce(q.error, ''), coalesce(q.detail, ''),
	q.attempts, q.unsure, coalesce(q.replaced_by, ''), q.created, q.changed, q.mac`

var (
	// Only a queue in strict mode is walked as one line.
	createLine   = query("index", `create index if not exists queue_line on queue (position) where `+open)
	insertFormat = query("format", `insert into queue_format (id, version, instance) values (1, 1, ?1) on conflict (id) do nothing`)
	selectFormat = query("format", `select version, instance from queue_format where id = 1`)
	quickCheck   = query("check", `pragma quick_check(10)`)
	selectTable  = query("table", `select 1 from sqlite_schema where type = 'table' and name = 'queue_format'`)
	insertOwner  = query("owner", `insert into owner (id, application) values (1, ?1) on conflict (id) do nothing`)
	selectOwner  = query("owner", `select application from owner where id = 1`)

	// O3 and F9: nobody knows what became of these.
	selectSubmitted = query("recover", `select `+entryColumns+` from queue q indexed by queue_open where q.state = 'submitted' and q.`+open+` order by q.sequence`)
	selectUnrouted  = query("unrouted", `with recursive lanes (patient) as (
		select (select patient from queue indexed by queue_lanes where `+open+` order by patient limit 1)
		union all
		select (select patient from queue indexed by queue_lanes where `+open+` and patient > lanes.patient order by patient limit 1) from lanes where lanes.patient is not null)
		select patient from lanes where patient is not null and patient not in (select patient from queue_routes)`)

	selectRoute = query("route", `select host, generation, coalesce(address, '') from queue_routes where patient = ?1`)
	insertRoute = query("pin route", `insert into queue_routes (patient, host, generation, address) values (?1, ?2, ?3, ?4) on conflict (patient) do nothing`)
	updateRoute = query("change route", `update queue_routes set host = ?2, generation = ?3, address = ?4 where patient = ?1`)

	// What there is to know before an entry is added: the digest of its operation, if that is known; its patient's route; its
	// sequence, from SQLite's own counter, beforehand, so that it can be the position and be authenticated.
	selectBefore = query("enqueue", `select coalesce((select digest from queue where operation_id = ?1), (select digest from queue_past where operation_id = ?1)),
		(select host from queue_routes where patient = ?2), 1 + coalesce((select seq from sqlite_sequence where name = 'queue'), 0)`)
	insertEntry = query("enqueue", `insert into queue (sequence, operation_id, patient, operation, position, intent, digest, state, created, changed, mac)
		values (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'pending', ?8, ?8, ?9)`)

	selectLanes = query("lanes", `with recursive lanes (patient) as (
		select (select patient from queue indexed by queue_lanes where `+open+` and patient > ?1 order by patient limit 1)
		union all
		select (select patient from queue indexed by queue_lanes where `+open+` and patient > lanes.patient order by patient limit 1) from lanes where lanes.patient is not null)
		select patient, (select host from queue_routes r where r.patient = lanes.patient) from lanes where patient is not null limit ?2`)
	selectLane = query("lane", `select `+entryColumns+`, coalesce(r.host, ''), r.generation, coalesce(r.address, '')
		from queue q indexed by queue_lanes left join queue_routes r on r.patient = q.patient
		where q.patient = ?1 and q.`+open+` order by q.position limit ?2`)
	selectLine = query("line", `select `+entryColumns+`, coalesce(r.host, ''), r.generation, coalesce(r.address, '')
		from queue q indexed by queue_line left join queue_routes r on r.patient = q.patient
		where q.`+open+` order by q.position limit ?1`)

	// Every change of an entry is one of these, from a state that is known.
	updateEntry = query("change entry", `update queue set state = ?3, result = ?4, error = ?5, detail = ?6, attempts = ?7, unsure = ?8, replaced_by = ?9, changed = ?10, mac = ?11
		where sequence = ?1 and state = ?2`)
	closeEntry = query("close entry", `update queue set waits = null, state = ?3, result = ?4, error = ?5, detail = ?6, attempts = ?7, unsure = ?8, replaced_by = ?9, changed = ?10, mac = ?11
		where sequence = ?1 and state = ?2`)

	selectEntry   = query("entry", `select `+entryColumns+` from queue q where operation_id = ?1`)
	insertAudit   = query("audit", `insert into queue_audit (at, operation_id, action, reason, actor, state, error, replaced_by, mac) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)`)
	selectAudit   = query("audit", `select id, at, operation_id, action, reason, actor, state, coalesce(error, ''), coalesce(replaced_by, ''), mac from queue_audit where id > ?1 order by id limit ?2`)
	selectHistory = query("audit of an entry", `select id, at, operation_id, action, reason, actor, state, coalesce(error, ''), coalesce(replaced_by, ''), mac from queue_audit where operation_id = ?3 and id > ?1 order by id limit ?2`)

	// ?1 is the sequence behind which a page begins, ?2 its size, ?3 the wanted states between commas.
	listAll     = query("list", `select `+entryColumns+` from queue q where q.sequence > ?1 and instr(?3, ',' || q.state || ',') > 0 order by q.sequence limit ?2`)
	listOpen    = query("list open", `select `+entryColumns+` from queue q indexed by queue_open where q.sequence > ?1 and q.`+open+` and instr(?3, ',' || q.state || ',') > 0 order by q.sequence limit ?2`)
	listGone    = query("list discarded", `select `+entryColumns+` from queue q indexed by queue_gone where q.sequence > ?1 and q.state = 'discarded' and instr(?3, ',' || q.state || ',') > 0 order by q.sequence limit ?2`)
	listLane    = query("list lane", `select `+entryColumns+` from queue q indexed by queue_lanes where q.patient = ?4 and q.sequence > ?1 and q.`+open+` and instr(?3, ',' || q.state || ',') > 0 order by q.sequence limit ?2`)
	listPatient = query("list patient", `select `+entryColumns+` from queue q indexed by queue_patient where q.patient = ?4 and q.sequence > ?1 and instr(?3, ',' || q.state || ',') > 0 order by q.sequence limit ?2`)

	selectDepth = query("depth", `select state, count(*), min(created) from queue indexed by queue_lanes where `+open+` group by state`)
	selectHeads = query("heads", `with recursive lanes (patient) as (
		select (select patient from queue indexed by queue_lanes where `+open+` and patient > ?1 order by patient limit 1)
		union all
		select (select patient from queue indexed by queue_lanes where `+open+` and patient > lanes.patient order by patient limit 1) from lanes where lanes.patient is not null)
		select `+entryColumns+` from lanes join queue q on q.sequence =
			(select sequence from queue h indexed by queue_lanes where h.patient = lanes.patient and h.`+open+` order by position limit 1) limit ?2`)

	selectOld   = query("old entries", `select sequence, operation_id, digest, state, changed from queue where sequence > ?1 order by sequence limit ?2`)
	insertPast  = query("prune", `insert into queue_past (operation_id, digest) values (?1, ?2) on conflict (operation_id) do nothing`)
	deleteEntry = query("prune", `delete from queue where sequence = ?1 and state in ('committed', 'discarded')`)
)

// bind sets the parameters of a statement: text, integers, nil.
func bind(c *sqlitefile.Conn, q *sqlitefile.Query, args []any) (*sqlite3.Stmt, error) {
	s, err := c.Stmt(q)
	if err != nil {
		return nil, fmt.Errorf("outbox: prepare %s: %w", q.Name, err)
	}
	for i, arg := range args {
		switch v := arg.(type) {
		case nil:
			err = s.BindNull(i + 1)
		case string:
			err = s.BindText(i+1, v)
		case State:
			err = s.BindText(i+1, string(v))
		case int:
			err = s.BindInt64(i+1, int64(v))
		case int64:
			err = s.BindInt64(i+1, v)
		case bool:
			err = s.BindBool(i+1, v)
		case []byte:
			if v == nil {
				err = s.BindNull(i + 1)
			} else {
				err = s.BindBlob(i+1, v)
			}
		default:
			err = fmt.Errorf("a %T", arg)
		}
		if err != nil {
			return nil, fmt.Errorf("outbox: bind %d of %s: %w", i+1, q.Name, err)
		}
	}
	return s, nil
}

// run runs a statement and returns how many rows it changed.
func run(c *sqlitefile.Conn, q *sqlitefile.Query, args ...any) (int64, error) {
	s, err := bind(c, q, args)
	if err != nil {
		return 0, err
	}
	if err := sqlitefile.Rows(s, func() error { return nil }); err != nil {
		return 0, err
	}
	return c.Changes(), nil
}

// rows runs a statement and calls each for every row.
func rows(c *sqlitefile.Conn, q *sqlitefile.Query, each func(s *sqlite3.Stmt) error, args ...any) error {
	s, err := bind(c, q, args)
	if err != nil {
		return err
	}
	return sqlitefile.Rows(s, func() error { return each(s) })
}

// orNull keeps an empty text out of the file.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
