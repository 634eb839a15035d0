// Package client writes to patients' records and reads them, wherever they
// live. It finds a record's Host by the Directory, keeps access tokens and
// renews them, makes the proofs that each request needs, and believes a write
// only with the Host's receipt in hand.
//
// One Client serves one application with one key, and records on any number of
// Hosts. Its state on disk (which records it knows, and how new the locations
// are that it has verified) survives crashes. One Client uses it at a time, in
// this process or another, until it is closed.
package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/gofrs/flock"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/directory"
	"github.com/eda94727/holdfast/record/internal/transport"
)

// Config is what a Client needs: Key, and either Pin with StateDir, or Host.
type Config struct {
	// Key is the application's key; its id is the application's.
	Key *record.Key
	// Pin is the Directory that says where records live, and its keys.
	Pin directory.Pin
	// StateDir is the folder of the client's state; it is made if need be.
	StateDir string
	// Host is where every record lives, for a client without a Directory.
	Host *record.HostRef
	// Actor is the representative that the application acts for; "" where it
	// acts on its own.
	Actor string
	// Scope asks for less than the grants allow; "" asks for all of it.
	Scope string
	// FollowMoves makes a write or read that is answered record_moved ask the
	// Directory and go on at the new Host. A queue leaves it off and decides
	// itself.
	FollowMoves bool
	// Timeout is the deadline of one HTTP request; 0 means 20 seconds.
	Timeout time.Duration
	// HTTP does the requests; nil means a client of its own, which speaks
	// HTTP/1.1 and keeps up to 64 connections to each Host: that costs both
	// sides less than HTTP/2. Redirects are never followed.
	HTTP *http.Client
	// Limits bounds what is sent.
	Limits record.Limits
	// Log takes what happens, without content and secrets; nil means no log.
	Log *slog.Logger
	// Now is the clock; nil means time.Now. Hosts do not mind a wrong one.
	Now func() time.Time
}

// Location is where a record lives, as the client knows it.
type Location = record.Place

// Client is safe for concurrent use.
type Client struct {
	config Config
	http   http.Client
	dir    directory.Client
	trust  *directory.Trust // nil without a Directory
	lock   *flock.Flock     // likewise

	keys record.KeyCache // of receipts

	mu      sync.Mutex
	records map[string]string // record -> address
	tokens  map[tokenKey]*tokenSlot
	hosts   map[string]*hostState // by host id
}

type stateFile struct {
	Format  int               `json:"format"`
	Records map[string]string `json:"records"`
}

const maxStateFile = 64 << 20

// ErrInUse is what the error of [New] matches where another Client uses the
// state, in this process or another. Two would each raise floors that the other
// does not see.
var ErrInUse = errors.New("client: the state is in use")

// New opens the client's state. Close it when done: until then no other Client
// can use the state. Errors: [ErrInUse]; a Config that cannot be used; a state that
// is damaged.
func New(c Config) (*Client, error) {
	if c.Key == nil {
		return nil, errors.New("client: Key is missing; record.LoadOrCreateKey makes one")
	}
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	k := &Client{config: c, records: map[string]string{}, tokens: map[tokenKey]*tokenSlot{}, hosts: map[string]*hostState{}}
	if c.HTTP != nil {
		k.http = *c.HTTP
	} else {
		k.http.Transport = transport.New()
	}
	// A token is bound to the Host that it was made for, and must not travel.
	k.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	k.dir = directory.Client{HTTP: &k.http}
	if c.Host != nil {
		if err := c.Host.Check(); err != nil {
			return nil, fmt.Errorf("client: Host: %w", err)
		}
		return k, nil
	}
	if c.StateDir == "" {
		return nil, errors.New("client: StateDir is missing: a client with a Directory keeps what it has verified")
	}
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	// The system's lock goes with the process that holds it, however it ends.
	k.lock = flock.New(filepath.Join(c.StateDir, "client.lock"), flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	if got, err := k.lock.TryLock(); err != nil {
		return nil, fmt.Errorf("client: lock %s: %w", c.StateDir, err)
	} else if !got {
		return nil, fmt.Errorf("%w: %s belongs to another Client, perhaps of another process; close that one, or use a folder of your own", ErrInUse, c.StateDir)
	}
	var err error
	if k.trust, err = directory.OpenTrust(filepath.Join(c.StateDir, "trust.json"), c.Pin, c.Now); err == nil {
		err = k.load()
	}
	if err != nil {
		k.lock.Unlock()
		return nil, err
	}
	return k, nil
}

// InDir returns the Config of a Client that keeps everything in one folder: its
// key in app.key, made at the first use, and its state. Pin is the caller's to
// set.
func InDir(dir string) (Config, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Config{}, fmt.Errorf("client: %w", err)
	}
	key, err := record.LoadOrCreateKey(filepath.Join(dir, "app.key"))
	if err != nil {
		return Config{}, err
	}
	return Config{Key: key, StateDir: dir}, nil
}

func (k *Client) statePath() string { return filepath.Join(k.config.StateDir, "records.json") }

