package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/directory"
	"github.com/eda94727/holdfast/record/serve"
)

// What a folder of a Host, a Directory or an application holds beside its keys and its database.
const (
	pinFile  = "directory-pin.json" // the Directory's URL and keys
	rootFile = "trusted.pem"        // certificates to believe beside the system's
	lockName = "holdfast.lock"      // held by the one process that may use the folder
)

const maxSettings = 1 << 20

// settings are what a Host or Directory was last started with.
type settings struct {
	URL    string `json:"url"`
	Listen string `json:"listen"`
	// Postgres says where the data are; the database's URL itself may hold a password and is not kept.
	Postgres bool   `json:"postgres,omitempty"`
	NoTLS    bool   `json:"no_tls,omitempty"`
	Cert     string `json:"tls_cert,omitempty"`
	CertKey  string `json:"tls_key,omitempty"`
	// Keys and Threshold are a Directory's.
	Keys      int `json:"keys,omitempty"`
	Threshold int `json:"threshold,omitempty"`
	// Flags are all others that were given and hold until others are given, by name.
	Flags map[string]string `json:"flags,omitempty"`
}

// keepFlags gives the flags of these names, where they are not on the command line, the values of the
// last start, and keeps those that are. An empty value is back to the default.
func (s *settings) keepFlags(fl *pflag.FlagSet, names ...string) error {
	kept := map[string]string{}
	for _, name := range names {
		f := fl.Lookup(name)
		last, known := s.Flags[name]
		switch {
		case f.Changed && f.Value.String() != "":
			kept[name] = f.Value.String()
		case !f.Changed && known:
			if err := f.Value.Set(last); err != nil {
				return fmt.Errorf("the folder's --%s: %w", name, err)
			}
			kept[name] = last
		}
	}
	s.Flags = kept
	return nil
}

// readSettings reads a JSON file of a folder; false if there is none.
func readSettings(path string, v any) (bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := record.DecodeJSON(data, record.Limits{Bytes: maxSettings}, v); err != nil {
		return false, fmt.Errorf("%s is damaged; restore it from a copy: %w", path, err)
	}
	return true, nil
}

func writeSettings(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return record.WriteFileDurably(path, append(data, '\n'))
}

// serviceKind is what differs between a Host and a Directory.
type serviceKind struct {
	noun, command, file, database, env string
	port                               string
}

var (
	hostKind      = serviceKind{"Host", "holdfast host", "host.json", "host.db", "HOLDFAST_HOST_DB", "8443"}
	directoryKind = serviceKind{"Directory", "holdfast directory", "directory.json", "directory.db", "HOLDFAST_DIRECTORY_DB", "8444"}
)

// serviceFlags are those of both commands that serve.
type serviceFlags struct {
	data, listen, url, cert, certKey string
	noTLS                            bool
	grace                            duration
	logFormat                        string
	quiet                            bool
	set                              *pflag.FlagSet
	listener                         net.Listener // once resolve has taken a free port
}

func (f *serviceFlags) add(cmd *cobra.Command, kind serviceKind) {
	fl := cmd.Flags()
	f.set = fl
	f.grace = duration(20 * time.Second)
	fl.StringVar(&f.listen, "listen", "", "where to listen, host:port; port 0 takes a free one and keeps it (default: 127.0.0.1:"+kind.port+")")
	fl.StringVar(&f.url, "url", "", "its own URL as others see it, without a slash at the end (default: https:// and what it listens on)")
	fl.StringVar(&f.cert, "tls-cert", "", "the TLS certificate, a PEM file (default: a self-signed one is made and kept in tls.crt)")
	fl.StringVar(&f.certKey, "tls-key", "", "the certificate's key, a PEM file")
	fl.BoolVar(&f.noTLS, "no-tls", false, "plain HTTP, behind a proxy on this machine that ends TLS; needs --url")
	fl.Var(&f.grace, "grace", "how long requests may finish once it shall stop")
	fl.StringVar(&f.logFormat, "log-format", "text", "the log on standard error: text or json")
	fl.BoolVar(&f.quiet, "quiet", false, "log warnings and errors only")
}

// dataFlag names the folder, for a command and those below it.
func dataFlag(cmd *cobra.Command, data *string, what string) {
	cmd.PersistentFlags().StringVar(data, "data", "", what)
}

func needData(data, what string) error {
	if data == "" {
		return usagef("--data is missing; name %s", what)
	}
	return nil
}

