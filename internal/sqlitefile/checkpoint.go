package sqlitefile

import (
	"time"

	"github.com/ncruces/go-sqlite3"
)

// SQLite starts the WAL anew only at a moment when everything in it has been copied back and nobody
// reads from it. Readers that follow each other without a gap never leave such a moment, and the WAL
// grows for as long as they go on. So the writer checkpoints by itself, after the answers have gone
// out, and makes a gap between the readers of this process when the WAL has grown.
const (
	// checkpointAt is the number of pages in the WAL from which they are copied back after each
	// group: SQLite's own default.
	checkpointAt = 1000
	// gapAt is the number from which readers are held back for a moment.
	gapAt = 4000
	// gapWithin bounds how long the writer waits for the readers that are at it.
	gapWithin = 50 * time.Millisecond
)

// tend keeps the WAL small. It belongs to the writer's goroutine. A failure costs space only, and the
// next commit tries again, so it is no error.
func (f *File) tend() {
	pages := f.walPages
	if pages < checkpointAt {
		return
	}
	if pages < f.nextGap {
		_, _, _ = f.writer.DB.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
		return
	}
	// What can be copied beside the readers is copied first, to keep the gap short.
	_, _, _ = f.writer.DB.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
	held := 0
	defer func() {
		for range held {
			f.readers.free <- struct{}{}
		}
	}()
	late := time.NewTimer(gapWithin)
	defer late.Stop()
	for range f.o.Readers {
		select {
		case <-f.readers.free:
			held++
		case <-late.C:
			f.nextGap = pages + checkpointAt // a long read; others go on meanwhile
			return
		}
	}
	if _, _, err := f.writer.DB.WALCheckpoint("main", sqlite3.CHECKPOINT_RESTART); err != nil {
		f.nextGap = pages + checkpointAt // another program reads
		return
	}
	f.walPages, f.nextGap = 0, gapAt
}
