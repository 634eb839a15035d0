package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/eda94727/holdfast/record"
)

// Bounds on answers.
const (
	maxAnswer = 16 << 20
	maxNonce  = 512
)

// hostState is what the client knows of a Host for the moment.
type hostState struct {
	mu     sync.Mutex
	nonce  string
	offset time.Duration // the Host's clock minus ours
}

func (k *Client) host(id string) *hostState {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hosts[id] == nil {
		k.hosts[id] = &hostState{}
	}
	return k.hosts[id]
}

func (s *hostState) get() (nonce string, offset time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nonce, s.offset
}

// learn takes the nonce and the time from an answer.
func (s *hostState) learn(header http.Header, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if nonce := header.Get("DPoP-Nonce"); nonce != "" && len(nonce) <= maxNonce {
		s.nonce = nonce
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		s.offset = date.Sub(now)
	}
}

type tokenKey struct{ host, record string }

// tokenSlot has the token for a record at a Host; its lock lets one request get
// a token while the others wait for it.
type tokenSlot struct {
	mu      sync.Mutex
	token   string
	expires time.Time // of our own clock
}

// renewBefore is how long before its end a token is not used any more.
const renewBefore = 30 * time.Second

func (k *Client) slot(l Location) *tokenSlot {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := tokenKey{l.Host.ID, l.Record}
	if k.tokens[key] == nil {
		k.tokens[key] = &tokenSlot{}
	}
	return k.tokens[key]
}

// token returns a token for the record that is not refused; refused is one that
// the Host did not take, "" at the first try.
func (k *Client) token(ctx context.Context, l Location, refused string) (string, error) {
	s := k.slot(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token != "" && s.token != refused && k.config.Now().Before(s.expires) {
		return s.token, nil
	}
	s.token = ""
	token, life, err := k.requestToken(ctx, l)
	if err != nil {
		return "", err
	}
	s.token, s.expires = token, k.config.Now().Add(life-min(renewBefore, life/2))
	return token, nil
}

// requestToken gets a new token. The first answer of a Host may only bring its
// nonce and its time; the second try has both.
func (k *Client) requestToken(ctx context.Context, l Location) (token string, life time.Duration, err error) {
	endpoint := l.Host.Issuer + "/oauth/token"
	state := k.host(l.Host.ID)
	for try := 0; ; try++ {
		_, offset := state.get()
		assertion, err := record.NewAssertion(k.config.Key, endpoint, k.config.Now().Add(offset))
		if err != nil {
			return "", 0, err
		}
		form := url.Values{"grant_type": {"client_credentials"}, "client_assertion_type": {record.AssertionType}, "client_assertion": {assertion}, "patient": {l.Record}}
		if k.config.Scope != "" {
			form.Set("scope", k.config.Scope)
		}
		if k.config.Actor != "" {
			form.Set("actor", k.config.Actor)
		}
		answer, err := k.send(ctx, l, "", http.MethodPost, endpoint, []byte(form.Encode()), http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
		if err != nil {
			return "", 0, err
		}
		if answer.status == http.StatusOK {
			return readToken(answer, l)
		}
		err = answer.failure()
		_, now := state.get()
		// An assertion that was made with a wrong clock is worth a second try with
		// the Host's.
		wrongClock := errors.Is(err, record.InvalidToken) && (now-offset).Abs() > time.Minute
		if try > 0 || !errors.Is(err, record.UseDPoPNonce) && !wrongClock {
			return "", 0, err
		}
	}
}

func readToken(answer *answer, l Location) (string, time.Duration, error) {
	var v struct {
		AccessToken string `json:"access_token"`
		TokenType   string `json:"token_type"`
		ExpiresIn   int64  `json:"expires_in"`
		Patient     string `json:"patient"`
	}
	if err := record.DecodeJSON(answer.body, record.Limits{}, &v); err != nil || v.AccessToken == "" || len(v.AccessToken) > 16<<10 || !strings.EqualFold(v.TokenType, "DPoP") || v.Patient != l.Record || v.ExpiresIn <= 0 {
		return "", 0, &record.Error{Code: record.TransportUnavailable, Field: "token", Detail: "the token endpoint's answer is not a bound token for this record"}
	}
	return v.AccessToken, time.Duration(min(v.ExpiresIn, 3600)) * time.Second, nil
}

// answer is an HTTP answer, read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send does one request with a fresh proof. What is no answer at all is
// transport_unavailable.
func (k *Client) send(ctx context.Context, l Location, token, method, target string, body []byte, header http.Header) (*answer, error) {
	state := k.host(l.Host.ID)
	nonce, offset := state.get()
	proof, err := record.NewProof(k.config.Key, record.ProofParams{Method: method, URL: target, AccessToken: token, Nonce: nonce, Now: k.config.Now().Add(offset)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, k.config.Timeout)
	defer cancel()
	reused := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }})
	request, err := http.NewRequestWithContext(ctx, method, target, onceReader{bytes.NewReader(body)})
	if err != nil {
		return nil, &record.Error{Code: record.InvalidMessage, Field: "path", Detail: "not a URL"}
	}
	request.ContentLength = int64(len(body))
	for name, values := range header {
		request.Header[name] = values
	}
	request.Header.Set("DPoP", proof)
	if token != "" {
		request.Header.Set("Authorization", "DPoP "+token)
	}
	response, err := k.http.Do(request)
	if err != nil {
		if reused && ctx.Err() == nil {
			// The connection had ended while it was idle, perhaps.
			return nil, &staleError{unavailable(target, err)}
		}
		return nil, unavailable(target, err)
	}
	defer response.Body.Close()
	state.learn(response.Header, k.config.Now())
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, unavailable(target, err)
	}
	if len(data) > maxAnswer {
		return nil, &record.Error{Code: record.TransportUnavailable, Field: "answer", Detail: "larger than 16 MiB"}
	}
	return &answer{response.StatusCode, response.Header, data}, nil
}