// loadService reads a folder's settings; the error tells where none is.
func loadService(kind serviceKind, data string) (settings, error) {
	var s settings
	if err := needData(data, "the "+kind.noun+"'s folder"); err != nil {
		return s, err
	}
	found, err := readSettings(filepath.Join(data, kind.file), &s)
	if err == nil && !found {
		err = exitError{exitNotFound, fmt.Errorf("there is no %s in %s; %q makes one", kind.noun, data, kind.command+" --data "+data)}
	}
	return s, err
}

// databaseURL is the Postgres database that was named, "" for the folder's own.
func (a *app) databaseURL(kind serviceKind, s *settings, known bool) (string, error) {
	if a.db.schema != "" || a.db.synchronous != "" {
		return "", usagef("--schema and --synchronous are not for a %s: it has a schema of its own, and is always synchronous", kind.noun)
	}
	address := cmp.Or(a.db.url, os.Getenv(kind.env))
	if address == "" {
		if s.Postgres {
			return "", usagef("this %s keeps its data in Postgres; name the database by --db or %s", kind.noun, kind.env)
		}
		return "", nil
	}
	a.db.url = address // what is not to be shown
	if !strings.HasPrefix(address, "postgres://") && !strings.HasPrefix(address, "postgresql://") {
		return "", usagef("--db of a %s is a postgres:// URL; without it, the data are in the folder's %s", kind.noun, kind.database)
	}
	if known && !s.Postgres {
		return "", usagef("this %s keeps its data in the folder's %s, not in Postgres; leave --db and %s out", kind.noun, kind.database, kind.env)
	}
	s.Postgres = true
	return address, nil
}

// resolve completes the settings from flags, the last start and defaults.
func (f *serviceFlags) resolve(kind serviceKind, s *settings) error {
	s.Listen = cmp.Or(f.listen, s.Listen, "127.0.0.1:"+kind.port)
	if f.set.Changed("no-tls") {
		s.NoTLS = f.noTLS
	}
	if (f.cert == "") != (f.certKey == "") {
		return usagef("--tls-cert and --tls-key belong together")
	}
	if f.cert != "" {
		if f.noTLS {
			return usagef("--no-tls and --tls-cert exclude each other")
		}
		var err error
		if s.Cert, err = filepath.Abs(f.cert); err != nil {
			return err
		}
		if s.CertKey, err = filepath.Abs(f.certKey); err != nil {
			return err
		}
		s.NoTLS = false
	}
	host, port, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return usagef("--listen is %.100q; use host:port, such as 127.0.0.1:%s", s.Listen, kind.port)
	}
	if port == "0" {
		if f.listener, err = listenFree(host); err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		if _, port, err = net.SplitHostPort(f.listener.Addr().String()); err != nil {
			return err
		}
		s.Listen = net.JoinHostPort(host, port)
	}
	s.URL = cmp.Or(f.url, s.URL)
	if s.URL == "" {
		if s.NoTLS {
			return usagef("--no-tls needs --url, the URL under which the proxy shows this %s", kind.noun)
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			return usagef("--listen %s is every address of this machine; say by --url which one others shall use", s.Listen)
		}
		s.URL = "https://" + net.JoinHostPort(host, port)
	}
	if err := record.CheckBaseURL(s.URL); err != nil {
		return usagef("--url %.200q: %v", s.URL, err)
	}
	return nil
}

// keptPortsFrom and keptPortsTo are where a port that is to be kept comes from. Systems lend ports above it to whoever
// connects somewhere, so that one from there might be taken at the next start.
const keptPortsFrom, keptPortsTo = 20_000, 32_768

