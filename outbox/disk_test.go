package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
	"github.com/ncruces/go-sqlite3/vfs/adiantum"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/record"
)

// disk is a VFS over the operating system's files that knows what a power cut would
// leave of them, and can be full.
type disk struct {
	vfs.VFS
	mu    sync.Mutex
	files map[string]*platter
	// writes counts down to the write, of all files, from which on the disk is full;
	// below 0 it never is.
	writes int
	failed int
}

// platter is what is safe of a file, and what was written since.
type platter struct {
	safe    []byte
	exists  bool // was flushed once
	pending []change
}

type change struct {
	off      int64
	data     []byte
	truncate bool
}

func (c change) apply(to []byte) []byte {
	if c.truncate {
		if int64(len(to)) > c.off {
			return to[:c.off]
		}
		return append(to, make([]byte, c.off-int64(len(to)))...)
	}
	if end := c.off + int64(len(c.data)); int64(len(to)) < end {
		to = append(to, make([]byte, end-int64(len(to)))...)
	}
	copy(to[c.off:], c.data)
	return to
}

// newDisk registers a disk and its encrypted twin; the names are those of VFSs.
func newDisk(t testing.TB) (d *disk, plain, encrypted string) {
	d = &disk{VFS: vfs.Find(""), files: map[string]*platter{}, writes: -1}
	plain, encrypted = "disk-"+record.NewID(), "sealed-"+record.NewID()
	vfs.Register(plain, d)
	vfs.Register(encrypted, adiantum.Wrap(d, nil))
	t.Cleanup(func() { vfs.Unregister(plain); vfs.Unregister(encrypted) })
	return d, plain, encrypted
}

func (d *disk) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return vfsutil.WrapOpen(d.VFS, name, flags)
}

func (d *disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := vfsutil.WrapOpenFilename(d.VFS, name, flags)
	if err != nil || flags&(vfs.OPEN_MAIN_DB|vfs.OPEN_WAL|vfs.OPEN_MAIN_JOURNAL) == 0 {
		return f, flags, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.files[name.String()]
	if p == nil {
		p = &platter{}
		if data, err := os.ReadFile(name.String()); err == nil && len(data) > 0 {
			p.safe, p.exists = data, true
		}
		d.files[name.String()] = p
	}
	return &diskFile{f, d, p}, flags, nil
}

func (d *disk) Delete(name string, syncDir bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.VFS.Delete(name, syncDir)
	if err == nil {
		delete(d.files, name)
	}
	return err
}

// full counts a write.
func (d *disk) full() error {
	switch {
	case d.writes < 0:
		return nil
	case d.writes == 0:
		d.failed++
		return sqlite3.FULL
	}
	d.writes--
	return nil
}

// cut is what a power cut leaves, in another folder: what was flushed, and of the rest
// what luck gives, in pieces of 512 bytes.
func (d *disk) cut(t testing.TB, folder string, luck *rand.Rand) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, p := range d.files {
		chance := luck.Float64()
		image := slices.Clone(p.safe)
		lucky := false
		for _, c := range p.pending {
			for from := 0; from < max(len(c.data), 1); from += 512 {
				if luck.Float64() >= chance*chance {
					continue
				}
				lucky = true
				part := c
				if !c.truncate {
					part = change{off: c.off + int64(from), data: c.data[from:min(from+512, len(c.data))]}
				}
				image = part.apply(image)
			}
		}
		if p.exists || lucky {
			must(t, os.WriteFile(filepath.Join(folder, filepath.Base(name)), image, 0o600))
		}
	}
}

type diskFile struct {
	vfs.File
	d *disk
	p *platter
}

func (f *diskFile) WriteAt(data []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.full(); err != nil {
		return 0, err
	}
	f.p.pending = append(f.p.pending, change{off: off, data: slices.Clone(data)})
	return f.File.WriteAt(data, off)
}

func (f *diskFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.p.pending = append(f.p.pending, change{off: size, truncate: true})
	return f.File.Truncate(size)
}

// Sync spares the real flush: the disk here is the platter.
func (f *diskFile) Sync(vfs.SyncFlag) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.full(); err != nil {
		return sqlite3.IOERR_FSYNC
	}
	for _, c := range f.p.pending {
		f.p.safe = c.apply(f.p.safe)
	}
	f.p.pending, f.p.exists = nil, true
	return nil
}

func (f *diskFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }
func (f *diskFile) Unwrap() vfs.File               { return f.File }

var testKey = []byte("0123456789abcdef0123456789abcdef")

