package sqlitefile

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Bytes of the WAL-index file that SQLite locks, from its file format: each open connection holds a
// shared lock on deadMan, and the one that writes an exclusive lock on writeLock.
const (
	writeLock = 120
	deadMan   = 128
)

// locks calls each for every lock on the file's WAL-index: the byte, whether it is an OFD lock, and
// the process (-1 for an OFD lock). It reports whether the kernel's list could be read.
func (f *File) locks(each func(first, last int64, ofd bool, pid int)) bool {
	info, err := os.Stat(f.path + "-shm")
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	list, err := os.Open("/proc/locks")
	if err != nil {
		return false
	}
	defer list.Close()
	// "7: OFDLCK ADVISORY READ -1 fd:01:1234 128 128"; device numbers differ from stat's on some
	// file systems, so the inode decides: a wrong guess costs a gap, no more.
	inode := ":" + strconv.FormatUint(st.Ino, 10)
	for s := bufio.NewScanner(list); s.Scan(); {
		w := strings.Fields(s.Text())
		if len(w) < 8 || !strings.HasSuffix(w[5], inode) {
			continue
		}
		pid, _ := strconv.Atoi(w[4])
		first, err1 := strconv.ParseInt(w[6], 10, 64)
		last, err2 := strconv.ParseInt(w[7], 10, 64)
		if err1 != nil || err2 != nil {
			continue // "EOF": not one of SQLite's bytes
		}
		each(first, last, w[1] == "OFDLCK", pid)
	}
	return true
}

// neighbours tells whether anybody else may have the file open. If in doubt, yes.
func (f *File) neighbours() bool {
	open := 0
	ok := f.locks(func(first, last int64, _ bool, _ int) {
		if first <= deadMan && deadMan <= last {
			open++
		}
	})
	// Every connection of ours holds one such lock once it has touched the WAL. Some of ours may not
	// have yet, so more than ours is certain, and fewer or as many means nobody else, or one who is
	// counted at the next turn.
	return !ok || open > int(f.conns.Load())
}

// holder describes who holds the write lock now.
func (f *File) holder() string {
	who := "another program on the file"
	f.locks(func(first, last int64, ofd bool, pid int) {
		if first <= writeLock && writeLock <= last && !ofd && pid > 0 {
			who = fmt.Sprintf("process %d", pid)
			if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
				who += " (" + strings.TrimSpace(string(name)) + ")"
			}
		}
	})
	return who
}
