package host

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/directory"
)

// Directory connects a Host with the Directory that publishes its records.
type Directory struct {
	// Pin is the Directory and its keys.
	Pin directory.Pin
	// TrustFile is where the Host keeps what it has verified.
	TrustFile string
	// HTTP does the requests to the Directory and to other Hosts; nil means
	// http.DefaultClient's transport.
	HTTP *http.Client

	trust  *directory.Trust
	client directory.Client
}

func (d *Directory) open(now func() time.Time) error {
	if d.TrustFile == "" {
		return errors.New("host: Directory.TrustFile is missing")
	}
	trust, err := directory.OpenTrust(d.TrustFile, d.Pin, now)
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	d.trust, d.client = trust, directory.Client{HTTP: d.HTTP}
	return nil
}

func (d *Directory) address(recordID string) string {
	return directory.Address(d.Pin.Directory, recordID)
}

// directoryTimeout bounds one conversation with the Directory.
const directoryTimeout = 30 * time.Second

// locate reads, verifies and remembers where a record lives.
func (d *Directory) locate(ctx context.Context, recordID string) (record.Location, error) {
	ctx, cancel := context.WithTimeout(ctx, directoryTimeout)
	defer cancel()
	address := d.address(recordID)
	document, err := d.client.Document(ctx, address)
	if err != nil {
		return record.Location{}, err
	}
	return d.trust.Accept(ctx, document, address, 1, d.client.Log)
}

// publish sends a publication and verifies that the Directory says so now.
func (d *Directory) publish(ctx context.Context, p record.Publication, signed string) error {
	ctx, cancel := context.WithTimeout(ctx, directoryTimeout)
	defer cancel()
	document, err := d.client.Publish(ctx, p.Address, signed)
	if err != nil {
		return err
	}
	l, err := d.trust.Accept(ctx, document, p.Address, p.Generation, d.client.Log)
	if err == nil && (l.Generation != p.Generation || l.Host != p.Host) {
		err = &record.Error{Code: record.PublicationConflict, Detail: "the Directory answered with another location"}
	}
	return err
}

// publicationLife is how long a signed publication can be presented.
const publicationLife = 30 * time.Minute

// publication prepares the word that the record lives at a Host from now on.
func (h *Host) publication(recordID string, generation int64, prev string, to record.HostRef, reason string) record.Publication {
	now := h.now()
	return record.Publication{Directory: h.config.Directory.Pin.Directory, Address: h.config.Directory.address(recordID), Record: recordID,
		Generation: generation, Prev: prev, Host: to, Reason: reason, IssuedAt: now.Unix(), Expires: now.Add(publicationLife).Unix()}
}

// publishFirst publishes a record's first generation, unless that was done.
func (h *Host) publishFirst(ctx context.Context, recordID string) error {
	l, err := h.config.Directory.locate(ctx, recordID)
	if err == nil {
		if l.Host.ID != h.ID() {
			return &record.Error{Code: record.PublicationConflict, Field: "record", Detail: "the Directory says that this record lives on another Host"}
		}
		return nil
	}
	if !errors.Is(err, record.NotFound) {
		return err
	}
	p := h.publication(recordID, 1, "", h.Ref(), "created")
	signed, err := record.SignPublication([]*record.Key{h.config.Key}, p)
	if err != nil {
		return err
	}
	return h.config.Directory.publish(ctx, p, signed)
}
