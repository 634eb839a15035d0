package host

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
	"github.com/eda94727/holdfast/record/profile"
)

// Bounds on a search, so that its cost is bounded.
const (
	maxSearchParams = 12
	maxSearchValues = 24
	maxSearchText   = 300
)

// filter is one condition of a search: any of its alternatives holds.
type filter struct {
	// rank is how few resources it is likely to leave, fewest first.
	rank int
	// alternatives are SQL on t (tokens), d (dates) or r (resources).
	table        string
	alternatives []string
}

// query is a parsed search. Its SQL holds no text of the user's: values are
// parameters.
type query struct {
	resourceType string
	filters      []filter
	args         db.Args
	none         bool // about another patient: nothing matches
	count        int
	after        int64
}

func badSearch(field, format string, args ...any) error {
	return &record.Error{Code: record.InvalidMessage, Field: clip(field, 64), Detail: fmt.Sprintf(format, args...)}
}

// parseSearch reads the parameters of a search. What it does not know it
// refuses: a filter that is silently left out finds too much.
func parseSearch(resourceType, recordID string, values url.Values) (*query, error) {
	q := &query{resourceType: resourceType, args: db.Args{"type": resourceType}}
	var err error
	if q.count, err = parseCount(values); err != nil {
		return nil, err
	}
	if q.after, err = parseCursor(values); err != nil {
		return nil, err
	}
	total := 0
	for _, name := range sortedKeys(values) {
		for _, text := range values[name] {
			if total++; total > maxSearchParams {
				return nil, badSearch(name, "a search has at most %d parameters", maxSearchParams)
			}
			if len(text) > maxSearchText*4 {
				return nil, badSearch(name, "the value is too long")
			}
			if !isText(text) {
				return nil, badSearch(name, "the value is not a text")
			}
			if err := q.param(name, text, recordID); err != nil {
				return nil, err
			}
		}
	}
	if len(q.args) > maxSearchValues*2 {
		return nil, badSearch("", "the search has too many values")
	}
	slices.SortStableFunc(q.filters, func(a, b filter) int { return a.rank - b.rank })
	return q, nil
}

