package sqlitefile

import (
	"sync/atomic"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"
)

// syncs counts the flushes of WAL files.
type syncs struct {
	vfs.VFS
	n *atomic.Int64
}

func (v syncs) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return v.OpenFilename(nil, flags)
}

func (v syncs) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := v.VFS.(vfs.VFSFilename).OpenFilename(name, flags)
	if err == nil && flags&vfs.OPEN_WAL != 0 {
		f = counted{f, v.n}
	}
	return f, flags, err
}

type counted struct {
	vfs.File
	n *atomic.Int64
}

func (c counted) Sync(flags vfs.SyncFlag) error { c.n.Add(1); return c.File.Sync(flags) }

func TestWriteSoonSparesTheFlush(t *testing.T) {
	var n atomic.Int64
	vfs.Register("counted", syncs{vfs.Find(""), &n})
	t.Cleanup(func() { vfs.Unregister("counted") })
	f := openTest(t, Options{URI: "vfs=counted"})
	flushes := func(write func() error) int64 {
		was := n.Load()
		must(t, write())
		return n.Load() - was
	}
	must(t, f.Write(t.Context(), "test", insert(0)))
	for k := 1; k < 20; k += 2 {
		if got := flushes(func() error { return f.WriteSoon(t.Context(), "test", insert(k)) }); got != 0 {
			t.Errorf("a write that may wait made %d flushes", got)
		}
		if got := flushes(func() error { return f.Write(t.Context(), "test", insert(k+1)) }); got != 1 {
			t.Errorf("a write made %d flushes, want 1", got)
		}
	}
	// One that may wait in a group with one that may not.
	release, errs, wait := gather(t, f, t.Context(), 2, func(i int) error {
		if i == 0 {
			return f.WriteSoon(t.Context(), "test", insert(100))
		}
		return f.Write(t.Context(), "test", insert(101))
	})
	if got := flushes(func() error { release(); wait(); return errs[0] }); got == 0 {
		t.Error("a group was not flushed")
	}
	if got := number(t, other(t, f.Path()), "select count(*) from t"); got != 23 {
		t.Errorf("%d rows", got)
	}
}