// Power cuts in the middle of enqueueing and flushing: whatever Enqueue has answered is
// there, each write is done once at the Host, in its lane's order.
func TestAPowerCutTakesNothingThatWasAnswered(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 6
	}
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprintf("encrypted=%v", sealed), func(t *testing.T) {
			w := newWorld(t)
			lanes := []string{w.patient(), w.patient(), w.patient()}
			k := w.client()
			luck := rand.New(rand.NewPCG(1, 2))
			sent := map[string][]string{} // by patient: what Enqueue answered, in order
			left := 0                     // rounds that lost something that was not answered, or sent again
			for round := range rounds {
				d, name, encrypted := newDisk(t)
				o := Options{vfs: name}
				if sealed {
					o.vfs, o.Key = encrypted, testKey
				}
				b, err := Open(context.Background(), w.path, k, o)
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				if v, err := b.Verify(context.Background()); err != nil || len(v.Problems) > 0 {
					t.Fatalf("round %d: %+v, %v", round, v, err)
				}
				check := func(when string) {
					for _, ids := range sent {
						for _, id := range ids {
							if _, err := b.Entry(context.Background(), id); err != nil {
								t.Fatalf("round %d, %s: Enqueue has answered %s, and it is gone: %v", round, when, id, err)
							}
						}
					}
				}
				check("at its start")
				var mu sync.Mutex
				ctx, cancel := context.WithCancel(context.Background())
				var all sync.WaitGroup
				for _, p := range lanes {
					all.Go(func() {
						for ctx.Err() == nil {
							i := create(p)
							if _, err := b.Enqueue(ctx, i); err != nil {
								return // not answered
							}
							mu.Lock()
							sent[p] = append(sent[p], i.OperationID)
							mu.Unlock()
						}
					})
				}
				all.Go(func() {
					for ctx.Err() == nil {
						b.Flush(ctx)
					}
				})
				// The cut comes when so many writes have reached the Host.
				changes, stop := b.Events()
				for n := luck.IntN(60); n > 0; n-- {
					<-changes
				}
				stop()
				folder := t.TempDir()
				mu.Lock() // nothing is answered between here and the cut
				answered := map[string][]string{}
				for p, ids := range sent {
					answered[p] = slices.Clone(ids)
				}
				mu.Unlock()
				d.cut(t, folder, luck)
				cancel()
				all.Wait()
				for p := range sent {
					left += len(sent[p]) - len(answered[p])
				}
				must(t, b.Close())
				// What was answered after the cut never happened, except at the Host, if it was
				// sent: there it is an operation that nobody asks for again.
				sent = answered
				w.path = filepath.Join(folder, filepath.Base(w.path))
			}
			o := Options{}
			if sealed {
				o.Key = testKey
			}
			b, err := Open(context.Background(), w.path, k, o)
			must(t, err)
			defer b.Close()
			must(t, flushAll(b))
			v, err := b.Verify(context.Background())
			if err != nil || len(v.Problems) > 0 || v.Authenticated != sealed {
				t.Errorf("%+v, %v", v, err)
			}
			n := 0
			for p, ids := range sent {
				for _, id := range ids {
					expect(t, b, id, Committed, "")
				}
				n += len(ids)
				if seqs := w.done(k, p, ids...); !slices.IsSorted(seqs) || len(slices.Compact(slices.Clone(seqs))) != len(ids) {
					t.Errorf("not in order: %v", seqs)
				}
			}
			if n < rounds || left == 0 {
				t.Errorf("%d entries, %d after the cut: the cuts came at no interesting time", n, left)
			}
		})
	}
}

func flushAll(b *Outbox) error {
	r, err := b.Flush(context.Background())
	if err == nil && len(r.Stops) > 0 {
		err = fmt.Errorf("stopped: %+v", r.Stops)
	}
	return err
}

// The disk is full from its nth write on, for every n of a queue's whole life: each call
// says so or has done its work, and with room again everything is done, once.
func TestADiskThatIsFullAtEachWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.patient()
	k := w.client()
	enqueueFirst := w.open(k) // a token and the location
	enqueue(t, enqueueFirst, create(p))
	flushed(t, enqueueFirst)
	step := 1
	if testing.Short() {
		step = 7
	}
	full := 0
	for n := 0; ; n += step {
		d, name, _ := newDisk(t)
		path := filepath.Join(t.TempDir(), "queue.db")
		d.writes = n
		before := w.a.writes.Load()
		var answered []string
		life := func(b *Outbox) error {
			for range 3 {
				id, err := b.Enqueue(context.Background(), create(p))
				if err != nil {
					return err
				}
				answered = append(answered, id)
			}
			if _, err := b.Flush(context.Background()); err != nil {
				return err
			}
			_, err := b.Prune(context.Background(), b.o.Now().Add(1<<40))
			return err
		}
		b, err := Open(context.Background(), path, k, Options{vfs: name})
		if err == nil {
			err = life(b)
			d.mu.Lock()
			d.writes = -1
			d.mu.Unlock()
			if err == nil && d.failed == 0 {
				must(t, b.Close())
				if full < 20/step {
					t.Errorf("the disk was full at %d writes only", full)
				}
				return
			}
			if err != nil && !isFull(err) {
				t.Fatalf("write %d: %v", n, err)
			}
			// The same process goes on (F9).
			must(t, flushAll(b))
			for _, id := range answered {
				e, err := b.Entry(context.Background(), id)
				if err == nil && e.State != Committed {
					t.Errorf("write %d: %s is %s %s", n, id, e.State, e.Code)
				}
				if err != nil && !errors.Is(err, UnknownQueueEntry) { // pruned
					t.Error(err)
				}
			}
			must(t, b.Close())
		} else if !isFull(err) {
			t.Fatalf("write %d: open: %v", n, err)
		}
		full++
		d.writes = -1
		b, err = Open(context.Background(), path, k, Options{vfs: name})
		must(t, err)
		again := enqueue(t, b, create(p))
		must(t, flushAll(b))
		if seqs := w.done(k, p, append(answered, again...)...); !slices.IsSorted(seqs) {
			t.Errorf("write %d: %v", n, seqs)
		}
		if sent := w.a.writes.Load() - before; sent > int64(len(answered)+2) {
			t.Errorf("write %d: %d entries, and %d requests", n, len(answered)+1, sent)
		}
		must(t, b.Close())
	}
}

func isFull(err error) bool {
	return errors.Is(err, sqlitefile.ErrFull) || errors.Is(err, sqlite3.IOERR) || strings.Contains(err.Error(), "full")
}
