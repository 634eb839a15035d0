package host

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
)

// Token endpoint parameters beside those of OAuth.
const (
	paramRecord = "patient" // the record that the token is for
	paramActor  = "actor"   // the representative that the application acts for
)

func (h *Host) oauthRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /oauth/token", h.serveToken)
	mux.HandleFunc("POST /oauth/introspect", h.serveIntrospect)
	mux.HandleFunc("POST /oauth/revoke", h.serveRevoke)
	mux.HandleFunc("GET /oauth/jwks", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, "application/jwk-set+json", http.StatusOK, struct {
			Keys []record.PublicKey `json:"keys"`
		}{[]record.PublicKey{h.config.Key.Public()}})
	})
	for _, path := range []string{"GET /.well-known/oauth-authorization-server", "GET /fhir/.well-known/smart-configuration", "GET /.well-known/smart-configuration"} {
		mux.HandleFunc(path, h.serveAuthorizationServer)
	}
}

// serveAuthorizationServer answers what SMART App Launch and RFC 8414 ask for.
func (h *Host) serveAuthorizationServer(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, "application/json", http.StatusOK, map[string]any{
		"issuer":                                h.config.URL,
		"token_endpoint":                        h.config.URL + "/oauth/token",
		"introspection_endpoint":                h.config.URL + "/oauth/introspect",
		"revocation_endpoint":                   h.config.URL + "/oauth/revoke",
		"jwks_uri":                              h.config.URL + "/oauth/jwks",
		"grant_types_supported":                 []string{"client_credentials"},
		"token_endpoint_auth_methods_supported": []string{"private_key_jwt"},
		"token_endpoint_auth_signing_alg_values_supported": []string{"EdDSA"},
		"dpop_signing_alg_values_supported":                []string{"EdDSA"},
		"scopes_supported":                                 []string{"patient/*.cruds"},
		"response_types_supported":                         []string{},
		"capabilities":                                     []string{"client-confidential-asymmetric", "permission-patient", "permission-v2"},
		"host_id":                                          h.ID(),
	})
}

// oauthError is an error of RFC 6749 with the protocol's code beside it.
type oauthError struct {
	status int
	name   string
	cause  *record.Error
}

func (e *oauthError) Error() string { return e.name + ": " + e.cause.Error() }

// Unwrap returns the protocol's error.
func (e *oauthError) Unwrap() error { return e.cause }

func (h *Host) failOAuth(w http.ResponseWriter, r *http.Request, err error) {
	var o *oauthError
	if !errors.As(err, &o) {
		e := h.protocolError(r, err)
		o = &oauthError{http.StatusBadRequest, "invalid_request", e}
		switch e.Code {
		case record.UseDPoPNonce:
			o.name = "use_dpop_nonce"
		case record.InvalidToken:
			o.name = "invalid_dpop_proof"
		case record.HostUnavailable, record.RateLimited:
			o.status, o.name = e.Status(), "temporarily_unavailable"
		}
	}
	failHeaders(w, o.cause)
	writeJSON(w, "application/json", o.status, struct {
		Error       string      `json:"error"`
		Description string      `json:"error_description,omitzero"`
		Code        record.Code `json:"code"`
	}{o.name, o.cause.Detail, o.cause.Code})
}

// client authenticates the application at an OAuth endpoint by private_key_jwt.
func (h *Host) client(r *http.Request) (record.Assertion, error) {
	bad := func(e *record.Error) error { return &oauthError{http.StatusUnauthorized, "invalid_client", e} }
	if err := r.ParseForm(); err != nil {
		return record.Assertion{}, &record.Error{Code: record.InvalidMessage, Field: "body", Detail: "not a form"}
	}
	for key, values := range r.PostForm {
		if len(values) != 1 {
			return record.Assertion{}, &record.Error{Code: record.InvalidMessage, Field: clip(key, 64), Detail: "a parameter stands twice"}
		}
		if !isText(values[0]) {
			return record.Assertion{}, &record.Error{Code: record.InvalidMessage, Field: clip(key, 64), Detail: "not a text"}
		}
	}
	if r.PostForm.Get("client_assertion_type") != record.AssertionType {
		return record.Assertion{}, bad(&record.Error{Code: record.InvalidToken, Field: "client_assertion_type", Detail: "must be " + record.AssertionType})
	}
	now := h.now()
	a, err := record.VerifyAssertion(r.PostForm.Get("client_assertion"), []string{h.config.URL, h.config.URL + "/oauth/token", h.requestURL(r)}, now)
	if err != nil {
		var e *record.Error
		errors.As(err, &e)
		return a, bad(e)
	}
	if id := r.PostForm.Get("client_id"); id != "" && id != a.Client {
		return a, bad(&record.Error{Code: record.InvalidToken, Field: "client_id", Detail: "is not who signed the assertion"})
	}
	if wait := h.rates.take(a.Client, now); wait > 0 {
		return a, &record.Error{Code: record.RateLimited, Detail: "too many requests by this client", RetryAfter: wait}
	}
	switch fresh, full := h.assertions.add(a.Client+" "+a.JTI, now); {
	case full:
		return a, &record.Error{Code: record.HostUnavailable, Detail: "too many proofs to remember", RetryAfter: 10 * time.Second}
	case !fresh:
		return a, bad(&record.Error{Code: record.InvalidToken, Field: "client_assertion", Detail: "the assertion was used before: make a new one for each request"})
	}
	return a, nil
}