func sortedKeys(values url.Values) []string {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (q *query) param(name, text, recordID string) error {
	switch name {
	case "_count", "_after", "_format", "_pretty":
		return nil
	case "patient", "subject", "patient._id":
		id := strings.TrimPrefix(text, "Patient/")
		if q.resourceType == "Patient" || name == "subject" && profile.PatientElement(q.resourceType) != "subject" {
			return badSearch(name, "%s has no such search parameter", q.resourceType)
		}
		q.none = q.none || id != recordID
		return nil
	case "_id":
		return q.ids(text)
	case "_lastUpdated":
		return q.dates(name, text)
	}
	switch {
	case slices.Contains(profile.TokenParams(q.resourceType), name):
		return q.tokens(name, text)
	case slices.Contains(profile.DateParams(q.resourceType), name):
		return q.dates(name, text)
	}
	return badSearch(name, "%s is searched by patient, _id, _lastUpdated, %s", q.resourceType,
		strings.Join(slices.Concat(profile.TokenParams(q.resourceType), profile.DateParams(q.resourceType)), ", "))
}

// bind gives a value a parameter's name.
func (q *query) bind(v any) string {
	name := fmt.Sprintf("v%d", len(q.args))
	q.args[name] = v
	return ":" + name
}

func (q *query) ids(text string) error {
	f := filter{rank: 0, table: "resources"}
	for _, id := range strings.Split(text, ",") {
		if !record.IsResourceID(id) {
			return badSearch("_id", "not a resource id")
		}
		f.alternatives = append(f.alternatives, "r.id = "+q.bind(id))
	}
	q.filters = append(q.filters, f)
	return nil
}

// ranks orders the token parameters by how few resources a value leaves.
var ranks = map[string]int{"identifier": 1, "code": 2, "vaccine-code": 2, "type": 2, "category": 4, "status": 5, "clinical-status": 5, "gender": 5, "intent": 5}

// tokens reads code, system|code, |code and system|, with commas between
// alternatives.
func (q *query) tokens(name, text string) error {
	f := filter{rank: ranks[name], table: "tokens"}
	for _, one := range splitEscaped(text, ',') {
		parts := splitEscaped(one, '|')
		for i := range parts {
			parts[i] = unescape(parts[i])
		}
		if len(parts) > 2 || one == "" || one == "|" {
			return badSearch(name, "wanted code, system|code, |code or system|")
		}
		condition := "t.param = " + q.bind(name)
		if code := parts[len(parts)-1]; code != "" {
			condition += " and t.value = " + q.bind(code)
		}
		if len(parts) == 2 {
			condition += " and t.system = " + q.bind(parts[0])
		}
		f.alternatives = append(f.alternatives, condition)
	}
	q.filters = append(q.filters, f)
	return nil
}

// splitEscaped splits at a character that no backslash stands before.
func splitEscaped(s string, at byte) []string {
	var parts []string
	start := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case at:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// dates reads a prefix and a date, with commas between alternatives (FHIR R4,
// Search, date).
func (q *query) dates(name, text string) error {
	f := filter{rank: 3, table: "dates"}
	from, to := "d.from_ms", "d.to_ms"
	if name == "_lastUpdated" {
		f.table, from, to = "resources", "r.last_updated", "r.last_updated + 1"
	}
	for _, one := range strings.Split(text, ",") {
		prefix := "eq"
		if len(one) > 2 && one[0] >= 'a' && one[0] <= 'z' {
			prefix, one = one[:2], one[2:]
		}
		lo, hi, ok := profile.Interval(strings.Replace(one, " ", "+", 1)) // a plus sign in a URL that was not escaped
		if !ok {
			return badSearch(name, "wanted a prefix (eq, ne, gt, ge, lt, le, sa, eb) and a date such as ge2020-05-01")
		}
		a, b := q.bind(lo), q.bind(hi)
		var condition string
		switch prefix {
		case "eq":
			condition = from + " >= " + a + " and " + to + " <= " + b
		case "ne":
			condition = "not (" + from + " >= " + a + " and " + to + " <= " + b + ")"
		case "gt":
			condition = to + " > " + b
		case "ge":
			condition = "(" + to + " > " + b + " or " + from + " >= " + a + ")"
		case "lt":
			condition = from + " < " + a
		case "le":
			condition = "(" + from + " < " + a + " or " + to + " <= " + b + ")"
		case "sa":
			condition = from + " >= " + b
		case "eb":
			condition = to + " <= " + a
		default:
			return badSearch(name, "the prefix %q is not known; wanted eq, ne, gt, ge, lt, le, sa or eb", prefix)
		}
		if f.table == "dates" {
			condition = "d.param = " + q.bind(name) + " and " + condition
		}
		f.alternatives = append(f.alternatives, condition)
	}
	q.filters = append(q.filters, f)
	return nil
}

// where returns the filters as conditions on the resource r.
func where(filters []filter) string {
	var b strings.Builder
	for _, f := range filters {
		b.WriteString(" and (")
		for i, one := range f.alternatives {
			if i > 0 {
				b.WriteString(" or ")
			}
			switch f.table {
			case "tokens":
				b.WriteString("exists (select 1 from tokens t where t.rid = r.rid and " + one + ")")
			case "dates":
				b.WriteString("exists (select 1 from dates d where d.rid = r.rid and " + one + ")")
			default:
				b.WriteString("(" + one + ")")
			}
		}
		b.WriteString(")")
	}
	return b.String()
}

// sql returns the statement of the search for one page and one row more. The
// most selective token drives it, in the order of the index, so that a page
// costs about its own length and not the record's; each alternative of that
// token brings a page, and the pages are merged.
func (q *query) sql() string {
	const columns = "select r.rid, r.type, r.id, r.version, r.last_updated, v.content from "
	const content = " join versions v on v.rk = r.rk and v.type = r.type and v.id = r.id and v.version = r.version"
	drive := slices.IndexFunc(q.filters, func(f filter) bool { return f.table == "tokens" })
	if drive < 0 || q.filters[0].table == "resources" {
		return columns + "resources r" + content + " where r.rk = :rk and r.type = :type and r.deleted = 0 and r.rid > :after" + where(q.filters) + " order by r.rid limit :limit"
	}
	rest := where(slices.Concat(q.filters[:drive], q.filters[drive+1:]))
	var pages []string
	for i, one := range q.filters[drive].alternatives {
		pages = append(pages, fmt.Sprintf("select rid from (select distinct t.rid as rid from tokens t join resources r on r.rid = t.rid where t.rk = :rk and t.type = :type and %s and t.rid > :after and r.deleted = 0%s order by t.rid limit :limit) p%d", one, rest, i))
	}
	return columns + "(" + strings.Join(pages, " union ") + ") m join resources r on r.rid = m.rid" + content + " order by r.rid limit :limit"
}

// run runs the search and calls each on its rows, at most count+1.
func (q *query) run(tx db.Tx, rk int64, each func(db.Row) error) error {
	if q.none {
		return nil
	}
	q.args["rk"], q.args["after"], q.args["limit"] = rk, q.after, q.count+1
	return tx.Adhoc(q.sql(), q.args, each)
}

// serveSearch answers GET Type?… and POST Type/_search.
func (h *Host) serveSearch(w http.ResponseWriter, r *http.Request) error {
	t := r.PathValue("type")
	values, parseErr := searchValues(r)
	var entries []entry
	var last int64
	more := false
	_, err := h.read(r, look{"search", t, t, permSearch}, func(tx db.Tx, a access) error {
		entries, last, more = nil, 0, false
		if parseErr != nil {
			return parseErr
		}
		q, err := parseSearch(t, a.record, values)
		if err != nil {
			return err
		}
		return q.run(tx, a.rk, func(row db.Row) error {
			if len(entries) == q.count {
				more = true
				return nil
			}
			e, rid, err := h.matchEntry(row)
			last, entries = rid, append(entries, e)
			return err
		})
	})
	if err != nil {
		return err
	}
	writeJSON(w, "application/fhir+json", http.StatusOK, bundle{"Bundle", "searchset", h.pageLinks("/"+t, values, last, more), entries})
	return nil
}

// searchValues joins the parameters of URL and form.
func searchValues(r *http.Request) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err == nil && r.Method == http.MethodPost {
		if err = r.ParseForm(); err == nil {
			values = r.Form
		}
	}
	if err != nil {
		return nil, badSearch("", "the parameters cannot be read")
	}
	return values, nil
}

// findExisting answers If-None-Exist: one match is the answer, several are an
// error, and none lets the creation go on.
func (h *Host) findExisting(tx db.Tx, a access, q *write) (done outcome, err error) {
	values, err := url.ParseQuery(strings.TrimPrefix(q.ifNoneExist, "?"))
	if err != nil || len(values) == 0 {
		return done, badSearch("If-None-Exist", "not a search")
	}
	search, err := parseSearch(q.resourceType, a.record, values)
	if err != nil {
		return done, err
	}
	if len(search.filters) == 0 {
		return done, badSearch("If-None-Exist", "the search must say what it looks for")
	}
	search.count = 1
	matches := 0
	err = search.run(tx, a.rk, func(row db.Row) error {
		if matches++; matches > 1 {
			return nil
		}
		var rid, updated int64
		var content []byte
		c := record.Receipt{Status: http.StatusOK}
		if err := row.Scan(&rid, &c.Type, &c.ID, &c.Version, &updated, &content); err != nil {
			return err
		}
		c.IssuedAt = updated / 1000
		done = outcome{claims: c, existing: true}
		return nil
	})
	if err == nil && matches > 1 {
		err = &record.Error{Code: record.VersionConflict, Field: "If-None-Exist", Detail: "several resources match; none was made"}
	}
	if err != nil {
		return outcome{}, err
	}
	if done.existing {
		_, err = tx.Exec("audit_insert", h.note(q.caller, "search", q.resourceType, q.op, nil).args())
	}
	return done, err
}
