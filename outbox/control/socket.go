package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
)

// maxAddress is the longest socket address that every system takes: macOS has room
// for 104 bytes with the zero at the end.
const maxAddress = 103

// maxName bounds the socket's name, so that it can be reached by a short way (see
// short) wherever the file lies.
const maxName = 26

// socketPath is where the socket of a queue file is: beside the file itself, whatever
// links lead there.
func socketPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: there is no file %s", ErrNobody, path)
	}
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return "", fmt.Errorf("control: %w", err)
	}
	name := filepath.Base(real) + "-control"
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(filepath.Base(real)))
		name = "queue-" + hex.EncodeToString(sum[:6]) + "-control"
	}
	return filepath.Join(filepath.Dir(real), name), nil
}

// short calls use with an address for the socket that is short enough: where its own
// is too long, one through a link to its folder that stands as long as use runs.
func short(socket string, use func(address string) error) error {
	if len(socket) <= maxAddress {
		return use(socket)
	}
	for _, temp := range []string{os.TempDir(), "/tmp"} {
		dir, err := os.MkdirTemp(temp, "hf-")
		if err != nil {
			continue
		}
		defer os.RemoveAll(dir) // removes the link, not what it leads to
		link := filepath.Join(dir, "d")
		address := filepath.Join(link, filepath.Base(socket))
		if len(address) > maxAddress {
			continue
		}
		if err := os.Symlink(filepath.Dir(socket), link); err != nil {
			return fmt.Errorf("the path of the socket is longer than %d bytes, and there can be no link to its folder: %w", maxAddress, err)
		}
		return use(address)
	}
	return fmt.Errorf("the path of the socket is longer than %d bytes, and so are those of the folders for temporary files", maxAddress)
}

// listen makes the socket, for its owner only from the first moment on: it is made in
// a folder of its own and moved to its place, over what a dead owner may have left.
func listen(socket string) (net.Listener, error) {
	if runtime.GOOS == "windows" { // which has no such modes, and does not move sockets
		if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			return nil, err
		}
		l.SetUnlinkOnClose(false)
		return l, nil
	}
	dir := socket + ".new"
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fresh := filepath.Join(dir, "s")
	var l *net.UnixListener
	err := short(fresh, func(address string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it is moved; Close of the server removes it
	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, socket)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// dial connects to the socket of the queue file at path, once it is sure that who owns
// the file owns the socket.
func dial(ctx context.Context, path, socket string) (conn net.Conn, err error) {
	info, err := os.Lstat(socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNobody
	}
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	file, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	if !trusted(info, file) {
		return nil, fmt.Errorf("control: %s belongs to somebody else than the queue; remove it", socket)
	}
	err = short(socket, func(address string) (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", address)
		return err
	})
	switch {
	case err == nil:
		return conn, nil
	case gone(err):
		return nil, fmt.Errorf("%w: its last owner has left a socket behind", ErrNobody)
	}
	return nil, fmt.Errorf("control: connect to %s: %w", socket, err)
}
