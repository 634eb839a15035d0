package host

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
	"github.com/eda94727/holdfast/record/profile"
)

// Expect lets a record move here from another Host.
func (h *Host) Expect(ctx context.Context, recordID string) error {
	if h.config.Directory == nil {
		return errors.New("host: a Host without a Directory cannot receive records")
	}
	if err := record.CheckID("record", recordID); err != nil {
		return err
	}
	return h.db.Write(ctx, "expect a record", func(tx db.Tx) error {
		if _, state, err := recordKey(tx, recordID); err != nil {
			return err
		} else if state == stateActive || state == stateFrozen {
			return &record.Error{Code: record.InvalidMessage, Field: "record", Detail: "the record is here already"}
		}
		if m, found, err := getMove(tx, recordID); err != nil || found && m.direction == moveIn {
			return err
		}
		return h.putMove(tx, recordID, move{direction: moveIn, step: stepExpected})
	})
}

func (h *Host) transferRoutes(plain func(string, func(http.ResponseWriter, *http.Request) error)) {
	plain("POST /transfers/{record}", h.serveImport)
	plain("POST /transfers/{record}/activate", h.serveActivate)
	plain("DELETE /transfers/{record}", h.serveDrop)
}

// transfer verifies who sends a record: the Host where it lives, by the
// Directory's word, for us, as the next generation.
func (h *Host) transfer(r *http.Request) (t record.Transfer, from string, err error) {
	if h.config.Directory == nil {
		return t, "", &record.Error{Code: record.NotFound, Detail: "this Host receives no records"}
	}
	if t, from, err = record.VerifyTransfer(r.Header.Get(transferHeader)); err != nil {
		return t, "", err
	}
	refuse := func(detail string) (record.Transfer, string, error) {
		return t, "", &record.Error{Code: record.PublisherNotAuthorized, Field: transferHeader, Detail: detail}
	}
	switch {
	case t.To != h.ID() || t.Host != h.Ref() || t.Record != r.PathValue("record"):
		return refuse("the transfer is for another Host, another URL of this one, or another record")
	case h.now().Unix() >= t.Expires || t.IssuedAt > h.now().Add(5*time.Minute).Unix():
		return refuse("the transfer has expired, or is from the future")
	}
	now, err := h.config.Directory.locate(r.Context(), t.Record)
	if err != nil {
		return t, "", err
	}
	if now.Host.ID != from {
		return refuse("the Directory does not say that the record lives on the Host that sends it")
	}
	if t.Generation != now.Generation+1 || t.Prev != now.Hash() || t.Directory != now.Directory || t.Address != now.Address {
		return refuse("the transfer does not follow the Directory's current generation")
	}
	return t, from, nil
}

