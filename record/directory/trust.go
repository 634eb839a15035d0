// Package directory is the clients' side of the Directory, which keeps and
// signs the answer to one question: on which Host does a record live now?
//
// [Trust] pins the Directory's keys and never believes an older, expired or
// second story; [Client] speaks HTTP with it. The Directory itself is package
// service below.
package directory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/eda94727/holdfast/record"
)

// Floor is what a client has verified about an address: nothing older will do.
type Floor struct {
	// Generation is the highest that was verified, and Hash its document's
	// [record.Location.Hash].
	Generation int64  `json:"gen"`
	Hash       string `json:"hash"`
	// Record is the record that the address belongs to.
	Record string `json:"record"`
	// Host is where that generation says that the record lives.
	Host record.HostRef `json:"host"`
	// Past has the ids of the Hosts of earlier generations, each once: their
	// receipts remain good.
	Past []string `json:"past,omitzero"`
}

// LogSource reads the documents of the generations above after and up to last;
// [Client.Log] is one.
type LogSource func(ctx context.Context, address string, after, last int64) ([]string, error)

// maxSkew is how wrong a client's clock may be before documents seem expired.
const maxSkew = 5 * time.Minute

// maxTrustFile bounds the state file: some 100,000 addresses.
const maxTrustFile = 64 << 20

// Trust checks a Directory's documents for a client. It keeps the floor of each
// address in a file, and raises it only after full verification. It is safe for
// concurrent use by one process; two processes must not share a file.
type Trust struct {
	pin  Pin
	path string
	now  func() time.Time

	mu     sync.Mutex
	floors map[string]Floor
}

type trustFile struct {
	Format    int              `json:"format"`
	Directory string           `json:"directory"`
	Floors    map[string]Floor `json:"floors"`
}

