// Package host keeps patients' records: FHIR R4 over HTTP, with writes that are
// done once for each operation id and answered with signed, chained receipts.
//
// Everything that a write checks, from the grant behind its token to the version
// it is based on, is checked in the one transaction that also makes the new
// version, its receipt and its line of audit. docs/records.md has the protocol.
package host

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
	"github.com/eda94727/holdfast/record/profile"
)

//go:embed schema.sql
var schemaSQL string

//go:embed sql
var statementSQL embed.FS

// Config is what a Host needs. URL, Database and Key must be set; everything
// else has a useful zero value.
type Config struct {
	// URL is the Host's own URL as clients see it, without a slash at the end.
	// Its FHIR base is URL/fhir, its authorization server's issuer is URL.
	URL string
	// Database is the path of a SQLite file, or postgres://….
	Database string
	// Key is the Host's key: its id, and what signs tokens and receipts.
	Key *record.Key
	// Validator is asked before a resource is committed; nil means nobody is.
	Validator Validator
	// Rate is how many requests a second a client may make on average, and
	// Burst how many at once; 0 means 500 and 1000, below 0 means no limit.
	Rate  float64
	Burst int
	// MaxBody bounds a request's body in bytes; 0 means 1 MiB.
	MaxBody int64
	// MaxConcurrent bounds the requests that are worked on at once; 0 means
	// 512. More are answered host_unavailable.
	MaxConcurrent int
	// Timeout is the deadline of one request; 0 means 30 seconds.
	Timeout time.Duration
	// Directory connects the Host with the Directory that publishes its
	// records; nil means that records are not published and cannot move.
	Directory *Directory
	// Log takes what happens, without content and secrets; nil means no log.
	Log *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Host is a running Host. Its methods are safe for concurrent use.
type Host struct {
	config  Config
	base    *url.URL
	db      *db.DB
	profile *profile.Profile
	nonces  *record.Nonces
	keys    record.KeyCache // of proofs
	proofs  *seenSet
	// assertions are accepted longer than proofs, and are far fewer.
	assertions *seenSet
	tokens     *tokenCache
	rates      *rateLimits
	slots      chan struct{}
	audit      *auditor
	flights    flights
	moving     flights // records that this process moves or receives
	// step is called before each step of a move; tests make it fail there.
	step func(name string) error
}

// Open opens or makes the Host's database. Close it when done.
func Open(ctx context.Context, c Config) (*Host, error) {
	if err := record.CheckBaseURL(c.URL); err != nil {
		return nil, fmt.Errorf("host: URL: %w", err)
	}
	base, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("host: URL: %w", err)
	}
	if c.Key == nil {
		return nil, errors.New("host: Key is missing; record.LoadOrCreateKey makes one")
	}
	if c.Directory != nil {
		if err := c.Directory.open(c.Now); err != nil {
			return nil, err
		}
	}
	c = c.withDefaults()
	p, err := profile.Load()
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	h := &Host{config: c, base: base, profile: p, nonces: record.NewNonces(), proofs: newSeenSet(record.NonceLifetime + 2*time.Minute), assertions: newSeenSet(10 * time.Minute),
		tokens: newTokenCache(), rates: newRateLimits(c.Rate, c.Burst), slots: make(chan struct{}, c.MaxConcurrent), step: func(string) error { return nil }}
	if h.db, err = db.Open(ctx, db.Config{URL: c.Database, Schema: schemaSQL, SQL: statementSQL, Namespace: "holdfast_host"}); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	if err := h.checkIdentity(ctx); err != nil {
		h.db.Close()
		return nil, err
	}
	h.audit = newAuditor(h.db, c.Log, auditWait)
	return h, nil
}

// checkIdentity keeps a Host with another key from the database: the receipts
// in it are signed by the Host that it belongs to, and so must the next be.
func (h *Host) checkIdentity(ctx context.Context) error {
	var owner string
	err := h.db.Write(ctx, "check the Host's identity", func(tx db.Tx) error {
		if _, err := tx.Exec("identity_set", db.Args{"host": h.ID()}); err != nil {
			return err
		}
		_, err := db.One(tx, "identity_get", nil, &owner)
		return err
	})
	if err == nil && owner != h.ID() {
		err = fmt.Errorf("host: the database belongs to the Host %s, and the key to %s; use that Host's key, or another database", owner, h.ID())
	}
	return err
}

