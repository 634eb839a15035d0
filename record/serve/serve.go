// Package serve runs the HTTP side of a Host or Directory: a server with
// bounds, TLS with a given or self-signed certificate, and a graceful stop.
package serve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/transport"
)

// Options for [Run]. Handler, and Addr or Listener, must be set.
type Options struct {
	// Addr is where to listen: host:port; port 0 takes a free one.
	Addr string
	// Listener listens already, and is used instead of Addr. Run closes it.
	Listener net.Listener
	Handler  http.Handler
	// Certificate makes it HTTPS; nil means plain HTTP, for use behind a proxy
	// that ends TLS on the same machine.
	Certificate *tls.Certificate
	// Grace is how long a stop waits for requests that are being worked on; 0
	// means 20 seconds.
	Grace time.Duration
	// Started is called with the address once the server listens; nil is fine.
	Started func(net.Addr)
	// Log takes what happens; nil means no log.
	Log *slog.Logger
}

// Run serves until ctx ends, then lets running requests end within the grace
// and returns nil; requests that take longer are cut off and named in the error.
func Run(ctx context.Context, o Options) error {
	if o.Grace == 0 {
		o.Grace = 20 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	listener, err := o.Listener, error(nil)
	if listener == nil {
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", o.Addr); err != nil {
			return fmt.Errorf("serve: %w", err)
		}
	}
	server := &http.Server{
		Handler: o.Handler,
		// A client that dawdles over its headers, or says nothing, is let go. The
		// time of a whole request is the handler's to bound.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	if o.Certificate != nil {
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*o.Certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	}
	if o.Started != nil {
		o.Started(listener.Addr())
	}
	ended := make(chan error, 1)
	go func() {
		if o.Certificate != nil {
			ended <- server.ServeTLS(listener, "", "")
		} else {
			ended <- server.Serve(listener)
		}
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Grace)
	defer cancel()
	err = server.Shutdown(stop)
	if err != nil {
		server.Close()
		err = fmt.Errorf("serve: requests were cut off after %s: %w", o.Grace, err)
	}
	<-ended
	return err
}

// certificateLife is how long a self-signed certificate is valid; it is made
// anew when a month of it is left.
const certificateLife = 365 * 24 * time.Hour

// Certificate loads tls.crt and tls.key from a folder. Where they do not exist,
// or are self-made and about to expire, it makes a self-signed certificate for
// the names (DNS names or IP addresses) and keeps it there.
func Certificate(dir string, names []string) (*tls.Certificate, error) {
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err == nil {
		leaf := pair.Leaf
		selfMade := leaf.Issuer.CommonName == issuerName && leaf.Subject.CommonName == issuerName
		if !selfMade || time.Until(leaf.NotAfter) > 30*24*time.Hour {
			return &pair, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("serve: load the certificate: %w", err)
	}
	certPEM, keyPEM, err := selfSign(names)
	if err != nil {
		return nil, fmt.Errorf("serve: make a certificate: %w", err)
	}
	// The key first: a certificate without its key is no pair.
	if err := record.WriteFileDurably(keyFile, keyPEM); err != nil {
		return nil, err
	}
	if err := record.WriteFileDurably(certFile, certPEM); err != nil {
		return nil, err
	}
	if pair, err = tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		return nil, fmt.Errorf("serve: load the certificate: %w", err)
	}
	return &pair, nil
}

const issuerName = "holdfast self-signed"

func selfSign(names []string) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: issuerName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, // so that clients can take it as their root
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// TrustingClient returns an HTTP client that believes the certificates in a PEM
// file beside the system's own: for Hosts and Directories with self-signed ones.
func TrustingClient(pemFile string) (*http.Client, error) {
	data, err := os.ReadFile(pemFile)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("serve: %s holds no certificate in PEM form", pemFile)
	}
	t := transport.New()
	t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: t}, nil
}