// serveImport receives a record and answers this Host's signature under its
// publication.
func (h *Host) serveImport(w http.ResponseWriter, r *http.Request) error {
	t, from, err := h.transfer(r)
	if err != nil {
		return err
	}
	if !h.moving.begin(t.Record) {
		return errMoving
	}
	defer h.moving.end(t.Record)
	rk, err := h.beginImport(r.Context(), t)
	if err != nil {
		return err
	}
	// No deadline for the whole, but one for each minute's silence.
	control := http.NewResponseController(w)
	in := &importer{host: h, rk: rk, transfer: t, from: from, alive: func() { control.SetReadDeadline(time.Now().Add(time.Minute)) }}
	if err := in.run(r.Context(), r.Body); err != nil {
		return err
	}
	signed, err := record.SignPublication([]*record.Key{h.config.Key}, t.Publication)
	if err != nil {
		return err
	}
	err = h.db.Write(r.Context(), "a record was imported", func(tx db.Tx) error {
		return h.putMove(tx, t.Record, move{direction: moveIn, step: stepImported, peer: record.HostRef{ID: from}, publication: signed})
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/jose")
	io.WriteString(w, signed)
	return nil
}

// beginImport makes room for the record, dropping what an earlier try left.
func (h *Host) beginImport(ctx context.Context, t record.Transfer) (rk int64, err error) {
	if err := h.dropCopy(ctx, t.Record, true); err != nil {
		return 0, err
	}
	err = h.db.Write(ctx, "begin an import", func(tx db.Tx) error {
		_, err := db.One(tx, "record_import", db.Args{"record": t.Record, "address": t.Address, "now": h.now().UnixMilli()}, &rk)
		return err
	})
	return rk, err
}

// dropCopy removes a copy of a record that does not live here: one that is being
// imported, or, for one that comes back, the copy of its last stay.
func (h *Host) dropCopy(ctx context.Context, recordID string, returning bool) error {
	return h.db.Write(ctx, "drop a copy", func(tx db.Tx) error {
		m, found, err := getMove(tx, recordID)
		if err != nil {
			return err
		}
		if !found || m.direction != moveIn {
			return &record.Error{Code: record.PublisherNotAuthorized, Field: "record", Detail: "this Host does not expect the record; its operator must say so first"}
		}
		rk, state, err := recordKey(tx, recordID)
		if err != nil || rk == 0 {
			return err
		}
		if state != stateImporting && !(returning && state == stateMoved) {
			return &record.Error{Code: record.RecordFrozen, Field: "record", Detail: "the record is " + state + " here"}
		}
		for _, name := range []string{"drop_dates", "drop_tokens", "drop_resources", "drop_versions", "drop_receipts", "drop_grants", "drop_record"} {
			if _, err := tx.Exec(name, db.Args{"rk": rk}); err != nil {
				return err
			}
		}
		return nil
	})
}

// importer takes in the lines of one record.
type importer struct {
	host     *Host
	rk       int64
	transfer record.Transfer
	from     string
	alive    func()

	batch    []versionLine
	manifest record.Manifest // what we have seen ourselves
	seq      int64
}

func badImport(format string, args ...any) error {
	return &record.Error{Code: record.InvalidMessage, Field: "export", Detail: fmt.Sprintf(format, args...)}
}

// run reads all lines; a line is as long as a resource may be, and the memory
// that of a page.
func (in *importer) run(ctx context.Context, body io.Reader) error {
	limit := int(in.host.config.MaxBody)*6 + 64<<10 // a string's escapes can take six bytes for one
	scanner := bufio.NewScanner(body)
	scanner.Buffer(make([]byte, 0, 64<<10), limit)
	digest := sha256.New()
	for in.alive(); scanner.Scan(); {
		var l line
		if err := record.CheckJSON(scanner.Bytes(), record.Limits{Bytes: limit, Depth: 8, Values: 64}); err != nil {
			return err
		}
		if err := json.Unmarshal(scanner.Bytes(), &l, json.RejectUnknownMembers(true)); err != nil {
			return badImport("a line is not of a known form")
		}
		if l.Kind == "manifest" {
			if err := in.flush(ctx); err != nil {
				return err
			}
			if scanner.Scan() {
				return badImport("something follows the manifest")
			}
			return in.check(l.Manifest, hexDigest(digest.Sum(nil)))
		}
		digest.Write(scanner.Bytes())
		digest.Write([]byte{'\n'})
		if err := in.take(ctx, l); err != nil {
			return err
		}
	}
	if err := scanner.Err(); err != nil {
		return badImport("the export breaks off: %v", err)
	}
	return badImport("the export ends without its manifest")
}

func (in *importer) take(ctx context.Context, l line) error {
	switch {
	case l.Kind == "version" && l.Version != nil:
		in.batch = append(in.batch, *l.Version)
		if len(in.batch) < exportPage {
			return nil
		}
		in.alive()
		return in.flush(ctx)
	case l.Kind == "client" && l.Client != nil:
		if err := record.CheckSubject("client", l.Client.ID); err != nil {
			return err
		}
		in.manifest.Clients++
		return in.host.db.Write(ctx, "import a client", func(tx db.Tx) error {
			_, err := tx.Exec("client_import", db.Args{"id": l.Client.ID, "name": clip(l.Client.Name, 200), "now": in.host.now().Unix()})
			return err
		})
	case l.Kind == "grant" && l.Grant != nil:
		g := l.Grant
		if _, err := parseScopes(g.Scope); err != nil {
			return err
		}
		in.manifest.Grants++
		return in.host.db.Write(ctx, "import a grant", func(tx db.Tx) error {
			_, err := tx.Exec("grant_import", db.Args{"id": g.ID, "rk": in.rk, "client": g.Client, "representative": g.Representative, "scope": g.Scope, "not_after": g.Until, "revoked": g.Revoked, "created": g.Created})
			return err
		})
	}
	return badImport("a line of unknown kind")
}

// flush writes a page of versions in one transaction.
func (in *importer) flush(ctx context.Context) error {
	batch := in.batch
	in.batch = nil
	if len(batch) == 0 {
		return nil
	}
	if err := in.host.step("receiving"); err != nil {
		return err
	}
	prev, before := in.manifest.LastHash, in.manifest.Versions
	return in.host.db.Write(ctx, "import versions", func(tx db.Tx) error {
		in.manifest.LastHash, in.seq = prev, before // the function may run again
		for _, v := range batch {
			if err := in.version(tx, v); err != nil {
				return err
			}
		}
		if _, err := tx.Exec("record_advance", db.Args{"rk": in.rk, "seq": in.seq, "hash": in.manifest.LastHash}); err != nil {
			return err
		}
		in.manifest.Versions = in.seq
		return nil
	})
}

// version checks one version against its receipt, and the receipt against the
// chain and the Hosts that the Directory has named for this record.
func (in *importer) version(tx db.Tx, v versionLine) error {
	receipt, err := record.ReadReceipt(v.Receipt)
	if err != nil {
		return err
	}
	floor, _ := in.host.config.Directory.trust.Floor(in.transfer.Address)
	in.seq++
	switch {
	case !floor.HasHost(receipt.Host):
		return badImport("receipt %d is signed by %s, which was never the record's Host", in.seq, receipt.Host)
	case receipt.Record != in.transfer.Record || receipt.Seq != in.seq || receipt.Prev != in.manifest.LastHash:
		return badImport("receipt %d does not follow the one before it", in.seq)
	case receipt.Type != v.Type || receipt.ID != v.ID || receipt.Version != v.Version || (receipt.Method == http.MethodDelete) != (v.Content == nil):
		return badImport("version %d is not what its receipt says", in.seq)
	}
	var content []byte
	var resource *profile.Resource
	if v.Content != nil {
		content = []byte(*v.Content)
		check := profile.Check{Type: v.Type, ID: v.ID, Record: receipt.Record, Limits: in.host.limits()}
		if receipt.Method == http.MethodPost && v.Type != "Patient" {
			check.ID = ""
		}
		if resource, err = in.host.profile.Validate(content, check); err != nil {
			return err
		}
		if !covers(receipt, content) {
			return badImport("the content of version %d is not what its receipt covers", in.seq)
		}
	}
	was, err := in.host.currentVersion(tx, in.rk, v.Type, v.ID)
	if err != nil {
		return err
	}
	if v.Version != was.version+1 {
		return badImport("version %d of %s/%s does not follow %d", v.Version, v.Type, v.ID, was.version)
	}
	if err := in.host.storeVersion(tx, in.rk, receipt, v.Updated, was.rid, resource, content); err != nil {
		return err
	}
	in.manifest.LastHash = record.ReceiptHash(v.Receipt)
	_, err = tx.Exec("receipt_insert", db.Args{"rk": in.rk, "seq": receipt.Seq, "client": receipt.Client, "op": receipt.Operation, "fp": receipt.Fingerprint, "receipt": v.Receipt})
	return err
}

// covers reports whether a receipt's fingerprint fits the content. Created and
// replaced content is what the client sent; a patch's is not.
func covers(r record.Receipt, content []byte) bool {
	switch r.Method {
	case http.MethodPost:
		return r.Fingerprint == record.Fingerprint(r.Method, "/"+r.Type, "", content)
	case http.MethodPut:
		base := `"` + strconv.FormatInt(r.Version-1, 10) + `"`
		path := "/" + r.Type + "/" + r.ID
		return r.Fingerprint == record.Fingerprint(r.Method, path, "W/"+base, content) || r.Fingerprint == record.Fingerprint(r.Method, path, base, content)
	}
	return true
}

// check compares the manifest with what came.
func (in *importer) check(manifest, digest string) error {
	m, err := record.VerifyManifest(manifest, in.from)
	if err != nil {
		return err
	}
	if m.To != in.host.ID() || m.Record != in.transfer.Record || m.Digest != digest || m.LastHash != in.manifest.LastHash ||
		m.Versions != in.manifest.Versions || m.Grants != in.manifest.Grants || m.Clients != in.manifest.Clients {
		return badImport("the manifest does not fit what came: %d of %d versions, %d of %d grants", in.manifest.Versions, m.Versions, in.manifest.Grants, m.Grants)
	}
	return nil
}

// serveActivate takes the record over once the Directory names this Host.
// Anybody may ask: the Directory's word decides.
func (h *Host) serveActivate(w http.ResponseWriter, r *http.Request) error {
	recordID := r.PathValue("record")
	if err := h.Activate(r.Context(), recordID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Activate takes over a record that was imported, if the Directory names this
// Host for it. The leaving Host asks for it at the end of a move; an operator
// can, should that Host be gone.
func (h *Host) Activate(ctx context.Context, recordID string) error {
	if h.config.Directory == nil || !record.IsID(recordID) {
		return noRecord(recordID, false, nil)
	}
	var m move
	var found bool
	var state string
	err := h.db.Read(ctx, func(tx db.Tx) (err error) {
		if _, state, err = recordKey(tx, recordID); err == nil {
			m, found, err = getMove(tx, recordID)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case state == stateActive:
		return nil
	case state != stateImporting || !found || m.step != stepImported:
		return noRecord(recordID, false, nil)
	}
	p, _, err := record.VerifyPublication(m.publication)
	if err != nil {
		return err
	}
	now, err := h.config.Directory.locate(ctx, recordID)
	if err != nil {
		return err
	}
	if now.Host.ID != h.ID() || now.Generation != p.Generation {
		return &record.Error{Code: record.RecordFrozen, Field: "record", Detail: "the Directory does not name this Host for the record"}
	}
	if err := h.step("activating"); err != nil {
		return err
	}
	return h.db.Write(ctx, "take a record over", func(tx db.Tx) error {
		if err := h.setState(tx, recordID, stateActive); err != nil {
			return err
		}
		_, err := tx.Exec("move_delete", db.Args{"record": recordID})
		return err
	})
}

// serveDrop forgets a copy after the move was canceled.
func (h *Host) serveDrop(w http.ResponseWriter, r *http.Request) error {
	t, _, err := h.transfer(r)
	if err != nil {
		return err
	}
	if !h.moving.begin(t.Record) {
		return errMoving
	}
	defer h.moving.end(t.Record)
	if err := h.dropCopy(r.Context(), t.Record, false); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
