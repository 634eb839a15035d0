package host

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
	"github.com/eda94727/holdfast/record/profile"
)

// Record is a record as its Host knows it.
type Record struct {
	ID string
	// State is active, frozen, moved or importing.
	State string
	// Address is the Directory's address of the record, "" if it is not
	// published.
	Address string
	// Writes is how many writes the record has seen, on all its Hosts.
	Writes  int64
	Created time.Time
}

// NewRecord says how a record begins.
type NewRecord struct {
	// ID is the record's id and its Patient's; "" means a new one.
	ID string
	// Patient is the Patient resource as JSON, with the record's id; nil means
	// a Patient that says nothing yet.
	Patient []byte
}

// CreateRecord makes a record with its Patient and, where the Host has a
// Directory, publishes it there. Calling it again with the same id and Patient
// after a failure goes on where it stopped.
func (h *Host) CreateRecord(ctx context.Context, n NewRecord) (Record, error) {
	if n.ID == "" {
		n.ID = record.NewID()
	}
	if err := record.CheckID("id", n.ID); err != nil {
		return Record{}, err
	}
	if n.Patient == nil {
		n.Patient = []byte(`{"resourceType":"Patient","id":"` + n.ID + `"}`)
	}
	resource, err := h.profile.Validate(n.Patient, profile.Check{Type: "Patient", ID: n.ID, Record: n.ID, Limits: h.limits()})
	if err != nil {
		return Record{}, err
	}
	address := ""
	if h.config.Directory != nil {
		address = h.config.Directory.address(n.ID)
	}
	err = h.db.Write(ctx, "make a record", func(tx db.Tx) error {
		now := h.now()
		a := access{record: n.ID, state: stateActive, address: address}
		if exists, err := findRecord(tx, n.ID, &Record{}); err != nil || exists {
			return err
		}
		if _, err := db.One(tx, "record_insert", db.Args{"record": n.ID, "state": stateActive, "address": address, "now": now.UnixMilli()}, &a.rk); err != nil {
			return err
		}
		q := &write{caller: &caller{token: record.Token{Client: h.ID(), Record: n.ID}}, method: http.MethodPost, resourceType: "Patient", op: n.ID,
			fp: record.Fingerprint(http.MethodPost, "/Patient", "", n.Patient), body: n.Patient}
		_, err := h.commit(tx, a, q, version{}, resource, n.Patient)
		return err
	})
	if err != nil {
		return Record{}, err
	}
	if h.config.Directory != nil {
		if err := h.publishFirst(ctx, n.ID); err != nil {
			return Record{}, fmt.Errorf("host: the record %s was made but not published; call again with its id: %w", n.ID, err)
		}
	}
	return h.Record(ctx, n.ID)
}

func findRecord(tx db.Tx, id string, r *Record) (found bool, err error) {
	var rk, created int64
	var last string
	r.ID = id
	found, err = db.One(tx, "record_get", db.Args{"record": id}, &rk, &r.State, &r.Address, &r.Writes, &last, &created)
	r.Created = time.UnixMilli(created).UTC()
	return found, err
}

// Record returns a record; [record.NotFound] if it is not here.
func (h *Host) Record(ctx context.Context, id string) (r Record, err error) {
	err = h.db.Read(ctx, func(tx db.Tx) error {
		found, err := findRecord(tx, id, &r)
		return noRecord(id, found, err)
	})
	return r, err
}

func noRecord(id string, found bool, err error) error {
	if err == nil && !found {
		err = &record.Error{Code: record.NotFound, Field: "record", Detail: "no record " + clip(id, 40) + " on this Host"}
	}
	return err
}

// Records lists the Host's records after an id, at most limit.
func (h *Host) Records(ctx context.Context, after string, limit int) (list []Record, err error) {
	err = h.db.Read(ctx, func(tx db.Tx) error {
		list = nil
		return tx.Query("record_list", db.Args{"after": after, "limit": limit}, func(row db.Row) error {
			var r Record
			var created int64
			if err := row.Scan(&r.ID, &r.State, &r.Address, &r.Writes, &created); err != nil {
				return err
			}
			r.Created = time.UnixMilli(created).UTC()
			list = append(list, r)
			return nil
		})
	})
	return list, err
}

// Client is an application that may hold grants.
type Client struct {
	ID       string
	Name     string
	Disabled bool
	Created  time.Time
}

// AddClient makes an application known, or knows it again.
func (h *Host) AddClient(ctx context.Context, id, name string) error {
	if err := record.CheckSubject("client", id); err != nil {
		return err
	}
	return h.db.Write(ctx, "add a client", func(tx db.Tx) error {
		_, err := tx.Exec("client_put", db.Args{"id": id, "name": clip(name, 200), "now": h.now().Unix()})
		return err
	})
}

// DisableClient ends everything that an application may do, at once.
func (h *Host) DisableClient(ctx context.Context, id string) error {
	return h.db.Write(ctx, "disable a client", func(tx db.Tx) error {
		changed, err := tx.Exec("client_disable", db.Args{"id": id})
		if err == nil && changed == 0 {
			err = &record.Error{Code: record.NotFound, Field: "client", Detail: "no such application"}
		}
		return err
	})
}