// listenFree listens on a port that nobody else listens on, to be kept.
func listenFree(host string) (net.Listener, error) {
	var last error
	for range 100 {
		port := keptPortsFrom + rand.IntN(keptPortsTo-keptPortsFrom)
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, last
}

// closeListener closes what resolve has opened, if the server has not done it.
func (f *serviceFlags) closeListener() {
	if f.listener != nil {
		f.listener.Close() // a second time does nothing
	}
}

// certificate loads or makes the TLS certificate, and checks that it is good for the URL.
func (s settings) certificate(data string) (*tls.Certificate, error) {
	if s.NoTLS {
		return nil, nil
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	name := u.Hostname()
	file := s.Cert
	var pair *tls.Certificate
	if file != "" {
		loaded, err := tls.LoadX509KeyPair(s.Cert, s.CertKey)
		if err != nil {
			return nil, fmt.Errorf("load the TLS certificate: %w", err)
		}
		pair = &loaded
	} else {
		file = filepath.Join(data, "tls.crt")
		names := []string{name}
		if host, _, err := net.SplitHostPort(s.Listen); err == nil && host != name && host != "" {
			names = append(names, host)
		}
		if pair, err = serve.Certificate(data, names); err != nil {
			return nil, err
		}
	}
	leaf := pair.Leaf
	if leaf == nil {
		if leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := leaf.VerifyHostname(name); err != nil {
		return nil, fmt.Errorf("the certificate %s is not for %s, the name in --url; give one that is by --tls-cert, or remove a self-signed one to have it made again: %w", file, name, err)
	}
	return pair, nil
}

// databaseError is a Postgres database of a Host or Directory that cannot be used.
type databaseError struct {
	kind serviceKind
	error
}

func (d databaseError) Unwrap() error { return d.error }

// opened tells a failure of the database from others.
func opened(kind serviceKind, address string, err error) error {
	if err != nil && address != "" && record.CodeOf(err) == "" {
		return exitError{exitDatabase, databaseError{kind, err}}
	}
	return err
}

// ownFolder makes a folder, or refuses one that everybody on the machine may look into: what is in it
// are patients' data and keys.
func ownFolder(data string) error {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(data)
	if err != nil {
		return err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o007 != 0 { // Windows has no such bits
		return usagef("the folder %s is open to everybody on this machine (mode %04o); close it first: chmod 700 %s", data, info.Mode().Perm(), data)
	}
	return nil
}

// lockFolder keeps every other process from the folder as long as this one uses it.
func lockFolder(data, busy string) (unlock func(), err error) {
	if err := ownFolder(data); err != nil {
		return nil, err
	}
	l := newLock(data)
	got, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", data, err)
	}
	if !got {
		return nil, exitError{exitState, errors.New(busy)}
	}
	return func() { l.Unlock() }, nil
}

// waitFolder waits its turn to use the folder.
func waitFolder(ctx context.Context, data string) (unlock func(), err error) {
	if err := ownFolder(data); err != nil {
		return nil, err
	}
	l := newLock(data)
	if _, err := l.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return nil, fmt.Errorf("lock %s: %w", data, err)
	}
	return func() { l.Unlock() }, nil
}

func newLock(data string) *flock.Flock {
	return flock.New(filepath.Join(data, lockName), flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
}

// trustFlags name the Directory and the certificates to believe.
type trustFlags struct {
	pin   string
	roots []string
}

func (f *trustFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.pin, "directory", "", `the Directory's URL and keys: the file that "holdfast directory keys" printed; kept in the folder`)
	cmd.Flags().StringArrayVar(&f.roots, "ca", nil, "a PEM file of certificates to believe beside the system's, for self-signed ones; again for more; added to the folder's trusted.pem")
}

// load reads what was given, or else what the folder keeps. The roots are kept at once, the pin by keepPin.
func (f *trustFlags) load(data string) (pin *directory.Pin, client *http.Client, err error) {
	path := cmp.Or(f.pin, filepath.Join(data, pinFile))
	if _, statErr := os.Stat(path); f.pin != "" || statErr == nil {
		p, err := directory.LoadPin(path)
		if err != nil {
			return nil, nil, err
		}
		pin = &p
	}
	roots := filepath.Join(data, rootFile)
	if len(f.roots) > 0 {
		if err := addRoots(roots, f.roots); err != nil {
			return nil, nil, err
		}
	}
	if _, err := os.Stat(roots); errors.Is(err, fs.ErrNotExist) {
		return pin, nil, nil
	}
	client, err = serve.TrustingClient(roots)
	return pin, client, err
}

// addRoots adds the certificates of PEM files to those that the folder keeps, each once.
func addRoots(path string, names []string) error {
	all, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		rest, err := os.ReadFile(name)
		if err != nil {
			return usageError{fmt.Errorf("--ca: %w", err)}
		}
		n := 0
		for block := (*pem.Block)(nil); ; n++ {
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if _, err := x509.ParseCertificate(block.Bytes); err != nil || block.Type != "CERTIFICATE" {
				return usagef("--ca %s holds something else than certificates", name)
			}
			if one := pem.EncodeToMemory(block); !bytes.Contains(all, one) {
				all = append(all, one...)
			}
		}
		if n == 0 {
			return usagef("--ca %s holds no certificate in PEM form", name)
		}
	}
	return record.WriteFileDurably(path, all)
}

// keepPin keeps a pin that was given, once it has proved good.
func (f *trustFlags) keepPin(data string, pin *directory.Pin) error {
	if f.pin == "" {
		return nil
	}
	return writeSettings(filepath.Join(data, pinFile), pin)
}

// runServer serves until ctx ends, or until a second signal.
func (a *app) runServer(ctx context.Context, o serve.Options) error {
	done := make(chan error, 1)
	go func() { done <- serve.Run(ctx, o) }()
	select {
	case err := <-done:
		return err
	case <-a.hurry:
		return errors.New("stopped by a second signal; requests were cut off")
	}
}
