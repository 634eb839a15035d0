package record

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// AssertionType is the client_assertion_type of private_key_jwt (RFC 7523).
const AssertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// maxAssertionLife is the longest life of a client assertion that is accepted
// (SMART backend services: at most five minutes).
const maxAssertionLife = 5 * time.Minute

type assertionClaims struct {
	Issuer   string   `json:"iss"`
	Subject  string   `json:"sub"`
	Audience audience `json:"aud"`
	JTI      string   `json:"jti"`
	Expires  int64    `json:"exp"`
	IssuedAt int64    `json:"iat"`
}

// audience is a JWT's aud: one string or an array of them (RFC 7519, 4.1.3).
type audience []string

// MarshalJSON writes a lone audience as a string.
func (a audience) MarshalJSON() ([]byte, error) {
	if len(a) == 1 {
		return json.Marshal(a[0])
	}
	return json.Marshal([]string(a))
}

// UnmarshalJSON reads both forms.
func (a *audience) UnmarshalJSON(data []byte) error {
	if jsontext.Value(data).Kind() == jsontext.KindString {
		var one string
		err := json.Unmarshal(data, &one)
		*a = audience{one}
		return err
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// NewAssertion makes the client assertion by which an application shows at a
// token endpoint that it holds its key. now is the server's time, as well as
// the client knows it.
func NewAssertion(key *Key, tokenEndpoint string, now time.Time) (string, error) {
	return signJWS(key, typAssertion, assertionClaims{
		Issuer: key.ID(), Subject: key.ID(), Audience: audience{tokenEndpoint}, JTI: randomText(16),
		IssuedAt: now.Unix(), Expires: now.Add(2 * time.Minute).Unix(),
	})
}

// Assertion is a verified client assertion.
type Assertion struct {
	// Client is the application's id: the thumbprint URI of the key that
	// signed it.
	Client string
	// JTI is the assertion's own id, to be accepted once until Expires.
	JTI     string
	Expires time.Time
}

// VerifyAssertion checks a client assertion against the server's time and the
// audiences that mean this server. The client's id is the id of its key, so
// no registered key is needed to verify it; whether the client is known is the
// caller's to check, and whether the JTI was used before. The error is an
// *[Error] with [InvalidToken].
func VerifyAssertion(assertion string, audiences []string, now time.Time) (Assertion, error) {
	const field = "client_assertion"
	payload, key, err := openJWS(assertion, typAssertion, maxAssertion)
	if err != nil {
		return Assertion{}, failf(InvalidToken, field, "%v", err)
	}
	var claims assertionClaims
	if err := DecodeJSON(payload, payloadLimits, &claims); err != nil {
		return Assertion{}, failf(InvalidToken, field, "%v", errBadClaim)
	}
	expires := time.Unix(claims.Expires, 0)
	switch {
	case claims.Issuer != key.ID() || claims.Subject != key.ID():
		return Assertion{}, failf(InvalidToken, field, "iss and sub must be the thumbprint URI of the key that signs, %s", key.ID())
	case !slices.ContainsFunc(claims.Audience, func(a string) bool { return slices.Contains(audiences, a) }):
		return Assertion{}, failf(InvalidToken, field, "aud is not this server")
	case len(claims.JTI) < 8 || len(claims.JTI) > 128:
		return Assertion{}, failf(InvalidToken, field, "jti must have 8 to 128 characters")
	case !now.Before(expires):
		return Assertion{}, failf(InvalidToken, field, "expired %s ago", now.Sub(expires).Round(time.Second))
	case expires.Sub(now) > maxAssertionLife+time.Minute:
		return Assertion{}, failf(InvalidToken, field, "exp is more than %s ahead", maxAssertionLife)
	}
	return Assertion{Client: key.ID(), JTI: claims.JTI, Expires: expires}, nil
}