func (k *Client) load() error {
	data, err := os.ReadFile(k.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	var file stateFile
	if err := record.DecodeJSON(data, record.Limits{Bytes: maxStateFile, Values: 4_000_000}, &file); err != nil || file.Format != 1 {
		return fmt.Errorf("client: %s is damaged; restore it, or remove it to learn the records anew", k.statePath())
	}
	if file.Records != nil {
		k.records = file.Records
	}
	return nil
}

// Close lets go of idle connections and of the state. The Client is not to be
// used afterwards.
func (k *Client) Close() {
	k.http.CloseIdleConnections()
	if k.lock != nil {
		k.lock.Unlock()
	}
}

// Subject returns the application's id.
func (k *Client) Subject() string { return k.config.Key.ID() }

// Location returns where the client believes that the record lives, from its
// own state alone; false if it does not know.
func (k *Client) Location(recordID string) (Location, bool) {
	if k.config.Host != nil {
		return Location{Record: recordID, Host: *k.config.Host}, true
	}
	address := k.addressOf(recordID)
	floor, ok := k.trust.Floor(address)
	if !ok || floor.Record != recordID {
		return Location{}, false
	}
	return Location{Record: recordID, Host: floor.Host, Generation: floor.Generation, Address: address}, true
}

// HostFor returns the id of the record's Host, from the client's state alone;
// "" if it does not know it.
func (k *Client) HostFor(recordID string) string {
	l, _ := k.Location(recordID)
	return l.Host.ID
}

// addressOf is the address that was learned, or the one that the Directory
// gives to every record.
func (k *Client) addressOf(recordID string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if address, ok := k.records[recordID]; ok {
		return address
	}
	return directory.Address(k.config.Pin.Directory, recordID)
}

// Locate asks the Directory where the record lives, verifies the answer and
// keeps it on disk.
func (k *Client) Locate(ctx context.Context, recordID string) (Location, error) {
	return k.LocateAt(ctx, recordID, k.addressOf(recordID))
}

// LocateAt is [Client.Locate] for a record with an address of its own kind.
func (k *Client) LocateAt(ctx context.Context, recordID, address string) (Location, error) {
	if err := record.CheckID("patient", recordID); err != nil {
		return Location{}, err
	}
	if k.trust == nil {
		l, _ := k.Location(recordID)
		return l, nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.config.Timeout)
	defer cancel()
	document, err := k.dir.Document(ctx, address)
	if err != nil {
		return Location{}, err
	}
	if _, err := k.FollowMigration(ctx, recordID, document, address, 1); err != nil {
		return Location{}, err
	}
	l, _ := k.Location(recordID)
	return l, nil
}

// Document reads the Directory's current document about a record, at the given
// address or, where that is "", at the one that the client knows. Nothing is
// verified or kept: that is [Client.FollowMigration]'s.
func (k *Client) Document(ctx context.Context, recordID, address string) (document, at string, err error) {
	if err := record.CheckID("patient", recordID); err != nil {
		return "", "", err
	}
	if k.trust == nil {
		return "", "", &record.Error{Code: record.InvalidDiscovery, Field: "document", Detail: "this client has no Directory"}
	}
	if address == "" {
		address = k.addressOf(recordID)
	}
	ctx, cancel := context.WithTimeout(ctx, k.config.Timeout)
	defer cancel()
	document, err = k.dir.Document(ctx, address)
	return document, address, err
}

// Verify checks a Directory's document for a record and changes nothing. least
// is the lowest generation that will do; the stored floor holds beside it.
func (k *Client) Verify(ctx context.Context, recordID, document, address string, least int64) (record.Location, error) {
	if k.trust == nil {
		return record.Location{}, &record.Error{Code: record.InvalidDiscovery, Field: "document", Detail: "this client has no Directory"}
	}
	l, err := k.trust.Verify(ctx, document, address, least, k.dir.Log)
	return l, otherRecord(recordID, l, err)
}

func otherRecord(recordID string, l record.Location, err error) error {
	if err == nil && l.Record != recordID {
		err = &record.Error{Code: record.WrongDiscoveryPatient, Field: "record_id", Detail: "the document is about another record"}
	}
	return err
}

// FollowMigration verifies a Directory's document for a record, as
// [Client.Verify] does, and from then on uses the Host that it names. The new
// state is on disk before it returns; after an error nothing has changed.
func (k *Client) FollowMigration(ctx context.Context, recordID, document, address string, least int64) (record.Location, error) {
	if _, err := k.Verify(ctx, recordID, document, address, least); err != nil {
		return record.Location{}, err
	}
	if err := k.remember(recordID, address); err != nil {
		return record.Location{}, err
	}
	l, err := k.trust.Accept(ctx, document, address, least, k.dir.Log)
	if err == nil {
		k.config.Log.InfoContext(ctx, "record located", "record", recordID, "host", l.Host.ID, "generation", l.Generation)
	}
	return l, err
}

// remember keeps an address that is not the usual one.
func (k *Client) remember(recordID, address string) error {
	if k.addressOf(recordID) == address {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	records := maps.Clone(k.records)
	records[recordID] = address
	data, err := json.Marshal(stateFile{1, records}, json.Deterministic(true), jsontext.WithIndent(" "))
	if err != nil {
		return fmt.Errorf("client: save the records: %w", err)
	}
	if err := record.WriteFileDurably(k.statePath(), data); err != nil {
		return err
	}
	k.records = records
	return nil
}

// knowsHost reports whether a Host is, or was, the record's: whose receipts
// are good.
func (k *Client) knowsHost(l Location, hostID string) bool {
	if hostID == l.Host.ID {
		return true
	}
	if k.trust == nil {
		return false
	}
	floor, ok := k.trust.Floor(l.Address)
	return ok && floor.HasHost(hostID)
}
