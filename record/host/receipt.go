package host

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
)

// lookUp finds the stored receipt of a client's operation.
func (h *Host) lookUp(tx db.Tx, a access, client, op string) (done outcome, err error) {
	var fp, receipt string
	found, err := db.One(tx, "receipt_by_op", db.Args{"rk": a.rk, "client": client, "op": op}, &fp, &receipt)
	if err != nil || !found {
		return done, err
	}
	// The record may have moved: the receipt is verified against its own issuer,
	// whose signature was checked when the record arrived.
	if done.claims, err = record.ReadReceipt(receipt); err != nil {
		return done, err
	}
	done.receipt, done.replayed = receipt, true
	return done, nil
}

// answerWrite sends a write's answer; a replay's is made from its receipt.
func (h *Host) answerWrite(w http.ResponseWriter, r *http.Request, done outcome) {
	header, c := w.Header(), done.claims
	header.Set("ETag", `W/"`+strconv.FormatInt(c.Version, 10)+`"`)
	header.Set("Location", h.fhirBase()+"/"+c.Type+"/"+c.ID+"/_history/"+strconv.FormatInt(c.Version, 10))
	header.Set("Last-Modified", c.Time().Format(http.TimeFormat))
	if done.receipt != "" {
		header.Set("Operation-Receipt", done.receipt)
	}
	if done.replayed {
		header.Set("Idempotent-Replayed", "true")
	}
	if done.content != nil && strings.Contains(r.Header.Get("Prefer"), "return=representation") {
		header.Set("Content-Type", "application/fhir+json")
		w.WriteHeader(c.Status)
		w.Write(done.content)
		return
	}
	w.WriteHeader(c.Status)
}

// serveReceipt tells a client what became of an operation of its own.
func (h *Host) serveReceipt(w http.ResponseWriter, r *http.Request) error {
	c, err := h.authenticate(r)
	if err != nil {
		return err
	}
	op := r.PathValue("op")
	var done outcome
	err = record.CheckID("operation_id", op)
	if err == nil {
		err = h.db.Read(r.Context(), func(tx db.Tx) error {
			a, err := h.authorizeAny(tx, c)
			if err != nil {
				return err
			}
			if done, err = h.lookUp(tx, a, c.token.Client, op); err == nil && done.receipt == "" {
				err = &record.Error{Code: record.NotFound, Field: "operation_id", Detail: "no operation of yours with this id has succeeded here"}
			}
			return err
		})
	}
	if auditErr := h.audit.add(r.Context(), h.note(c, "receipt", clip(op, 40), "", err)); err == nil {
		err = auditErr
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/jose")
	io.WriteString(w, done.receipt)
	return nil
}

// authorizeAny wants a standing grant of any kind: for what is the client's own.
func (h *Host) authorizeAny(tx db.Tx, c *caller) (access, error) {
	for _, s := range c.scopes {
		a, err := h.authorize(tx, c, s.resourceType, s.permissions[0], false)
		if !errors.Is(err, record.InsufficientScope) && !errors.Is(err, record.RecordFrozen) {
			return a, err
		}
		if errors.Is(err, record.RecordFrozen) && a.state == stateFrozen {
			return a, nil
		}
	}
	return access{}, &record.Error{Code: record.InsufficientScope, Field: "scope", Detail: "the grant allows nothing any more"}
}
