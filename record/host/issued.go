package host

import (
	"context"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
)

// IssuedToken is what a Host keeps of an access token that it has signed: enough
// to end it, not enough to use it.
type IssuedToken struct {
	// ID is the token's jti, for [Host.RevokeToken].
	ID string
	// Record, Client, Actor, Grant and Scope are the token's claims; Actor is ""
	// where the application acts on its own.
	Record, Client, Actor, Grant, Scope string
	Issued, Expires                     time.Time
	// Revoked tells that the token itself was ended. A token whose grant has
	// ended, or whose application is disabled, is refused too.
	Revoked bool
}

// keepIssued remembers a token before it is handed out, and forgets those whose
// time is over.
func (h *Host) keepIssued(ctx context.Context, t record.Token) error {
	actor := ""
	if t.Actor != nil {
		actor = t.Actor.Subject
	}
	return h.db.Write(ctx, "issue a token", func(tx db.Tx) error {
		if _, err := tx.Exec("issued_purge", db.Args{"now": h.now().Unix()}); err != nil {
			return err
		}
		_, err := tx.Exec("issued_insert", db.Args{"jti": t.ID, "record": t.Record, "client": t.Client, "actor": actor, "grant": t.Grant, "scope": t.Scope,
			"issued": t.IssuedAt, "expires": t.Expires})
		return err
	})
}

// Tokens lists the access tokens whose time is not over, oldest first, after the
// one with a given id, at most limit.
func (h *Host) Tokens(ctx context.Context, after string, limit int) (list []IssuedToken, err error) {
	err = h.db.Read(ctx, func(tx db.Tx) error {
		list = nil
		return tx.Query("issued_list", db.Args{"after": after, "now": h.now().Unix(), "limit": limit}, func(row db.Row) error {
			var t IssuedToken
			var issued, expires int64
			if err := row.Scan(&t.ID, &t.Record, &t.Client, &t.Actor, &t.Grant, &t.Scope, &issued, &expires, &t.Revoked); err != nil {
				return err
			}
			t.Issued, t.Expires = fromUnix(issued), fromUnix(expires)
			list = append(list, t)
			return nil
		})
	})
	return list, err
}