// serveToken gives an application a token for one record, bound to its key.
func (h *Host) serveToken(w http.ResponseWriter, r *http.Request) {
	now := h.now()
	// The proof comes first: its nonce gives a client with a wrong clock the
	// time that its assertion needs.
	proof, err := h.verifyProof(r, "", now)
	if err != nil {
		h.failOAuth(w, r, err)
		return
	}
	a, err := h.client(r)
	if err == nil && proof.Key.ID() != a.Client {
		err = &oauthError{http.StatusBadRequest, "invalid_dpop_proof", &record.Error{Code: record.WrongTokenHolder, Field: "DPoP", Detail: "the proof must be made with the application's own key"}}
	}
	if err != nil {
		h.failOAuth(w, r, err)
		return
	}
	recordID, actor := r.PostForm.Get(paramRecord), r.PostForm.Get(paramActor)
	token, err := h.makeToken(r, a, proof, recordID, actor, now)
	if err == nil {
		err = h.keepIssued(r.Context(), token)
	}
	entry := h.note(nil, "token", "", "", err)
	entry.Client, entry.Actor = a.Client, strings.ToValidUTF8(clip(actor, 200), "")
	if record.IsID(recordID) {
		entry.Record = recordID
	}
	if auditErr := h.audit.add(r.Context(), entry); err == nil {
		err = auditErr
	}
	if err != nil {
		h.failOAuth(w, r, err)
		return
	}
	signed, err := record.NewToken(h.config.Key, token, h.fhirBase())
	if err != nil {
		h.failOAuth(w, r, err)
		return
	}
	writeJSON(w, "application/json", http.StatusOK, struct {
		AccessToken string `json:"access_token"`
		TokenType   string `json:"token_type"`
		ExpiresIn   int64  `json:"expires_in"`
		Scope       string `json:"scope"`
		Patient     string `json:"patient"`
	}{signed, "DPoP", token.Expires - token.IssuedAt, token.Scope, token.Record})
}

// makeToken finds the grant and decides on the token's claims.
func (h *Host) makeToken(r *http.Request, a record.Assertion, proof record.Proof, recordID, actor string, now time.Time) (t record.Token, err error) {
	refuse := func(status int, name string, code record.Code, field, detail string) error {
		return &oauthError{status, name, &record.Error{Code: code, Field: field, Detail: detail}}
	}
	if r.PostForm.Get("grant_type") != "client_credentials" {
		return t, refuse(http.StatusBadRequest, "unsupported_grant_type", record.InvalidMessage, "grant_type", "must be client_credentials")
	}
	if !record.IsID(recordID) {
		return t, refuse(http.StatusBadRequest, "invalid_request", record.InvalidMessage, paramRecord, "must name a record")
	}
	var wanted []scope
	if text := r.PostForm.Get("scope"); text != "" {
		if wanted, err = parseScopes(text); err != nil {
			return t, refuse(http.StatusBadRequest, "invalid_scope", record.InvalidMessage, "scope", err.Error())
		}
	}
	var best struct{ id, scope, state, address string }
	var notAfter int64
	err = h.db.Read(r.Context(), func(tx db.Tx) error {
		best.id = ""
		var name string
		var disabled bool
		if found, err := db.One(tx, "client_get", db.Args{"id": a.Client}, &name, &disabled); err != nil {
			return err
		} else if !found || disabled {
			return refuse(http.StatusUnauthorized, "invalid_client", record.InvalidToken, "client_assertion", "this Host does not know the application "+a.Client)
		}
		return tx.Query("grant_find", db.Args{"record": recordID, "client": a.Client, "representative": actor}, func(row db.Row) error {
			var one struct{ id, scope, state, address string }
			var until, revoked int64
			if err := row.Scan(&one.id, &one.scope, &until, &revoked, &one.state, &one.address); err != nil {
				return err
			}
			if best.id == "" && revoked == 0 && (until == 0 || now.Unix() < until) {
				best, notAfter = one, until
			}
			return nil
		})
	})
	if err != nil {
		return t, err
	}
	switch {
	case best.id == "" && actor != "":
		return t, refuse(http.StatusForbidden, "invalid_grant", record.RepresentativeNotAuthorized, paramActor, "the representative has no grant for this record, or it has ended")
	case best.id == "":
		// The same words for a record that is not here: nobody can probe for records.
		return t, refuse(http.StatusUnauthorized, "invalid_grant", record.AuthorizationExpiredOrRevoked, paramRecord, "there is no grant for this record, or it has ended")
	case best.state == stateMoved:
		return t, &oauthError{http.StatusMisdirectedRequest, "invalid_target", &record.Error{Code: record.RecordMoved, Address: best.address, Detail: "the record lives on another Host; ask the Directory"}}
	}
	granted, err := parseScopes(best.scope)
	if err != nil {
		return t, err
	}
	scopes := best.scope
	if wanted != nil {
		if scopes = intersect(wanted, granted); scopes == "" {
			return t, refuse(http.StatusBadRequest, "invalid_scope", record.InsufficientScope, "scope", "the grant allows none of these: "+best.scope)
		}
	}
	expires := now.Add(record.TokenLifetime).Unix()
	if notAfter != 0 {
		expires = min(expires, notAfter)
	}
	t = record.Token{Issuer: h.config.URL, Subject: a.Client, Expires: expires, IssuedAt: now.Unix(), ID: record.NewID(), Client: a.Client,
		Scope: scopes, Record: recordID, Grant: best.id, Confirmation: record.Confirmation{Thumbprint: proof.Key.Thumbprint()}}
	if actor != "" {
		t.Actor = &record.Actor{Subject: actor}
	}
	return t, nil
}