// onceReader keeps the transport from sending a request again by itself: it
// would send the same proof, which a Host takes once.
type onceReader struct{ io.Reader }

// staleError is a failure on a connection that was used before: worth a second
// try with a new proof. Every request may be sent twice: reads change nothing,
// and a write has its operation id.
type staleError struct{ error }

// Unwrap returns the failure.
func (e *staleError) Unwrap() error { return e.error }

// unavailable keeps the cause, without the query of the URL.
func unavailable(target string, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	plain, _, _ := strings.Cut(target, "?")
	return &record.Error{Code: record.TransportUnavailable, Field: plain, Err: err}
}

// failure turns an answer that is no success into the protocol's error.
func (a *answer) failure() error {
	var v struct {
		Code   record.Code `json:"code"`
		Detail string      `json:"detail"`
		Text   string      `json:"error_description"`
		Issue  []struct {
			Details struct {
				Coding []struct {
					Code record.Code `json:"code"`
				} `json:"coding"`
			} `json:"details"`
			Diagnostics string   `json:"diagnostics"`
			Expression  []string `json:"expression"`
		} `json:"issue"`
	}
	e := &record.Error{Code: record.TransportUnavailable, RetryAfter: a.retryAfter()}
	if record.DecodeJSON(a.body, record.Limits{Bytes: 256 << 10}, &v) == nil {
		e.Code, e.Detail = v.Code, v.Detail
		if v.Text != "" {
			e.Detail = v.Text
		}
		if len(v.Issue) > 0 {
			e.Detail = v.Issue[0].Diagnostics
			if len(v.Issue[0].Details.Coding) > 0 {
				e.Code = v.Issue[0].Details.Coding[0].Code
			}
			if len(v.Issue[0].Expression) > 0 {
				e.Field = v.Issue[0].Expression[0]
			}
		}
	}
	// A code counts only with a status that it may have: a proxy's page with a
	// word in it is no protocol error.
	if info, known := e.Code.Info(); !known || info.Status == 0 || a.status < 400 {
		e = &record.Error{Code: record.TransportUnavailable, RetryAfter: e.RetryAfter, Detail: "the Host answered " + strconv.Itoa(a.status) + " without a code of the protocol"}
	}
	if len(e.Detail) > 1000 {
		e.Detail = e.Detail[:1000] + "…"
	}
	if e.Code == record.RecordMoved {
		if target, ok := strings.CutPrefix(a.header.Get("Link"), "<"); ok {
			e.Address, _, _ = strings.Cut(target, ">")
		}
	}
	return e
}

// retryAfter reads seconds or a date; at most a day.
func (a *answer) retryAfter() time.Duration {
	text := a.header.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.Atoi(text); err == nil {
		wait = time.Duration(min(max(seconds, 0), 86400)) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		now := time.Now()
		if date, err := http.ParseTime(a.header.Get("Date")); err == nil {
			now = date // the server's own clock, not ours
		}
		wait = min(max(at.Sub(now), 0), 24*time.Hour)
	}
	return wait
}

// do makes a request about a record, with a token and as many tries as are due:
// one more with a new nonce, one more with a new token, and, where the client
// follows moves, one more at the new Host.
func (k *Client) do(ctx context.Context, recordID, method, path string, body []byte, header http.Header) (*answer, Location, error) {
	if err := record.CheckID("patient", recordID); err != nil {
		return nil, Location{}, err
	}
	l, known := k.Location(recordID)
	if !known {
		var err error
		if l, err = k.Locate(ctx, recordID); err != nil {
			return nil, l, err
		}
	}
	a, err := k.doAt(ctx, l, method, path, body, header)
	if k.config.FollowMoves && k.trust != nil && errors.Is(err, record.RecordMoved) {
		if l, err = k.LocateAt(ctx, recordID, l.Address); err == nil {
			a, err = k.doAt(ctx, l, method, path, body, header)
		}
	}
	return a, l, err
}

func (k *Client) doAt(ctx context.Context, l Location, method, path string, body []byte, header http.Header) (*answer, error) {
	token, err := k.token(ctx, l, "")
	if err != nil {
		return nil, err
	}
	target := l.Host.FHIRBase + path
	if strings.HasPrefix(path, "/receipts/") {
		target = l.Host.Issuer + path
	}
	nonces, renewed, stale := 0, false, false
	for {
		a, err := k.send(ctx, l, token, method, target, body, header)
		var e *staleError
		if errors.As(err, &e) && !stale {
			stale = true
			continue
		}
		if err != nil {
			return nil, err
		}
		if a.status/100 == 2 || a.status == http.StatusNotModified {
			return a, nil
		}
		err = a.failure()
		switch {
		case errors.Is(err, record.UseDPoPNonce) && nonces < 2:
			nonces++
		case a.status == http.StatusUnauthorized && !renewed && !errors.Is(err, record.UseDPoPNonce):
			renewed = true
			fresh, tokenErr := k.token(ctx, l, token)
			if tokenErr != nil {
				// Without a new token, the Host's first word stands, unless the Host
				// could not be asked at all.
				if record.CodeOf(tokenErr).Class() == record.Pending {
					return nil, tokenErr
				}
				return nil, err
			}
			token = fresh
		default:
			return nil, err
		}
	}
}
