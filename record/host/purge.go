package host

import (
	"context"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
)

// purgePage bounds what one transaction of a purge deletes, so that writes of
// other records wait for a moment only.
const purgePage = 500

// Purge deletes the content of a record that has moved away: versions, receipts
// and search index. What is needed to answer [record.RecordMoved] stays, and so
// does the audit. It deletes in pages; called again after a crash or an error, it
// goes on. It returns how many versions it has deleted. Errors: [record.NotFound];
// [record.RecordFrozen] while the record lives here, is on its way, or its new
// Host has not taken over yet.
func (h *Host) Purge(ctx context.Context, recordID string) (versions int64, err error) {
	if !h.moving.begin(recordID) {
		return 0, errMoving
	}
	defer h.moving.end(recordID)
	for _, step := range [][]string{{"purge_dates", "purge_tokens", "purge_resources"}, {"purge_receipts", "purge_versions"}} {
		for {
			var changed int64
			err := h.db.Write(ctx, "purge a record", func(tx db.Tx) error {
				rk, state, err := recordKey(tx, recordID)
				if err := noRecord(recordID, rk != 0, err); err != nil {
					return err
				}
				if _, moving, err := getMove(tx, recordID); err != nil {
					return err
				} else if state != stateMoved || moving {
					return &record.Error{Code: record.RecordFrozen, Field: "record", Detail: "only a record whose move has ended can be purged; this one is " + state}
				}
				for _, name := range step {
					if changed, err = tx.Exec(name, db.Args{"rk": rk, "limit": purgePage}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return versions, err
			}
			if changed == 0 {
				break
			}
			if step[0] == "purge_receipts" {
				versions += changed
			}
		}
	}
	return versions, nil
}
