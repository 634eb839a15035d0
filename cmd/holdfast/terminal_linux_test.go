package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newTerminal makes a pseudo terminal: what a program writes to tty can be read from screen.
func newTerminal(t *testing.T) (tty *os.File, screen *buffer) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	screen = &buffer{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(screen, master) // ends with an error when the last writer has closed
	}()
	t.Cleanup(func() { tty.Close(); <-read; master.Close() })
	return tty, screen
}

func TestColorsAreForTerminalsThatWantThem(t *testing.T) {
	db := newDB(t)
	id := strings.TrimSpace(ok(t, db, "submit", "x"))
	ok(t, db, "cancel", id)
	for _, c := range []struct {
		env   string
		color bool
	}{{"TERM=xterm", true}, {"NO_COLOR=1", false}, {"TERM=dumb", false}} {
		t.Run(c.env, func(t *testing.T) {
			name, value, _ := strings.Cut(c.env, "=")
			t.Setenv("TERM", "xterm")
			t.Setenv(name, value)
			tty, screen := newTerminal(t)
			var errs strings.Builder
			if code := run(t.Context(), []string{db, "list"}, strings.NewReader(""), tty, &errs); code != 0 {
				t.Fatalf("exit code %d, %s", code, &errs)
			}
			eventually(t, "the list is on the screen", func() bool {
				return strings.Contains(screen.String(), id) && strings.Contains(screen.String(), "canceled")
			})
			if got := strings.Contains(screen.String(), "\x1b[33mcanceled\x1b[0m"); got != c.color {
				t.Errorf("colors: %v in %q", got, screen.String())
			}
		})
	}
}

func TestTheDemoShowsProgressOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	tty, screen := newTerminal(t)
	var errs strings.Builder
	began := time.Now()
	if code := run(t.Context(), []string{"demo"}, strings.NewReader(""), tty, &errs); code != 0 {
		t.Fatalf("exit code %d after %v, %s", code, time.Since(began), &errs)
	}
	eventually(t, "the demo ends", func() bool { return strings.Contains(screen.String(), "holdfast help") })
	if !strings.Contains(screen.String(), "/2000)") {
		t.Errorf("no progress line in %q", screen.String())
	}
}
