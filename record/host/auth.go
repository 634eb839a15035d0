package host

import (
	"net/http"
	"strings"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
)

// caller is who makes a request, as far as the request itself shows: a valid
// token, held by whoever signed the proof. Whether its grant still stands is
// asked of the database, inside the request's transaction.
type caller struct {
	token  record.Token
	scopes []scope
}

func (c *caller) actor() string {
	if c.token.Actor == nil {
		return ""
	}
	return c.token.Actor.Subject
}

// authenticate checks token and proof.
func (h *Host) authenticate(r *http.Request) (*caller, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 {
		return nil, &record.Error{Code: record.InvalidToken, Field: "Authorization", Detail: "one header is needed: DPoP <access token>"}
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	token = strings.TrimSpace(token)
	if strings.EqualFold(scheme, "Bearer") {
		return nil, &record.Error{Code: record.WrongTokenHolder, Field: "Authorization", Detail: "tokens are bound to a key and need a proof: use the scheme DPoP, not Bearer"}
	}
	if !strings.EqualFold(scheme, "DPoP") || token == "" {
		return nil, &record.Error{Code: record.InvalidToken, Field: "Authorization", Detail: "one header is needed: DPoP <access token>"}
	}
	now := h.now()
	t, cached := h.tokens.get(token, now)
	if !cached {
		var err error
		if t, err = record.VerifyToken(token, h.ID(), h.config.URL, h.fhirBase(), now); err != nil {
			return nil, err
		}
	}
	proof, err := h.verifyProof(r, token, now)
	if err != nil {
		return nil, err
	}
	if proof.Key.Thumbprint() != t.Confirmation.Thumbprint {
		return nil, &record.Error{Code: record.WrongTokenHolder, Field: "DPoP", Detail: "the proof is made with another key than the token is bound to"}
	}
	scopes, err := parseScopes(t.Scope)
	if err != nil {
		return nil, &record.Error{Code: record.InvalidToken, Field: "Authorization", Detail: "the token's scope is malformed"}
	}
	if !cached {
		h.tokens.put(token, t)
	}
	if wait := h.rates.take(t.Client, now); wait > 0 {
		return nil, &record.Error{Code: record.RateLimited, Detail: "too many requests by this client", RetryAfter: wait}
	}
	return &caller{t, scopes}, nil
}

// verifyProof checks the request's one DPoP proof and that it is used once.
func (h *Host) verifyProof(r *http.Request, token string, now time.Time) (record.Proof, error) {
	proofs := r.Header.Values("DPoP")
	if len(proofs) != 1 {
		return record.Proof{}, &record.Error{Code: record.InvalidToken, Field: "DPoP", Detail: "one proof is needed (RFC 9449)"}
	}
	proof, err := record.VerifyProof(proofs[0], record.ProofCheck{Method: r.Method, URL: h.requestURL(r), AccessToken: token, Keys: &h.keys, Nonces: h.nonces, Now: now})
	if err != nil {
		return proof, err
	}
	fresh, full := h.proofs.add(proof.Key.Thumbprint()+" "+proof.JTI, now)
	switch {
	case full:
		return proof, &record.Error{Code: record.HostUnavailable, Detail: "too many proofs to remember", RetryAfter: 10 * time.Second}
	case !fresh:
		return proof, &record.Error{Code: record.InvalidToken, Field: "DPoP", Detail: "the proof was used before: make a new one for each request"}
	}
	return proof, nil
}

// requestURL is the URL that the client used, whatever proxies stand between.
func (h *Host) requestURL(r *http.Request) string {
	path := r.URL.EscapedPath() // StripPrefix has taken the base's own path
	return h.config.URL + path
}

// access is what the database says about a caller, inside one transaction.
type access struct {
	rk       int64
	record   string
	state    string
	address  string
	seq      int64
	lastHash string
}

// The states of a record at a Host.
const (
	stateActive    = "active"
	stateFrozen    = "frozen"    // being moved away: read, but not written
	stateMoved     = "moved"     // the Directory names another Host
	stateImporting = "importing" // being moved here: neither
)

// authorize asks whether the caller's grant still stands and allows permission
// on the type, and whether the record is active here. lock keeps the record's
// row for this transaction, so that its writes come one after the other.
func (h *Host) authorize(tx db.Tx, c *caller, resourceType string, permission byte, lock bool) (access, error) {
	var a access
	var client, representative, scopeText string
	var notAfter, revoked int64
	var disabled, tokenRevoked bool
	args := db.Args{"grant": c.token.Grant, "jti": c.token.ID}
	if lock {
		args["lock"] = nil
	}
	found, err := db.One(tx, "authorize", args, &client, &representative, &scopeText, &notAfter, &revoked,
		&a.rk, &a.record, &a.state, &a.address, &a.seq, &a.lastHash, &disabled, &tokenRevoked)
	if err != nil {
		return a, err
	}
	if !found || client != c.token.Client || representative != c.actor() || a.record != c.token.Record || disabled || tokenRevoked ||
		revoked != 0 || notAfter != 0 && h.now().Unix() >= notAfter {
		if c.token.Actor != nil && !tokenRevoked && !disabled {
			return a, &record.Error{Code: record.RepresentativeNotAuthorized, Field: "act", Detail: "the representative's grant for this record has ended"}
		}
		return a, &record.Error{Code: record.AuthorizationExpiredOrRevoked, Field: "Authorization", Detail: "the grant or the token was revoked or has ended"}
	}
	granted, err := parseScopes(scopeText)
	if err != nil {
		return a, err
	}
	if !allows(c.scopes, resourceType, permission) || !allows(granted, resourceType, permission) {
		return a, &record.Error{Code: record.InsufficientScope, Field: "scope", Detail: "needs patient/" + resourceType + "." + string(permission)}
	}
	switch a.state {
	case stateActive:
		return a, nil
	case stateFrozen:
		if permission == permRead || permission == permSearch {
			return a, nil
		}
		return a, &record.Error{Code: record.RecordFrozen, Detail: "the record is being moved to another Host", RetryAfter: 5 * time.Second}
	case stateMoved:
		return a, &record.Error{Code: record.RecordMoved, Address: a.address, Detail: "the record lives on another Host; ask the Directory"}
	}
	return a, &record.Error{Code: record.RecordFrozen, Detail: "the record is arriving from another Host", RetryAfter: 5 * time.Second}
}
