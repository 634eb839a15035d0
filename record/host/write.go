package host

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
	"github.com/eda94727/holdfast/record/profile"
)

// write is one request to change a record, as far as it can be read without
// the database.
type write struct {
	caller       *caller
	method       string
	resourceType string
	id           string // "" for a creation
	op           string
	fp           string
	base         int64 // the version of If-Match; 0 for a creation
	ifNoneExist  string
	body         []byte
	lab          bool
	returns      bool // the resource is wanted in the answer
	// resource or invalid is what the profile says about the body; a patch is
	// judged when the resource that it changes is known.
	resource *profile.Resource
	invalid  error
	// asked is the content that the external validator has accepted.
	asked []byte
}

// outcome is what a write came to.
type outcome struct {
	receipt  string
	claims   record.Receipt
	replayed bool
	content  []byte // as served; nil after a deletion or replay
	existing bool   // If-None-Exist found the resource: nothing was written
}

var actions = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}
var permissions = map[string]byte{http.MethodPost: permCreate, http.MethodPut: permUpdate, http.MethodPatch: permUpdate, http.MethodDelete: permDelete}

// serveWrite takes create, update, patch and delete.
func (h *Host) serveWrite(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return &record.Error{Code: record.InvalidMessage, Field: "body", Detail: "the body has more than " + strconv.FormatInt(large.Limit, 10) + " bytes"}
		}
		return &record.Error{Code: record.InvalidMessage, Field: "body", Detail: "the body ends too early"}
	}
	c, err := h.authenticate(r)
	if err != nil {
		return err
	}
	target := r.PathValue("type")
	if id := r.PathValue("id"); id != "" {
		target += "/" + id
	}
	q, err := h.readWrite(r, c, body)
	var done outcome
	if err == nil {
		done, err = h.doWrite(r.Context(), q)
	}
	if err != nil {
		op := ""
		if q != nil {
			op = q.op
		}
		return errors.Join(err, h.audit.add(r.Context(), h.note(c, actions[r.Method], clip(target, 120), op, err)))
	}
	h.answerWrite(w, r, done)
	return nil
}

// clip shortens a text to n bytes, and to whole characters.
func clip(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "")
	}
	return s
}

// readWrite reads the headers and judges the body.
func (h *Host) readWrite(r *http.Request, c *caller, body []byte) (*write, error) {
	q := &write{caller: c, method: r.Method, resourceType: r.PathValue("type"), id: r.PathValue("id"), body: body}
	bad := func(field, detail string) (*write, error) {
		return q, &record.Error{Code: record.InvalidMessage, Field: field, Detail: detail}
	}
	key, ok := oneHeader(r, "Idempotency-Key")
	q.op = strings.TrimSuffix(strings.TrimPrefix(key, `"`), `"`)
	if !ok || len(key) != len(q.op)+2 || !record.IsID(q.op) {
		q.op = ""
		return bad("Idempotency-Key", `must be one header with a UUIDv7 in double quotes: the operation id`)
	}
	digest, ok := oneHeader(r, "Content-Digest")
	if !ok {
		return bad("Content-Digest", "must be one header (RFC 9530)")
	}
	if err := record.VerifyContentDigest(digest, body); err != nil {
		return q, err
	}
	ifMatch, ok := oneHeader(r, "If-Match")
	if q.id == "" {
		if r.Header.Get("If-Match") != "" {
			return bad("If-Match", "a creation has none")
		}
	} else {
		var err error
		if q.base, err = parseIfMatch(ifMatch); err != nil || !ok {
			return bad("If-Match", `must be one header with the version that the change is based on: W/"3"`)
		}
	}
	if q.ifNoneExist = r.Header.Get("If-None-Exist"); q.ifNoneExist != "" && q.id != "" {
		return bad("If-None-Exist", "only a creation has it")
	}
	q.lab = r.Header.Get(record.LabHeader) == string(record.CreateLab)
	if !q.lab && r.Header.Get(record.LabHeader) != "" || q.lab && (q.id != "" || q.resourceType != "Observation") {
		return bad(record.LabHeader, "create_lab is a creation of an Observation; other writes do not have the header")
	}
	q.returns = strings.Contains(r.Header.Get("Prefer"), "return=representation")
	want := "application/fhir+json"
	switch r.Method {
	case http.MethodPatch:
		want = "application/json-patch+json"
	case http.MethodDelete:
		if len(body) > 0 {
			return bad("body", "a deletion has none")
		}
		want = ""
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); want != "" && (err != nil || kind != want && (kind != "application/json" || want != "application/fhir+json")) {
		return bad("Content-Type", "must be "+want)
	}
	path := "/" + q.resourceType
	if q.id != "" {
		path += "/" + q.id
	}
	q.fp = record.Fingerprint(r.Method, path, ifMatch, body)
	q.judge(h)
	return q, nil
}

