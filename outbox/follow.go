package outbox

import (
	"context"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/record"
)

// Route is where the entries of a patient go.
type Route struct {
	Patient string
	// Host is the Host's id; "" while it is not known where the record lives.
	Host string
	// Generation and Address are the Directory's; 0 and "" without one.
	Generation int64
	Address    string
}

// Route returns a patient's route; false where nothing was ever enqueued.
func (b *Outbox) Route(ctx context.Context, patient string) (Route, bool, error) {
	r, found, err := b.route(ctx, patient)
	return Route{r.patient, r.host, r.generation, r.address}, found, err
}

func (b *Outbox) route(ctx context.Context, patient string) (r route, found bool, err error) {
	err = b.file.Read(ctx, func(c *sqlitefile.Conn) error {
		r, found, err = getRoute(c, patient)
		return err
	})
	return r, found, err
}

// FollowMigration takes a Directory's document about a patient's record, and the
// address that it was read at. From then on the patient's entries, unchanged, go to
// the Host that it names. After a crash in the middle nothing is sent anywhere until
// it is called again.
//
// Errors: [QueueWorkerBusy], [UnknownQueueRoute] (M1);
// [record.WrongDiscoveryPatient] for another record or address (M3);
// [record.StaleDiscoveryGeneration] (M4); and the others of the client's check (M2).
func (b *Outbox) FollowMigration(ctx context.Context, patient, document, address string) error {
	return b.followHeld(ctx, patient, func(r route) error { return b.follow(ctx, r, document, address) })
}

// followHeld follows a record while nothing is sent.
func (b *Outbox) followHeld(ctx context.Context, patient string, follow func(route) error) error {
	release, err := b.hold()
	if err != nil {
		return err
	}
	defer release()
	if err := record.CheckID("patient", patient); err != nil {
		return err
	}
	r, found, err := b.route(ctx, patient)
	if err != nil {
		return err
	}
	if !found {
		return failf(UnknownQueueRoute, "patient", "nothing was enqueued for %s", patient)
	}
	if err := follow(r); err != nil {
		return err
	}
	b.forgetDelay(b.laneOf(patient))
	b.wake()
	return nil
}

// Follow asks the Directory where a patient's record lives now, and follows it there:
// [Outbox.FollowMigration] with the document that the client reads. Errors: those of
// FollowMigration, and of the client where the Directory cannot be reached.
func (b *Outbox) Follow(ctx context.Context, patient string) error {
	return b.followHeld(ctx, patient, func(r route) error { return b.followDirectory(ctx, r) })
}

// follow is FollowMigration for a route, by whoever holds busy.
func (b *Outbox) follow(ctx context.Context, r route, document, address string) error {
	mover, ok := b.client.(Mover)
	if !ok {
		return failf(record.InvalidDiscovery, "document", "this client has no Directory")
	}
	if r.address != "" && address != r.address {
		return failf(record.WrongDiscoveryPatient, "address", "the record's address is %s and never changes", r.address)
	}
	least := max(r.generation, 1)
	l, err := mover.Verify(ctx, r.patient, document, address, least)
	if err != nil {
		return err
	}
	switch {
	case l.Record != r.patient || l.Address != address:
		return failf(record.WrongDiscoveryPatient, "record_id", "the document is about another record or address")
	case l.Host.ID != r.host && r.generation != 0 && l.Generation <= r.generation:
		return failf(record.StaleDiscoveryGeneration, "gen", "another Host needs a generation above %d, and this is %d", r.generation, l.Generation)
	}
	// The client's own state is on disk first. Stopped between the two, the route is
	// not the client's Host and nothing is sent; the same document again heals it.
	b.step("before the client's state")
	if _, err := mover.FollowMigration(ctx, r.patient, document, address, least); err != nil {
		return err
	}
	b.step("between the client's state and the route")
	err = b.file.WriteSure(ctx, "change route", func(c *sqlitefile.Conn) error {
		_, err := run(c, updateRoute, r.patient, l.Host.ID, generation(l.Generation), address)
		return err
	})
	if err == nil {
		b.step("route changed")
		b.o.Log.InfoContext(ctx, "queue follows a record", "patient", r.patient, "host", l.Host.ID, "generation", l.Generation)
	}
	return err
}

// followDirectory asks the Directory where the record lives and follows.
func (b *Outbox) followDirectory(ctx context.Context, r route) error {
	mover, ok := b.client.(Mover)
	if !ok {
		return failf(record.InvalidDiscovery, "document", "this client has no Directory")
	}
	document, address, err := mover.Document(ctx, r.patient, r.address)
	if err != nil {
		return err
	}
	return b.follow(ctx, r, document, address)
}

// settleRoute finds out where a record lives whose route is open.
func (b *Outbox) settleRoute(ctx context.Context, r route) error {
	place, known := b.client.Location(r.patient)
	if !known {
		return b.followDirectory(ctx, r)
	}
	return b.file.WriteSure(ctx, "settle route", func(c *sqlitefile.Conn) error {
		_, err := run(c, updateRoute, r.patient, place.Host.ID, generation(place.Generation), orNull(place.Address))
		return err
	})
}
