package record

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/go-jose/go-jose/v4"
)

// maxKeyFile bounds a key file and a JWK.
const maxKeyFile = 4096

// PublicKey is the public half of an Ed25519 key. The zero value is no key.
type PublicKey struct {
	raw   ed25519.PublicKey
	thumb string
}

// NewPublicKey wraps an Ed25519 public key.
func NewPublicKey(raw ed25519.PublicKey) (PublicKey, error) {
	if len(raw) != ed25519.PublicKeySize {
		return PublicKey{}, fmt.Errorf("record: an Ed25519 public key has %d bytes, not %d", ed25519.PublicKeySize, len(raw))
	}
	// RFC 7638 and RFC 8037, A.3: the required members in order of their names.
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + base64.RawURLEncoding.EncodeToString(raw) + `"}`))
	return PublicKey{raw: bytes.Clone(raw), thumb: encodeBase64(sum[:])}, nil
}

// ParsePublicKey reads a public key in its JWK form (RFC 8037). A private JWK
// is refused: somebody is about to publish it.
func ParsePublicKey(jwk []byte) (PublicKey, error) {
	key, err := parseJWK(jwk)
	if err != nil {
		return PublicKey{}, err
	}
	return publicFromJWK(key)
}

// publicFromJWK takes only public Ed25519 keys.
func publicFromJWK(key *jose.JSONWebKey) (PublicKey, error) {
	raw, ok := key.Key.(ed25519.PublicKey)
	if !ok {
		return PublicKey{}, errors.New("record: not a public Ed25519 key")
	}
	return NewPublicKey(raw)
}

func parseJWK(data []byte) (*jose.JSONWebKey, error) {
	if err := CheckJSON(data, Limits{Bytes: maxKeyFile, Depth: 4, Values: 64}); err != nil {
		return nil, fmt.Errorf("record: not a JWK: %w", err)
	}
	var key jose.JSONWebKey
	if err := key.UnmarshalJSON(data); err != nil {
		// The library's message may hold parts of the key.
		return nil, errors.New("record: not a JWK of a known kind; wanted kty OKP, crv Ed25519")
	}
	return &key, nil
}

// IsZero reports whether there is no key.
func (k PublicKey) IsZero() bool { return len(k.raw) == 0 }

// Thumbprint returns the RFC 7638 SHA-256 thumbprint, base64url: the value of
// cnf.jkt in a token bound to this key.
func (k PublicKey) Thumbprint() string { return k.thumb }

// ID returns the key's thumbprint URI (RFC 9278): the id of the Host or
// application that holds the key.
func (k PublicKey) ID() string {
	if k.IsZero() {
		return ""
	}
	return ThumbprintPrefix + k.thumb
}

// Equal reports whether both are the same key.
func (k PublicKey) Equal(other PublicKey) bool { return bytes.Equal(k.raw, other.raw) }

// MarshalJSON returns the JWK form, with kid and alg.
func (k PublicKey) MarshalJSON() ([]byte, error) {
	if k.IsZero() {
		return []byte("null"), nil
	}
	return (&jose.JSONWebKey{Key: k.raw, KeyID: k.thumb, Algorithm: string(jose.EdDSA), Use: "sig"}).MarshalJSON()
}

// UnmarshalJSON reads what [PublicKey.MarshalJSON] writes.
func (k *PublicKey) UnmarshalJSON(data []byte) error {
	if string(bytes.TrimSpace(data)) == "null" {
		*k = PublicKey{}
		return nil
	}
	key, err := ParsePublicKey(data)
	if err == nil {
		*k = key
	}
	return err
}

// Key is an Ed25519 key pair. Its private half is never printed: formatting a
// Key shows its id.
type Key struct {
	private ed25519.PrivateKey
	public  PublicKey
	headers sync.Map // typ -> the encoded header of what this key signs; see header
}

// NewKey makes a key from the system's random numbers.
func NewKey() *Key {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(fmt.Sprintf("record: no random numbers for a key: %v", err)) // crypto/rand does not fail
	}
	key, err := KeyFrom(private)
	if err != nil {
		panic(err) // GenerateKey gives a key of the right size
	}
	return key
}

// KeyFrom wraps an Ed25519 private key.
func KeyFrom(private ed25519.PrivateKey) (*Key, error) {
	if len(private) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("record: an Ed25519 private key has %d bytes, not %d", ed25519.PrivateKeySize, len(private))
	}
	public, err := NewPublicKey(private.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	return &Key{private: bytes.Clone(private), public: public}, nil
}

// Public returns the public half.
func (k *Key) Public() PublicKey { return k.public }

// ID returns the id of the public half; see [PublicKey.ID].
func (k *Key) ID() string { return k.public.ID() }

// String returns the key's id, never the key.
func (k *Key) String() string { return "key " + k.ID() }

// GoString returns what String returns, so that %#v shows no secret either.
func (k *Key) GoString() string { return k.String() }

// Save writes the key to a new file, as a private JWK, readable by the owner
// only. It never replaces a file: the error then is fs.ErrExist. When Save
// returns without an error the file is on disk.
func (k *Key) Save(path string) error {
	data, err := (&jose.JSONWebKey{Key: k.private, KeyID: k.public.thumb, Algorithm: string(jose.EdDSA), Use: "sig"}).MarshalJSON()
	if err != nil {
		return errors.New("record: the key cannot be written as JWK")
	}
	// Through a temporary file and a link: a crash leaves no half key behind
	// under the real name, and an existing key is never replaced.
	temp, err := os.CreateTemp(filepath.Dir(path), ".key-*")
	if err != nil {
		return fmt.Errorf("record: save key: %w", err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(append(data, '\n'))
	if err == nil {
		err = temp.Sync()
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Link(temp.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("record: save key %s: %w", path, err)
	}
	return nil
}

// LoadKey reads a key file that [Key.Save] wrote. A file that others than its
// owner may read is refused, with the command that mends it.
func LoadKey(path string) (*Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("record: load key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("record: load key: %w", err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("record: load key: others may read %s; run: chmod 600 %s", path, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("record: load key: %w", err)
	}
	jwk, err := parseJWK(data)
	if err != nil {
		return nil, fmt.Errorf("%w (file %s)", err, path)
	}
	private, ok := jwk.Key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("record: load key: %s holds no private Ed25519 key", path)
	}
	return KeyFrom(private)
}

// LoadOrCreateKey loads the key at path, or makes one and saves it there.
// Two processes that do this at once end up with the same key.
func LoadOrCreateKey(path string) (*Key, error) {
	key, err := LoadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	key = NewKey()
	if err := key.Save(path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return LoadKey(path)
		}
		return nil, err
	}
	return key, nil
}

// syncDir makes a new or renamed entry of a directory durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // a folder cannot be synced there, and NTFS journals its entries
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