// oneHeader returns a header that stands exactly once.
func oneHeader(r *http.Request, name string) (string, bool) {
	values := r.Header.Values(name)
	if len(values) != 1 {
		return "", false
	}
	return values[0], true
}

// parseIfMatch reads the strong or weak form of an integer version: "3" or W/"3".
func parseIfMatch(text string) (int64, error) {
	digits := strings.TrimPrefix(text, "W/")
	if len(digits) < 3 || len(digits) > 21 || digits[0] != '"' || digits[len(digits)-1] != '"' || digits[1] == '0' {
		return 0, strconv.ErrSyntax
	}
	digits = digits[1 : len(digits)-1]
	if strings.Trim(digits, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(digits, 10, 64)
}

// judge asks the profile about the body, ahead of the transaction, which
// reports what it said in its turn.
func (q *write) judge(h *Host) {
	switch {
	case !profile.Supports(q.resourceType):
		_, q.invalid = h.profile.Validate(nil, profile.Check{Type: q.resourceType})
	case q.method == http.MethodDelete && q.resourceType == "Patient":
		q.invalid = &record.Error{Code: record.UnsupportedResourceContent, Field: "Patient", Detail: "the record's Patient is not deleted"}
	case q.method == http.MethodPatch && q.resourceType != "Patient":
		q.invalid = &record.Error{Code: record.UnsupportedResourceContent, Field: q.resourceType, Detail: "only the Patient's name can be patched; use an update"}
	case q.method == http.MethodPost || q.method == http.MethodPut:
		q.resource, q.invalid = h.profile.Validate(q.body, profile.Check{Type: q.resourceType, ID: q.id, Record: q.caller.token.Record, Lab: q.lab, Limits: h.limits()})
	}
}

func (h *Host) limits() record.Limits { return record.Limits{Bytes: int(h.config.MaxBody)} }

// errAsk asks for the external validator, outside the transaction.
var errAsk = errors.New("host: the external validator must be asked")

// doWrite runs the write's transaction, and with an external validator a
// second time after it was asked.
func (h *Host) doWrite(ctx context.Context, q *write) (done outcome, err error) {
	flight := q.caller.token.Record + " " + q.caller.token.Client + " " + q.op
	if !h.flights.begin(flight) {
		return done, &record.Error{Code: record.OperationInProgress, Field: "Idempotency-Key", Detail: "the same operation is being worked on", RetryAfter: time.Second}
	}
	defer h.flights.end(flight)
	var ask []byte
	for range 3 {
		err = h.db.WriteSure(ctx, "write a resource", func(tx db.Tx) error {
			done, ask, err = h.transact(tx, q)
			return err
		})
		if !errors.Is(err, errAsk) {
			break
		}
		if err = h.askValidator(ctx, q, ask); err != nil {
			return done, err
		}
		q.asked = ask
		err = &record.Error{Code: record.HostUnavailable, Detail: "the resource changed while it was being validated", RetryAfter: time.Second}
	}
	if errors.Is(err, db.ErrDuplicate) {
		// Another process of this Host has just done the same operation, or made
		// a resource of the same id: the next try will see it.
		err = &record.Error{Code: record.OperationInProgress, Field: "Idempotency-Key", Detail: "the same operation or resource is being worked on", RetryAfter: time.Second}
	}
	return done, err
}

func (h *Host) askValidator(ctx context.Context, q *write, content []byte) error {
	err := h.config.Validator.Validate(ctx, Validation{Record: q.caller.token.Record, Client: q.caller.token.Client, Operation: q.op,
		Method: q.method, Type: q.resourceType, ID: q.id, Resource: content})
	if err != nil && !errors.Is(err, record.ExternalValidationRejected) {
		h.config.Log.WarnContext(ctx, "the external validator does not answer", "error", err)
		return &record.Error{Code: record.HostUnavailable, Detail: "the external validator does not answer", RetryAfter: 5 * time.Second}
	}
	return err
}

// transact is the order of checks, in one transaction. It may run again, so it
// changes nothing but the database.
func (h *Host) transact(tx db.Tx, q *write) (done outcome, ask []byte, err error) {
	a, err := h.authorize(tx, q.caller, q.resourceType, permissions[q.method], true)
	if err != nil {
		return done, nil, err
	}
	// The receipt comes before the version: a repeated update would conflict
	// with itself.
	if done, err = h.lookUp(tx, a, q.caller.token.Client, q.op); err != nil {
		return done, nil, err
	}
	if done.receipt != "" {
		if done.claims.Fingerprint != q.fp {
			return outcome{}, nil, &record.Error{Code: record.OperationIDConflict, Field: "Idempotency-Key", Detail: "this operation id was used for another write"}
		}
		entry := h.note(q.caller, actions[q.method], done.claims.Type+"/"+done.claims.ID, q.op, nil)
		entry.Outcome = "replayed"
		_, err = tx.Exec("audit_insert", entry.args())
		return done, nil, err
	}
	if q.invalid != nil {
		return done, nil, q.invalid
	}
	if q.ifNoneExist != "" {
		if done, err = h.findExisting(tx, a, q); err != nil || done.existing {
			return done, nil, err
		}
	}
	was, err := h.currentVersion(tx, a.rk, q.resourceType, q.id)
	if err != nil {
		return done, nil, err
	}
	resource, content := q.resource, q.body
	if q.method == http.MethodPatch && was.version != 0 && !was.deleted {
		if resource, content, err = h.patch(tx, a, q, was); err != nil {
			return done, nil, err
		}
	}
	if resource != nil {
		if err := h.checkReferences(tx, a.rk, q.id, resource); err != nil {
			return done, nil, err
		}
		if h.config.Validator != nil && !slices.Equal(q.asked, content) {
			return done, content, errAsk
		}
	}
	if err := q.checkVersion(was); err != nil {
		return done, nil, err
	}
	done, err = h.commit(tx, a, q, was, resource, content)
	return done, nil, err
}

// version is the current version of a resource; the zero value is none.
type version struct {
	rid, version, updated int64
	deleted               bool
}

func (h *Host) currentVersion(tx db.Tx, rk int64, resourceType, id string) (v version, err error) {
	if id == "" {
		return v, nil
	}
	_, err = db.One(tx, "resource_current", db.Args{"rk": rk, "type": resourceType, "id": id}, &v.rid, &v.version, &v.deleted, &v.updated)
	return v, err
}

// checkVersion decides between not there, deleted, stale and right. An update
// that is based on the deletion itself revives the resource.
func (q *write) checkVersion(was version) error {
	field := q.resourceType + "/" + q.id
	switch {
	case q.id == "":
		return nil
	case was.version == 0:
		return &record.Error{Code: record.NotFound, Field: field, Detail: "this record has no such resource"}
	case was.deleted && (q.method != http.MethodPut || q.base != was.version):
		return &record.Error{Code: record.ResourceDeleted, Field: field, Detail: "deleted in version " + strconv.FormatInt(was.version, 10) + "; an update based on that version revives it"}
	case q.base != was.version:
		return &record.Error{Code: record.VersionConflict, Field: "If-Match", Detail: "the current version is " + strconv.FormatInt(was.version, 10)}
	}
	return nil
}

// patch applies a patch to the current version and judges the result.
func (h *Host) patch(tx db.Tx, a access, q *write, was version) (*profile.Resource, []byte, error) {
	var deleted bool
	var updated int64
	var content []byte
	if _, err := db.One(tx, "version_read", db.Args{"rk": a.rk, "type": q.resourceType, "id": q.id, "version": was.version}, &deleted, &updated, &content); err != nil {
		return nil, nil, err
	}
	patched, err := patchName(content, q.body, h.limits())
	if err != nil {
		if errors.Is(err, record.VersionConflict) && q.base != was.version {
			err = q.checkVersion(was)
		}
		return nil, nil, err
	}
	resource, err := h.profile.Validate(patched, profile.Check{Type: q.resourceType, ID: q.id, Record: a.record, Limits: h.limits()})
	return resource, patched, err
}

// checkReferences wants each resource that is referred to in this record.
func (h *Host) checkReferences(tx db.Tx, rk int64, self string, resource *profile.Resource) error {
	for _, ref := range resource.References {
		if ref.Type == resource.Type && ref.ID == self {
			continue
		}
		v, err := h.currentVersion(tx, rk, ref.Type, ref.ID)
		if err != nil {
			return err
		}
		if v.version == 0 {
			return &record.Error{Code: record.WrongResourcePatient, Field: ref.Path, Detail: "this record has no " + ref.Type + " of that id"}
		}
	}
	return nil
}

// commit makes the new version, its receipt and its line of audit.
func (h *Host) commit(tx db.Tx, a access, q *write, was version, resource *profile.Resource, content []byte) (done outcome, err error) {
	now := h.now().UTC()
	id := q.id
	if id == "" {
		if id = resource.ID; id == "" {
			id = record.NewID()
		}
	}
	status := http.StatusOK
	switch {
	case q.method == http.MethodDelete:
		status, content = http.StatusNoContent, nil
	case q.id == "" || was.deleted:
		status = http.StatusCreated
	}
	// Two versions of one resource never share a time.
	updated := max(now.UnixMilli(), was.updated+1)
	claims := record.Receipt{Record: a.record, Client: q.caller.token.Client, Operation: q.op, Fingerprint: q.fp, Method: q.method,
		Type: q.resourceType, ID: id, Version: was.version + 1, Status: status, Seq: a.seq + 1, Prev: a.lastHash, IssuedAt: now.Unix()}
	if done.receipt, err = record.SignReceipt(h.config.Key, claims); err != nil {
		return done, err
	}
	claims.Host = h.ID()
	done.claims = claims
	if err := h.storeVersion(tx, a.rk, claims, updated, was.rid, resource, content); err != nil {
		if errors.Is(err, db.ErrDuplicate) && q.id == "" && resource.ID != "" {
			return done, &record.Error{Code: record.InvalidResourceID, Field: q.resourceType + ".id", Detail: "the id is taken in this record; to change the resource, update it"}
		}
		return done, err
	}
	if _, err := tx.Exec("receipt_insert", db.Args{"rk": a.rk, "seq": claims.Seq, "client": claims.Client, "op": claims.Operation, "fp": claims.Fingerprint, "receipt": done.receipt}); err != nil {
		return done, err
	}
	if _, err := tx.Exec("record_advance", db.Args{"rk": a.rk, "seq": claims.Seq, "hash": record.ReceiptHash(done.receipt)}); err != nil {
		return done, err
	}
	if content != nil && q.returns {
		if done.content, err = served(q.resourceType, id, claims.Version, time.UnixMilli(updated), content); err != nil {
			return done, err
		}
	}
	_, err = tx.Exec("audit_insert", h.note(q.caller, actions[q.method], q.resourceType+"/"+id, q.op, nil).args())
	return done, err
}

// storeVersion writes a version and its index. rid is the resource's row, 0 for
// a new one.
func (h *Host) storeVersion(tx db.Tx, rk int64, v record.Receipt, updated, rid int64, resource *profile.Resource, content []byte) error {
	args := db.Args{"rk": rk, "type": v.Type, "id": v.ID, "version": v.Version, "seq": v.Seq, "deleted": content == nil, "updated": updated, "content": content, "rid": rid}
	if rid == 0 {
		if _, err := db.One(tx, "resource_insert", args, &rid); err != nil {
			return err
		}
	} else {
		for _, name := range []string{"resource_update", "tokens_delete", "dates_delete"} {
			if _, err := tx.Exec(name, args); err != nil {
				return err
			}
		}
	}
	if _, err := tx.Exec("version_insert", args); err != nil {
		return err
	}
	if content == nil {
		return nil
	}
	args = db.Args{"rk": rk, "type": v.Type, "rid": rid}
	for _, t := range resource.Index.Tokens {
		args["param"], args["value"], args["system"] = t.Param, t.Value, t.System
		if _, err := tx.Exec("tokens_insert", args); err != nil {
			return err
		}
	}
	for _, d := range resource.Index.Dates {
		args["param"], args["from"], args["to"] = d.Param, d.From, d.To
		if _, err := tx.Exec("dates_insert", args); err != nil {
			return err
		}
	}
	return nil
}
