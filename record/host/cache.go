package host

import (
	"crypto/sha256"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/eda94727/holdfast/record"
)

// maxSeen bounds the memory for used proofs; at its end requests are refused
// rather than replays let through.
const maxSeen = 4_000_000

// seenSet remembers what was used within a window. It forgets by dropping the
// older of two halves, so it needs no timers and its memory is bounded.
type seenSet struct {
	window   time.Duration
	mu       sync.Mutex
	old, new map[[16]byte]struct{}
	turned   time.Time
}

func newSeenSet(window time.Duration) *seenSet {
	return &seenSet{window: window, old: map[[16]byte]struct{}{}, new: map[[16]byte]struct{}{}}
}

// add reports whether text was not used before; full is true where there is no
// room to remember it.
func (s *seenSet) add(text string, now time.Time) (fresh, full bool) {
	sum := sha256.Sum256([]byte(text))
	key := [16]byte(sum[:16])
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.turned) > s.window {
		s.old, s.new, s.turned = s.new, map[[16]byte]struct{}{}, now
	}
	if _, seen := s.old[key]; seen {
		return false, false
	}
	if _, seen := s.new[key]; seen {
		return false, false
	}
	if len(s.old)+len(s.new) >= maxSeen {
		return false, true
	}
	s.new[key] = struct{}{}
	return true, false
}

// tokenCache keeps the claims of tokens whose signature was verified, so that
// it is verified once for each token and not for each request.
type tokenCache struct {
	mu       sync.Mutex
	old, new map[[32]byte]record.Token
}

// maxCachedTokens bounds each half of the cache.
const maxCachedTokens = 8192

func newTokenCache() *tokenCache {
	return &tokenCache{old: map[[32]byte]record.Token{}, new: map[[32]byte]record.Token{}}
}

// hashToken copies a token of usual length to the stack only.
func hashToken(token string) [32]byte {
	var room [1 << 10]byte
	return sha256.Sum256(append(room[:0], token...))
}

func (c *tokenCache) get(token string, now time.Time) (record.Token, bool) {
	key := hashToken(token)
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.new[key]
	if !ok {
		t, ok = c.old[key]
	}
	return t, ok && now.Unix() < t.Expires
}

func (c *tokenCache) put(token string, t record.Token) {
	key := hashToken(token)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.new) >= maxCachedTokens {
		c.old, c.new = c.new, map[[32]byte]record.Token{}
	}
	c.new[key] = t
}

// rateLimits has a token bucket for each client.
type rateLimits struct {
	limit    rate.Limit
	burst    int
	mu       sync.Mutex
	old, new map[string]*rate.Limiter
}

// maxLimiters bounds each half of the clients that are remembered.
const maxLimiters = 4096

func newRateLimits(perSecond float64, burst int) *rateLimits {
	l := &rateLimits{limit: rate.Limit(perSecond), burst: max(burst, 1), old: map[string]*rate.Limiter{}, new: map[string]*rate.Limiter{}}
	if perSecond < 0 {
		l.limit = rate.Inf
	}
	return l
}

// take takes one request from the client's bucket, or tells how long to wait.
func (l *rateLimits) take(client string, now time.Time) (wait time.Duration) {
	if l.limit == rate.Inf {
		return 0
	}
	l.mu.Lock()
	limiter := l.new[client]
	if limiter == nil {
		if limiter = l.old[client]; limiter == nil {
			limiter = rate.NewLimiter(l.limit, l.burst)
		}
		if len(l.new) >= maxLimiters {
			l.old, l.new = l.new, map[string]*rate.Limiter{}
		}
		l.new[client] = limiter
	}
	l.mu.Unlock()
	reservation := limiter.ReserveN(now, 1)
	if wait = reservation.DelayFrom(now); wait > 0 {
		reservation.CancelAt(now)
	}
	return wait
}
