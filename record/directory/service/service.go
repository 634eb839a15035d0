// Package service is the Directory itself: it signs location documents, one
// generation after the other, and takes publications from the Hosts that a move
// concerns. Its clients' side is package directory.
package service

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/directory"
	"github.com/eda94727/holdfast/record/internal/db"
)

//go:embed schema.sql
var schemaSQL string

//go:embed sql
var statementSQL embed.FS

// Config is what a Directory needs. URL, Database and Keys must be set.
type Config struct {
	// URL is the Directory's own URL, without a slash at the end. It is the iss
	// of its documents, and addresses begin with it: it cannot change later.
	URL string
	// Database is the path of a SQLite file, or postgres://….
	Database string
	// Keys sign every document. Clients pin them, with a threshold that they
	// must meet.
	Keys []*record.Key
	// Lifetime is how long a document is valid; 0 means seven days. Documents
	// are signed again when half of it has passed.
	Lifetime time.Duration
	// Threshold is what the Directory advertises as its quorum of Keys; 0 means
	// all of them.
	Threshold int
	// Log takes what happens; nil means no log.
	Log *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// maxPublicationAge is how long a signed publication may be presented.
const maxPublicationAge = time.Hour

// Service is a Directory. Its methods are safe for concurrent use.
type Service struct {
	config Config
	base   *url.URL
	db     *db.DB
}

// Open opens or makes the Directory's database. Close it when done.
func Open(ctx context.Context, c Config) (*Service, error) {
	if err := record.CheckBaseURL(c.URL); err != nil {
		return nil, fmt.Errorf("directory: URL: %w", err)
	}
	base, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("directory: URL: %w", err)
	}
	if c.Lifetime == 0 {
		c.Lifetime = 7 * 24 * time.Hour
	}
	if c.Lifetime < time.Minute {
		return nil, fmt.Errorf("directory: a lifetime of %s; wanted a minute or more", c.Lifetime)
	}
	if c.Threshold == 0 {
		c.Threshold = len(c.Keys)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Service{config: c, base: base}
	if err := s.Quorum().Check(); err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	if s.db, err = db.Open(ctx, db.Config{URL: c.Database, Schema: schemaSQL, SQL: statementSQL, Namespace: "holdfast_directory"}); err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	return s, nil
}

// Close closes the database.
func (s *Service) Close() error { return s.db.Close() }

// Ready reports whether the database answers.
func (s *Service) Ready(ctx context.Context) error { return s.db.Ping(ctx) }

// Quorum returns the keys and the threshold that clients pin.
func (s *Service) Quorum() record.Quorum {
	q := record.Quorum{Threshold: s.config.Threshold}
	for _, key := range s.config.Keys {
		q.Keys = append(q.Keys, key.Public())
	}
	return q
}

// Pin returns what clients of this Directory pin.
func (s *Service) Pin() directory.Pin {
	return directory.Pin{Directory: s.config.URL, Quorum: s.Quorum()}
}

// Address returns the address of a record's documents.
func (s *Service) Address(recordID string) string { return directory.Address(s.config.URL, recordID) }

// Host is a Host that may publish.
type Host struct {
	ID       string
	Name     string
	Admitted time.Time
}

// AdmitHost lets a Host publish the records that it makes or receives.
func (s *Service) AdmitHost(ctx context.Context, id, name string) error {
	if err := record.CheckSubject("host", id); err != nil {
		return err
	}
	return s.db.Write(ctx, "admit host", func(tx db.Tx) error {
		_, err := tx.Exec("host_admit", db.Args{"id": id, "name": name, "now": s.config.Now().Unix()})
		return err
	})
}

// RemoveHost takes the right to publish from a Host. Its records stay where
// they are.
func (s *Service) RemoveHost(ctx context.Context, id string) error {
	return s.db.Write(ctx, "remove host", func(tx db.Tx) error {
		changed, err := tx.Exec("host_remove", db.Args{"id": id})
		if err == nil && changed == 0 {
			err = &record.Error{Code: record.NotFound, Field: "host", Detail: "no such Host is admitted"}
		}
		return err
	})
}

// Hosts lists the Hosts that may publish.
func (s *Service) Hosts(ctx context.Context) (hosts []Host, err error) {
	err = s.db.Read(ctx, func(tx db.Tx) error {
		hosts = nil
		return tx.Query("host_list", nil, func(row db.Row) error {
			var h Host
			var at int64
			if err := row.Scan(&h.ID, &h.Name, &at); err != nil {
				return err
			}
			h.Admitted = time.Unix(at, 0).UTC()
			hosts = append(hosts, h)
			return nil
		})
	})
	return hosts, err
}

// stored is the newest generation of a record.
type stored struct {
	location record.Location
	document string
	expires  int64
}

func current(tx db.Tx, recordID string) (s stored, found bool, err error) {
	var gen, expires int64
	var hash, host, claims, document string
	found, err = db.One(tx, "current", db.Args{"record": recordID}, &gen, &hash, &host, &claims, &document, &expires)
	if err != nil || !found {
		return s, false, err
	}
	if err := json.Unmarshal([]byte(claims), &s.location); err != nil || s.location.Hash() != hash {
		return s, false, fmt.Errorf("directory: generation %d of %s was altered in the database", gen, recordID)
	}
	s.document, s.expires = document, expires
	return s, true, nil
}

// Document returns the signed document of the record's newest generation, not
// older than half a lifetime. The error is [record.NotFound] for a record that
// nobody published.
func (s *Service) Document(ctx context.Context, recordID string) (string, error) {
	var now stored
	err := s.db.Read(ctx, func(tx db.Tx) error {
		var found bool
		var err error
		now, found, err = current(tx, recordID)
		if err == nil && !found {
			err = notFound()
		}
		return err
	})
	if err != nil || time.Unix(now.expires, 0).Sub(s.config.Now()) >= s.config.Lifetime/2 {
		return now.document, err
	}
	// Only the newest generation is signed again: an old Host must not get a
	// fresh document of the time when the record was its own.
	var document string
	err = s.db.Write(ctx, "sign again", func(tx db.Tx) error {
		newest, found, err := current(tx, recordID)
		if err != nil || !found {
			return errors.Join(err, notFound())
		}
		l, signed, err := s.sign(newest.location)
		if err != nil {
			return err
		}
		document = signed
		_, err = tx.Exec("resign", db.Args{"record": recordID, "gen": l.Generation, "document": signed, "expires": l.Expires})
		return err
	})
	return document, err
}

func notFound() error {
	return &record.Error{Code: record.NotFound, Field: "address", Detail: "no record is published at this address"}
}

// sign gives the location its times and signs it.
func (s *Service) sign(l record.Location) (record.Location, string, error) {
	now := s.config.Now()
	l.IssuedAt, l.Expires = now.Unix(), now.Add(s.config.Lifetime).Unix()
	document, err := record.SignLocation(s.config.Keys, l)
	return l, document, err
}

// Log returns the record's documents of the generations above after, oldest
// first, at most [directory.LogPage] of them.
func (s *Service) Log(ctx context.Context, recordID string, after int64) (documents []string, err error) {
	err = s.db.Read(ctx, func(tx db.Tx) error {
		documents = []string{}
		return tx.Query("log", db.Args{"record": recordID, "after": after, "limit": directory.LogPage}, func(row db.Row) error {
			var document string
			if err := row.Scan(&document); err != nil {
				return err
			}
			documents = append(documents, document)
			return nil
		})
	})
	return documents, err
}

// Publish takes a signed publication and returns the new document. The
// publication must follow the current generation exactly (compare-and-swap on
// generation and hash), and be signed by the Host it names and, where the record
// leaves another Host, by that one; the named Host must be admitted. Publishing
// the newest generation once more returns its document and changes nothing.
// Errors: [record.InvalidMessage], [record.PublisherNotAuthorized],
// [record.PublicationConflict].
func (s *Service) Publish(ctx context.Context, publication string) (document string, created bool, err error) {
	p, signers, err := record.VerifyPublication(publication)
	if err != nil {
		return "", false, err
	}
	now := s.config.Now()
	switch issued, expires := time.Unix(p.IssuedAt, 0), time.Unix(p.Expires, 0); {
	case !now.Before(expires):
		return "", false, invalid("exp", "the publication has expired; sign it again")
	case issued.After(now.Add(5*time.Minute)) || expires.After(now.Add(maxPublicationAge+5*time.Minute)):
		return "", false, invalid("exp", "the publication is from the future or lives longer than an hour")
	}
	return s.publish(ctx, p, signers, false)
}

// Override publishes without the signature of the Host that the record leaves,
// on the word of the Directory's operator: for a Host whose key is lost. The
// new Host must sign and be admitted all the same.
func (s *Service) Override(ctx context.Context, publication string) (document string, err error) {
	p, signers, err := record.VerifyPublication(publication)
	if err != nil {
		return "", err
	}
	document, _, err = s.publish(ctx, p, signers, true)
	return document, err
}

func invalid(field, detail string) error {
	return &record.Error{Code: record.InvalidMessage, Field: field, Detail: detail}
}

func (s *Service) publish(ctx context.Context, p record.Publication, signers []string, override bool) (document string, created bool, err error) {
	if p.Directory != s.config.URL || p.Address != s.Address(p.Record) {
		return "", false, invalid("aud", "the publication is for another Directory or address")
	}
	l, signed, err := s.sign(p.Location(time.Unix(0, 0), time.Unix(0, 0)))
	if err != nil {
		return "", false, err
	}
	if err := l.Check(); err != nil {
		return "", false, invalid("publication", err.Error())
	}
	claims, err := json.Marshal(l)
	if err != nil {
		return "", false, fmt.Errorf("directory: %w", err)
	}
	err = s.db.Write(ctx, "publish", func(tx db.Tx) error {
		document, created = "", false
		was, found, err := current(tx, p.Record)
		if err != nil {
			return err
		}
		if !slices.Contains(signers, p.Host.ID) {
			return unauthorized("the Host that the record goes to must sign")
		}
		if found && was.location.Hash() == l.Hash() {
			document = was.document
			return nil
		}
		if found && was.location.Host.ID != p.Host.ID && !override && !slices.Contains(signers, was.location.Host.ID) {
			return unauthorized("the Host that the record leaves must sign")
		}
		var name string
		if admitted, err := db.One(tx, "host_admitted", db.Args{"id": p.Host.ID}, &name); err != nil {
			return err
		} else if !admitted {
			return unauthorized("this Directory does not know the Host " + p.Host.ID)
		}
		if p.Generation != was.location.Generation+1 || found && p.Prev != was.location.Hash() {
			return &record.Error{Code: record.PublicationConflict, Field: "gen",
				Detail: fmt.Sprintf("the current generation is %d; a publication must follow it and carry its hash", was.location.Generation)}
		}
		document, created = signed, true
		_, err = tx.Exec("insert", db.Args{"record": l.Record, "gen": l.Generation, "hash": l.Hash(), "host": l.Host.ID, "claims": string(claims), "document": signed, "expires": l.Expires})
		if errors.Is(err, db.ErrDuplicate) { // another process published in between
			return &record.Error{Code: record.PublicationConflict, Field: "gen", Detail: "this generation was just published"}
		}
		return err
	})
	if err == nil && created {
		s.config.Log.InfoContext(ctx, "published", "record", l.Record, "generation", l.Generation, "host", l.Host.ID, "reason", l.Reason, "override", override)
	}
	return document, created, err
}

func unauthorized(detail string) error {
	return &record.Error{Code: record.PublisherNotAuthorized, Field: "publication", Detail: detail}
}