// Clients lists the applications.
func (h *Host) Clients(ctx context.Context) (list []Client, err error) {
	err = h.db.Read(ctx, func(tx db.Tx) error {
		list = nil
		return tx.Query("client_list", nil, func(row db.Row) error {
			var c Client
			var created int64
			if err := row.Scan(&c.ID, &c.Name, &c.Disabled, &created); err != nil {
				return err
			}
			c.Created = time.Unix(created, 0).UTC()
			list = append(list, c)
			return nil
		})
	})
	return list, err
}

// Grant lets an application do something with a record.
type Grant struct {
	ID     string
	Record string
	Client string
	// Representative is on whose authority the application acts: a parent's, a
	// guardian's, a clinic's id. "" where it acts on its own.
	Representative string
	// Scope is a list of SMART v2 scopes, separated by spaces.
	Scope string
	// Until is when the grant ends by itself; the zero time is never.
	Until time.Time
	// Revoked is when it was revoked; the zero time is not.
	Revoked time.Time
	Created time.Time
}

// Active reports whether the grant stands at the given time.
func (g Grant) Active(now time.Time) bool {
	return g.Revoked.IsZero() && (g.Until.IsZero() || now.Before(g.Until))
}

// Grant makes a grant and returns its id. The application becomes known if it
// was not. ID, Revoked and Created are set by the Host.
func (h *Host) Grant(ctx context.Context, g Grant) (id string, err error) {
	if err := record.CheckSubject("client", g.Client); err != nil {
		return "", err
	}
	if _, err := parseScopes(g.Scope); err != nil {
		return "", err
	}
	if len(g.Representative) > 200 || !isText(g.Representative) || strings.ContainsAny(g.Representative, "\r\n") {
		return "", &record.Error{Code: record.InvalidMessage, Field: "representative", Detail: "at most 200 bytes on one line"}
	}
	if !g.Until.IsZero() && !h.now().Before(g.Until) {
		return "", &record.Error{Code: record.InvalidMessage, Field: "until", Detail: "the grant would have ended already"}
	}
	id = record.NewID()
	err = h.db.Write(ctx, "grant", func(tx db.Tx) error {
		var rk, seq, created int64
		var state, address, last, name string
		var disabled bool
		found, err := db.One(tx, "record_get", db.Args{"record": g.Record}, &rk, &state, &address, &seq, &last, &created)
		if err := noRecord(g.Record, found, err); err != nil {
			return err
		}
		if state != stateActive {
			return notActive(state)
		}
		if known, err := db.One(tx, "client_get", db.Args{"id": g.Client}, &name, &disabled); err != nil {
			return err
		} else if !known {
			if _, err := tx.Exec("client_put", db.Args{"id": g.Client, "name": "", "now": h.now().Unix()}); err != nil {
				return err
			}
		} else if disabled {
			return &record.Error{Code: record.InvalidMessage, Field: "client", Detail: "the application is disabled; add it again first"}
		}
		_, err = tx.Exec("grant_insert", db.Args{"id": id, "rk": rk, "client": g.Client, "representative": g.Representative, "scope": g.Scope, "not_after": unix(g.Until), "now": h.now().Unix()})
		return err
	})
	return id, err
}

// notActive refuses to change grants while a record moves: the new Host would
// not hear of it.
func notActive(state string) error {
	if state == stateMoved {
		return &record.Error{Code: record.RecordMoved, Field: "record", Detail: "the record lives on another Host; change its grants there"}
	}
	return &record.Error{Code: record.RecordFrozen, Field: "record", Detail: "the record is being moved: cancel the move, or wait for its end and change its grants at the new Host"}
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func fromUnix(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// Revoke ends a grant, and every token that rests on it, at once.
func (h *Host) Revoke(ctx context.Context, grantID string) error {
	return h.db.Write(ctx, "revoke a grant", func(tx db.Tx) error {
		var state string
		if found, err := db.One(tx, "grant_state", db.Args{"id": grantID}, &state); err != nil {
			return err
		} else if found && state != stateActive {
			return notActive(state)
		}
		changed, err := tx.Exec("grant_revoke", db.Args{"id": grantID, "now": h.now().Unix()})
		if err == nil && changed == 0 {
			err = &record.Error{Code: record.NotFound, Field: "grant", Detail: "no such grant that stands"}
		}
		return err
	})
}

// Grants lists the grants for a record, also those that have ended.
func (h *Host) Grants(ctx context.Context, recordID string) (list []Grant, err error) {
	err = h.db.Read(ctx, func(tx db.Tx) error {
		list = nil
		return tx.Query("grant_list", db.Args{"record": recordID}, func(row db.Row) error {
			var g Grant
			var until, revoked, created int64
			if err := row.Scan(&g.ID, &g.Record, &g.Client, &g.Representative, &g.Scope, &until, &revoked, &created); err != nil {
				return err
			}
			g.Until, g.Revoked, g.Created = fromUnix(until), fromUnix(revoked), fromUnix(created)
			list = append(list, g)
			return nil
		})
	})
	return list, err
}

// RevokeToken ends one token by its jti.
func (h *Host) RevokeToken(ctx context.Context, jti string) error {
	if jti == "" {
		return errors.New("host: the token's jti is missing")
	}
	return h.db.Write(ctx, "revoke a token", func(tx db.Tx) error {
		_, err := tx.Exec("token_revoke", db.Args{"jti": jti, "expires": h.now().Add(record.TokenLifetime).Unix()})
		return err
	})
}
