package record

import (
	"time"
)

// TokenLifetime is the longest life of an access token.
const TokenLifetime = 15 * time.Minute

// Actor is the act claim: who acts, where that is not the subject (RFC 8693).
type Actor struct {
	Subject string `json:"sub"`
}

// Confirmation is the cnf claim: the key that a token is bound to (RFC 7800).
type Confirmation struct {
	Thumbprint string `json:"jkt"`
}

// Token holds the claims of an access token (RFC 9068).
type Token struct {
	// Issuer is the Host's issuer URL.
	Issuer string `json:"iss"`
	// Subject is the application's id.
	Subject string `json:"sub"`
	// Audience is the Host's FHIR base URL.
	Audience audience `json:"aud"`
	// Expires and IssuedAt are seconds since 1970.
	Expires  int64 `json:"exp"`
	IssuedAt int64 `json:"iat"`
	// ID names the token for revocation.
	ID string `json:"jti"`
	// Client is the application's id.
	Client string `json:"client_id"`
	// Scope is the list of SMART v2 scopes, separated by spaces.
	Scope string `json:"scope"`
	// Record is the patient's record that the scopes are about (the SMART
	// launch context of patient/ scopes).
	Record string `json:"patient"`
	// Grant names the grant that the token rests on.
	Grant string `json:"grant"`
	// Actor is the representative on whose authority the application acts;
	// nil where it acts on its own.
	Actor *Actor `json:"act,omitzero"`
	// Confirmation binds the token to the application's key.
	Confirmation Confirmation `json:"cnf"`
}

// NewToken signs an access token with the Host's key.
func NewToken(host *Key, t Token, audienceURL string) (string, error) {
	t.Audience = audience{audienceURL}
	return signJWS(host, typAccessToken, t)
}

// VerifyToken checks an access token that the Host with the given id signed,
// its issuer, audience and times. Errors: [AuthorizationExpired] for one whose
// time is over, [InvalidToken] otherwise. Whether it was revoked, whether its
// grant still stands, and who holds its key, are the caller's to check.
func VerifyToken(token, hostID, issuer, audienceURL string, now time.Time) (Token, error) {
	const field = "Authorization"
	var t Token
	if err := openJWSFrom(token, typAccessToken, maxToken, hostID, &t); err != nil {
		return Token{}, failf(InvalidToken, field, "not a token of this Host: %v", err)
	}
	switch {
	case t.Issuer != issuer || len(t.Audience) != 1 || t.Audience[0] != audienceURL:
		return Token{}, failf(InvalidToken, field, "the token is for another Host")
	case t.Client == "" || t.ID == "" || t.Grant == "" || !IsID(t.Record) || t.Confirmation.Thumbprint == "":
		return Token{}, failf(InvalidToken, field, "the token lacks a claim")
	case t.Expires-t.IssuedAt > int64(TokenLifetime/time.Second):
		return Token{}, failf(InvalidToken, field, "the token lives longer than %s", TokenLifetime)
	case now.Unix() >= t.Expires:
		return Token{}, failf(AuthorizationExpired, field, "the token has expired; get a new one at the token endpoint")
	}
	return t, nil
}