// ownToken verifies the token of a request about a token; only the application
// that holds it may ask.
func (h *Host) ownToken(r *http.Request) (t record.Token, own bool, err error) {
	a, err := h.client(r)
	if err != nil {
		return t, false, err
	}
	t, err = record.VerifyToken(r.PostForm.Get("token"), h.ID(), h.config.URL, h.fhirBase(), h.now())
	return t, err == nil && t.Client == a.Client, nil
}

// serveIntrospect says whether a token still works (RFC 7662).
func (h *Host) serveIntrospect(w http.ResponseWriter, r *http.Request) {
	t, own, err := h.ownToken(r)
	if err != nil {
		h.failOAuth(w, r, err)
		return
	}
	type answer struct {
		Active bool `json:"active"`
	}
	if own {
		err := h.db.Read(r.Context(), func(tx db.Tx) error {
			_, err := h.authorizeAny(tx, &caller{t, mustScopes(t.Scope)})
			return err
		})
		if own = err == nil; err != nil && record.CodeOf(err) == "" {
			h.failOAuth(w, r, err)
			return
		}
	}
	if !own {
		writeJSON(w, "application/json", http.StatusOK, answer{false})
		return
	}
	writeJSON(w, "application/json", http.StatusOK, struct {
		answer
		Scope        string              `json:"scope"`
		Client       string              `json:"client_id"`
		TokenType    string              `json:"token_type"`
		Expires      int64               `json:"exp"`
		IssuedAt     int64               `json:"iat"`
		Subject      string              `json:"sub"`
		Issuer       string              `json:"iss"`
		ID           string              `json:"jti"`
		Patient      string              `json:"patient"`
		Actor        *record.Actor       `json:"act,omitzero"`
		Confirmation record.Confirmation `json:"cnf"`
	}{answer{true}, t.Scope, t.Client, "DPoP", t.Expires, t.IssuedAt, t.Subject, t.Issuer, t.ID, t.Record, t.Actor, t.Confirmation})
}

func mustScopes(text string) []scope {
	list, err := parseScopes(text)
	if err != nil {
		return nil // allows nothing
	}
	return list
}

// serveRevoke ends a token (RFC 7009). A token that is not the application's, or
// is none, is answered like one that has ended.
func (h *Host) serveRevoke(w http.ResponseWriter, r *http.Request) {
	t, own, err := h.ownToken(r)
	if err == nil && own {
		err = h.db.Write(r.Context(), "revoke a token", func(tx db.Tx) error {
			if _, err := tx.Exec("token_purge", db.Args{"now": h.now().Unix()}); err != nil {
				return err
			}
			_, err := tx.Exec("token_revoke", db.Args{"jti": t.ID, "expires": t.Expires})
			return err
		})
	}
	if err != nil {
		h.failOAuth(w, r, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}