// OpenTrust opens the state file at path, or begins a new one there. A file that
// cannot be read, or belongs to another Directory, is an error: beginning anew
// would forget the floors. now is the clock; nil means time.Now.
func OpenTrust(path string, pin Pin, now func() time.Time) (*Trust, error) {
	if err := pin.Check(); err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	t := &Trust{pin: pin, path: path, now: now, floors: map[string]Floor{}}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, fmt.Errorf("directory: open trust: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTrustFile+1))
	if err != nil {
		return nil, fmt.Errorf("directory: read trust: %w", err)
	}
	var file trustFile
	if err := record.DecodeJSON(data, record.Limits{Bytes: maxTrustFile, Values: 4_000_000}, &file); err != nil {
		return nil, fmt.Errorf("directory: %s is damaged; restore it, or remove it to forget what was verified: %w", path, err)
	}
	if file.Format != 1 || file.Directory != pin.Directory {
		return nil, fmt.Errorf("directory: %s has format %d and is of the Directory %q; wanted 1 and %q", path, file.Format, file.Directory, pin.Directory)
	}
	if file.Floors != nil {
		t.floors = file.Floors
	}
	return t, nil
}

// Directory returns the URL of the pinned Directory.
func (t *Trust) Directory() string { return t.pin.Directory }

// Floor returns what was verified about an address.
func (t *Trust) Floor(address string) (Floor, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, ok := t.floors[address]
	return f, ok
}

// Verify checks a document fully and changes nothing: signatures of the quorum,
// form, address, time, and its place above both the stored floor and least (1
// or the generation that the caller knows). Where generations are missing
// between the floor and the document they are read from the log and checked link
// by link; log may be nil where that cannot happen.
//
// Errors: [record.InvalidDiscovery], [record.WrongDiscoveryPatient] (another
// address), [record.DiscoveryExpired], [record.StaleDiscoveryGeneration],
// [record.DirectoryEquivocation], and the log's own.
func (t *Trust) Verify(ctx context.Context, document, address string, least int64, log LogSource) (record.Location, error) {
	l, _, err := t.verify(ctx, document, address, least, log)
	return l, err
}

func (t *Trust) verify(ctx context.Context, document, address string, least int64, log LogSource) (record.Location, Floor, error) {
	l, err := t.open(document, address)
	if err != nil {
		return record.Location{}, Floor{}, err
	}
	if err := l.Expired(t.now(), maxSkew); err != nil {
		return record.Location{}, Floor{}, err
	}
	floor, known := t.Floor(address)
	switch {
	case known && floor.Record != l.Record:
		return record.Location{}, Floor{}, &record.Error{Code: record.WrongDiscoveryPatient, Field: "record_id", Detail: "the address belonged to another record"}
	case l.Generation < max(least, floor.Generation):
		return record.Location{}, Floor{}, &record.Error{Code: record.StaleDiscoveryGeneration, Field: "gen",
			Detail: fmt.Sprintf("generation %d; %d was known already: the Directory was rolled back, or somebody answers in its place", l.Generation, max(least, floor.Generation))}
	case l.Generation == floor.Generation:
		if l.Hash() != floor.Hash {
			return record.Location{}, Floor{}, equivocation(l.Generation)
		}
		return l, floor, nil
	}
	next, err := t.verifyChain(ctx, l, floor, log)
	if err != nil {
		return record.Location{}, Floor{}, err
	}
	return l, next, nil
}

func equivocation(gen int64) error {
	return &record.Error{Code: record.DirectoryEquivocation, Field: "gen", Detail: fmt.Sprintf("there are two different documents of generation %d", gen)}
}

// open checks what does not depend on the floor.
func (t *Trust) open(document, address string) (record.Location, error) {
	l, err := record.VerifyLocation(document, t.pin.Quorum)
	switch {
	case err != nil:
		return l, err
	case l.Directory != t.pin.Directory:
		return l, &record.Error{Code: record.InvalidDiscovery, Field: "iss", Detail: "the document is of another Directory"}
	case l.Address != address:
		return l, &record.Error{Code: record.WrongDiscoveryPatient, Field: "sub", Detail: "the document is of another address"}
	}
	return l, nil
}

// verifyChain follows the links from the floor to the document and returns
// the floor that the document makes.
func (t *Trust) verifyChain(ctx context.Context, l record.Location, floor Floor, log LogSource) (Floor, error) {
	previous := floor
	if l.Generation > floor.Generation+1 {
		if log == nil {
			return previous, &record.Error{Code: record.InvalidDiscovery, Field: "gen", Detail: "generations are missing and there is no log to read them from"}
		}
		documents, err := log(ctx, l.Address, floor.Generation, l.Generation-1)
		if err != nil {
			return previous, fmt.Errorf("directory: read the log: %w", err)
		}
		for _, document := range documents {
			link, err := t.open(document, l.Address)
			if err != nil {
				return previous, err
			}
			if previous, err = follow(previous, link, l.Record); err != nil {
				return previous, err
			}
		}
		if previous.Generation != l.Generation-1 {
			return previous, &record.Error{Code: record.InvalidDiscovery, Field: "gen", Detail: fmt.Sprintf("the log ends at generation %d, before %d", previous.Generation, l.Generation-1)}
		}
	}
	return follow(previous, l, l.Record)
}

// follow checks one link of the chain and returns the floor behind it.
func follow(previous Floor, l record.Location, recordID string) (Floor, error) {
	switch {
	case l.Record != recordID:
		return previous, &record.Error{Code: record.WrongDiscoveryPatient, Field: "record_id", Detail: "the log tells of another record"}
	case l.Generation != previous.Generation+1:
		return previous, &record.Error{Code: record.InvalidDiscovery, Field: "gen", Detail: fmt.Sprintf("generation %d does not follow %d", l.Generation, previous.Generation)}
	case l.Prev != previous.Hash:
		return previous, equivocation(previous.Generation)
	}
	next := Floor{Generation: l.Generation, Hash: l.Hash(), Record: l.Record, Host: l.Host, Past: previous.Past}
	if id := previous.Host.ID; id != "" && !slices.Contains(previous.Past, id) {
		next.Past = append(slices.Clone(previous.Past), id)
	}
	return next, nil
}

// HasHost reports whether the Host is, or was, the record's.
func (f Floor) HasHost(id string) bool { return f.Host.ID == id || slices.Contains(f.Past, id) }

// Accept verifies a document as [Trust.Verify] does and then raises the floor,
// on disk before it returns. After an error the floor is what it was.
func (t *Trust) Accept(ctx context.Context, document, address string, least int64, log LogSource) (record.Location, error) {
	l, next, err := t.verify(ctx, document, address, least, log)
	if err != nil {
		return record.Location{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch was := t.floors[address]; {
	case was.Generation == next.Generation && was.Hash == next.Hash:
		return l, nil
	case was.Generation == next.Generation:
		return record.Location{}, equivocation(l.Generation)
	case was.Generation > next.Generation: // another goroutine was faster
		return record.Location{}, &record.Error{Code: record.StaleDiscoveryGeneration, Field: "gen", Detail: "a newer generation was just verified"}
	}
	floors := maps.Clone(t.floors)
	floors[address] = next
	data, err := json.Marshal(trustFile{1, t.pin.Directory, floors}, json.Deterministic(true), jsontext.WithIndent(" "))
	if err != nil {
		return record.Location{}, fmt.Errorf("directory: save trust: %w", err)
	}
	if err := record.WriteFileDurably(t.path, data); err != nil {
		return record.Location{}, err
	}
	t.floors = floors
	return l, nil
}
