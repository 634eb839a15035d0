package outbox

import (
	"context"

	"github.com/eda94727/holdfast/record"
)

// Client delivers writes. *client.Client of package record/client is one, and
// *plainfhir.Client of record/plainfhir another (with [Options.NoReceipts]). It
// must be safe for concurrent use, and must not follow moves by itself.
type Client interface {
	// Subject is the application's id: the owner of the file.
	Subject() string
	// Location is where the client believes that the record lives, from its own
	// state alone; false where it does not know.
	Location(patient string) (record.Place, bool)
	// Write sends one write with fresh proofs. Its error has the protocol's code;
	// one without a code counts as transport_unavailable. The queue verifies the
	// result's receipt, unless the client has a method VerifiesReceipts() bool that
	// answers true: then it has done so itself.
	Write(ctx context.Context, intent record.Intent) (record.Result, error)
}

// Mover is a [Client] that knows a Directory. Without it a queue cannot follow a
// record to another Host.
type Mover interface {
	Client
	// Document reads the Directory's current document about a record, unverified;
	// address "" means the one that the client knows.
	Document(ctx context.Context, patient, address string) (document, at string, err error)
	// Verify checks a document and changes nothing; least is the lowest generation
	// that will do.
	Verify(ctx context.Context, patient, document, address string, least int64) (record.Location, error)
	// FollowMigration verifies a document and uses the Host that it names from then
	// on; that is on disk before it returns.
	FollowMigration(ctx context.Context, patient, document, address string, least int64) (record.Location, error)
}
