package record

import (
	"crypto/ed25519"
	"strings"
	"sync"
)

// KeyCache remembers which key the header of a JWS names. All proofs of one
// application have the same header, and so have all receipts of one Host; with a
// cache the header is read once and not for each of them. The signature is
// verified each time. The zero value is ready; nil remembers nothing. It is safe
// for concurrent use, and bounded: at most 8,192 headers of 512 bytes.
type KeyCache struct {
	mu       sync.Mutex
	old, new map[string]knownHeader
}

type knownHeader struct {
	typ string
	key PublicKey
}

const (
	maxKnownHeaders = 4096 // in each half
	maxKnownHeader  = 512
)

func (c *KeyCache) get(header string) (knownHeader, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.new[header]
	if !ok {
		known, ok = c.old[header]
	}
	return known, ok
}

func (c *KeyCache) put(header string, known knownHeader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.new == nil || len(c.new) >= maxKnownHeaders {
		c.old, c.new = c.new, map[string]knownHeader{}
	}
	c.new[strings.Clone(header)] = known // not the whole JWS
}

// open is openJWS. What the cache does not make a success of is left to it, so
// that there is one place that says what is wrong.
func (c *KeyCache) open(token, typ string, limit int) (payload []byte, key PublicKey, err error) {
	if c == nil {
		return openJWS(token, typ, limit)
	}
	header, rest, _ := strings.Cut(token, ".")
	body, signature, two := strings.Cut(rest, ".")
	if two && len(token) <= limit {
		if known, ok := c.get(header); ok && known.typ == typ {
			if payload, ok := verifyCompact(token[:len(header)+1+len(body)], body, signature, known.key); ok {
				return payload, known.key, nil
			}
		}
	}
	if payload, key, err = openJWS(token, typ, limit); err == nil && len(header) <= maxKnownHeader {
		c.put(header, knownHeader{typ, key})
	}
	return payload, key, err
}

// verifyCompact verifies a JWS in the compact form (RFC 7515, 7.1) whose header
// is known: signed is what stands before the second dot.
func verifyCompact(signed, body, signature string, key PublicKey) (payload []byte, ok bool) {
	raw, err := decodeBase64(signature)
	var room [1 << 10]byte // most fit in, and cost no memory
	if err != nil || !ed25519.Verify(key.raw, append(room[:0], signed...), raw) {
		return nil, false
	}
	payload, err = decodeBase64(body)
	return payload, err == nil
}
