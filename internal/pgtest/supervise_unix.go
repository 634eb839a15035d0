//go:build unix

package pgtest

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

//go:embed supervise.sh
var supervisorScript string

// supervisor is the shell that runs the server's programs for this process and outlives it for the moment that clearing up
// takes. Its script says how.
type supervisor struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Reader
	said    string // file with the output of the last order
}

// supervise makes the folder of a new server and starts its supervisor, as an ordinary user if this process is root.
func supervise(bin, password string) (root string, s *supervisor, err error) {
	who, err := ordinaryUser()
	if err != nil {
		return "", nil, err
	}
	root, err = os.MkdirTemp(tempParent(who != nil), "holdfast-pg-")
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(root)
		}
	}()
	passwordFile := filepath.Join(root, "password")
	if err := os.WriteFile(passwordFile, []byte(password+"\n"), 0o600); err != nil {
		return "", nil, err
	}

	cmd := exec.Command("/bin/sh", "-c", supervisorScript, "sh", root, bin)
	cmd.Dir = root // the current one may be closed to the ordinary user
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "LC_ALL=C"}
	// A session of its own, so that Ctrl-C, which ends the tests, does not end it before it has cleared up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: who}
	if who != nil {
		for _, path := range []string{root, passwordFile} {
			if err := os.Chown(path, int(who.Uid), int(who.Gid)); err != nil {
				return "", nil, err
			}
		}
	}
	s = &supervisor{cmd: cmd, said: filepath.Join(root, "said")}
	if s.orders, err = cmd.StdinPipe(); err != nil {
		return "", nil, err
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	s.answers = bufio.NewReader(answers)
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start its supervisor: %w", err)
	}
	return root, s, nil
}

// order has one order carried out. A failure comes with what the program said.
func (s *supervisor) order(order string) error {
	if _, err := io.WriteString(s.orders, order+"\n"); err != nil {
		return fmt.Errorf("its supervisor is gone: %w", err)
	}
	status, err := s.answers.ReadString('\n')
	if err != nil {
		return fmt.Errorf("its supervisor is gone: %w", err)
	}
	if status = strings.TrimSpace(status); status == "0" {
		return nil
	}
	said, err := os.ReadFile(s.said)
	if err != nil {
		return fmt.Errorf("exit status %s; what it said cannot be read: %w", status, err)
	}
	return fmt.Errorf("exit status %s: %s", status, strings.TrimSpace(string(said)))
}

// dismiss ends the orders and waits for the supervisor to clear up.
func (s *supervisor) dismiss() {
	s.orders.Close()
	s.cmd.Wait() // its exit status says nothing; the caller looks whether the folder is gone
}

// ordinaryUser returns whom to run the server as: nobody else (nil) unless this process is root, whom initdb refuses.
func ordinaryUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("this process is root, as whom Postgres does not run, and there is no user postgres or nobody: " +
		"run the tests as another user, or set " + envDSN)
}

// tempParent returns the folder for the server's folder: the usual one, unless the path of the server's socket would become
// too long in it (104 bytes on some systems) or, with another user, that user could not enter it or remove things from it.
func tempParent(anotherUser bool) string {
	usual := os.TempDir()
	if len(usual) > 60 || anotherUser && !openToAll(usual) {
		return "/tmp"
	}
	return usual
}

// openToAll reports whether everybody may enter dir and write there.
func openToAll(dir string) bool {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	need := os.FileMode(0o003)
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&need != need {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir, need = filepath.Dir(dir), 0o001
	}
}