func (c Config) withDefaults() Config {
	if c.Rate == 0 {
		c.Rate, c.Burst = 500, 1000
	}
	if c.MaxBody == 0 {
		c.MaxBody = 1 << 20
	}
	if c.MaxConcurrent == 0 {
		c.MaxConcurrent = 512
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Close waits for the audit to be written and closes the database. Stop the
// HTTP server first.
func (h *Host) Close() error {
	h.audit.close()
	return h.db.Close()
}

// ID returns the Host's id.
func (h *Host) ID() string { return h.config.Key.ID() }

// Ref returns the Host as a Directory names it.
func (h *Host) Ref() record.HostRef {
	return record.HostRef{ID: h.ID(), FHIRBase: h.fhirBase(), Issuer: h.config.URL}
}

func (h *Host) fhirBase() string { return h.config.URL + "/fhir" }

func (h *Host) now() time.Time { return h.config.Now() }

// Ready reports whether the Host can serve.
func (h *Host) Ready(ctx context.Context) error { return h.db.Ping(ctx) }

// Handler serves the Host under its URL's path.
func (h *Host) Handler() http.Handler {
	mux := http.NewServeMux()
	fhir := func(pattern string, serve func(w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			err := checkPath(r)
			if err == nil {
				err = serve(w, r)
			}
			if err != nil {
				h.failFHIR(w, r, err)
			}
		})
	}
	plain := func(pattern string, serve func(w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				h.failProblem(w, r, err)
			}
		})
	}
	fhir("GET /fhir/metadata", h.serveMetadata)
	fhir("GET /fhir/{type}", h.serveSearch)
	fhir("POST /fhir/{type}/_search", h.serveSearch)
	fhir("GET /fhir/{type}/{id}", h.serveRead)
	fhir("GET /fhir/{type}/{id}/_history", h.serveHistory)
	fhir("GET /fhir/{type}/{id}/_history/{version}", h.serveVersion)
	fhir("GET /fhir/Patient/{id}/$everything", h.serveEverything)
	fhir("POST /fhir/{type}", h.serveWrite)
	fhir("PUT /fhir/{type}/{id}", h.serveWrite)
	fhir("PATCH /fhir/{type}/{id}", h.serveWrite)
	fhir("DELETE /fhir/{type}/{id}", h.serveWrite)
	fhir("/fhir/", func(http.ResponseWriter, *http.Request) error {
		return &record.Error{Code: record.NotFound, Field: "path", Detail: "this Host has no such interaction; see the CapabilityStatement at /fhir/metadata"}
	})
	plain("GET /receipts/{op}", h.serveReceipt)
	h.oauthRoutes(mux)
	h.transferRoutes(plain)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("ok\n")) })
	plain("GET /readyz", func(w http.ResponseWriter, r *http.Request) error {
		if err := h.Ready(r.Context()); err != nil {
			return &record.Error{Code: record.HostUnavailable, Detail: "the database does not answer"}
		}
		w.Write([]byte("ok\n"))
		return nil
	})
	return h.guard(http.StripPrefix(strings.TrimSuffix(h.base.Path, "/"), mux))
}

// checkPath keeps what cannot be a resource's name from going any further.
func checkPath(r *http.Request) error {
	if id := r.PathValue("id"); id != "" && !record.IsResourceID(id) {
		return &record.Error{Code: record.NotFound, Field: "path", Detail: "not the id of a resource"}
	}
	return nil
}

// isText reports whether a text can go into any database's text column: UTF-8
// without NUL.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// guard bounds every request: how many at once, how long, and how large. It
// also gives each answer a fresh nonce for the client's next proof.
func (h *Host) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("DPoP-Nonce", h.nonces.New(h.now()))
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		if strings.HasSuffix(r.URL.Path, "/healthz") {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case h.slots <- struct{}{}:
			defer func() { <-h.slots }()
		default:
			h.failProblem(w, r, &record.Error{Code: record.HostUnavailable, Detail: "too many requests at once", RetryAfter: time.Second})
			return
		}
		if !strings.HasPrefix(r.URL.Path, h.base.Path+"/transfers/") { // a record's export takes as long as it takes, within its own bounds
			ctx, cancel := context.WithTimeout(r.Context(), h.config.Timeout)
			defer cancel()
			r = r.WithContext(ctx)
			r.Body = http.MaxBytesReader(w, r.Body, h.config.MaxBody)
		}
		next.ServeHTTP(w, r)
	})
}

// flights knows the operations that are being worked on by this process.
type flights struct {
	mu   sync.Mutex
	busy map[string]bool
}

// begin reports whether the operation was free, and holds it until end.
func (f *flights) begin(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy == nil {
		f.busy = map[string]bool{}
	}
	if f.busy[key] {
		return false
	}
	f.busy[key] = true
	return true
}

func (f *flights) end(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.busy, key)
}
