// Package plainfhir writes to ordinary FHIR R4 servers, which know no operation
// ids and no receipts, as well as that can be done.
//
// The promise is weaker than a Host's, and this is all of it:
//
//   - A creation carries an identifier made from the operation id and asks for it
//     first (If-None-Exist), so sending it again makes no second resource, if the
//     server supports conditional creation.
//   - An update or deletion carries If-Match. When its answer was lost and it is
//     sent again, the server refuses it as stale; what is on the server then is
//     read back, and if it is what this write wanted, the write is done. Somebody
//     else who wrote exactly the same in between cannot be told apart.
//   - Nothing proves afterwards that a write was done: [record.Result] has no
//     receipt.
//
// The server must number versions with whole numbers, as nearly all do: otherwise
// results have version 0, and updates cannot be based on them.
package plainfhir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/splice"
)

// OperationSystem is the system of the identifier that a creation carries; its
// value is the operation id.
const OperationSystem = "urn:holdfast:operation-id"

// maxAnswer bounds what is read from a server.
const maxAnswer = 16 << 20

// Config is what a Client needs; Base must be set.
type Config struct {
	// Base is the server's FHIR base URL, without a slash at the end.
	Base string
	// Subject names the application; it is Base unless set.
	Subject string
	// Authorize sets the headers that let a request in; nil means that none are
	// needed. It is called for each request, and may renew a token.
	Authorize func(ctx context.Context, header http.Header) error
	// Timeout is the deadline of one request; 0 means 20 seconds.
	Timeout time.Duration
	// HTTP does the requests; nil means a client of its own. Redirects are not
	// followed.
	HTTP *http.Client
	// Limits bounds what is sent.
	Limits record.Limits
}

// Client is safe for concurrent use.
type Client struct {
	config Config
	http   http.Client
}

// New returns a client of one server.
func New(c Config) (*Client, error) {
	if err := record.CheckBaseURL(c.Base); err != nil {
		return nil, fmt.Errorf("plainfhir: Base: %w", err)
	}
	if c.Subject == "" {
		c.Subject = c.Base
	}
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second
	}
	k := &Client{config: c}
	if c.HTTP != nil {
		k.http = *c.HTTP
	} else {
		k.http.Transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	k.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return k, nil
}

// Subject returns the application's name.
func (k *Client) Subject() string { return k.config.Subject }

// HostFor returns the server's base URL: every record is there.
func (k *Client) HostFor(string) string { return k.config.Base }

// Location returns the server as the place of every record.
func (k *Client) Location(recordID string) (record.Place, bool) {
	return record.Place{Record: recordID, Host: record.HostRef{ID: k.config.Base, FHIRBase: k.config.Base}}, true
}

// Write does one write, as the package's promise says. The error is an
// *[record.Error] with the code that is nearest to the server's answer.
func (k *Client) Write(ctx context.Context, intent record.Intent) (record.Result, error) {
	r, err := intent.Request(k.config.Limits)
	if err != nil {
		return record.Result{}, err
	}
	switch intent.Operation {
	case record.CreateLab, record.CreateResource:
		return k.create(ctx, intent, r)
	case record.DeleteResource:
		return k.remove(ctx, intent, r)
	}
	return k.change(ctx, intent, r)
}

// answer is an HTTP answer, read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (k *Client) do(ctx context.Context, method, path string, body []byte, header http.Header) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, k.config.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, k.config.Base+path, bytes.NewReader(body))
	if err != nil {
		return nil, &record.Error{Code: record.InvalidMessage, Field: "path", Detail: "not a URL"}
	}
	for name, values := range header {
		request.Header[name] = values
	}
	request.Header.Set("Accept", "application/fhir+json")
	if k.config.Authorize != nil {
		if err := k.config.Authorize(ctx, request.Header); err != nil {
			return nil, &record.Error{Code: record.TransportUnavailable, Field: "authorization", Err: err}
		}
	}
	response, err := k.http.Do(request)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL: a search may say something about a patient
		}
		return nil, &record.Error{Code: record.TransportUnavailable, Field: k.config.Base, Err: err}
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(data) > maxAnswer {
		err = errors.New("the answer is larger than 16 MiB")
	}
	if err != nil {
		return nil, &record.Error{Code: record.TransportUnavailable, Field: k.config.Base, Err: err}
	}
	return &answer{response.StatusCode, response.Header, data}, nil
}

// codes are the protocol's words for a server's statuses.
var codes = map[int]record.Code{
	http.StatusBadRequest: record.InvalidResource, http.StatusUnprocessableEntity: record.InvalidResource, http.StatusUnauthorized: record.InvalidToken,
	http.StatusForbidden: record.InsufficientScope, http.StatusNotFound: record.NotFound, http.StatusGone: record.ResourceDeleted,
	http.StatusConflict: record.VersionConflict, http.StatusPreconditionFailed: record.VersionConflict,
	http.StatusTooManyRequests: record.RateLimited, http.StatusInternalServerError: record.HostUnavailable, http.StatusServiceUnavailable: record.HostUnavailable,
}

// failure turns an answer that is no success into the protocol's error.
func (a *answer) failure() error {
	e := &record.Error{Code: codes[a.status], Detail: "the server answered " + strconv.Itoa(a.status)}
	if e.Code == "" {
		e.Code = record.TransportUnavailable
	}
	if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(min(max(seconds, 0), 86400)) * time.Second
	}
	var outcome struct {
		Issue []struct {
			Diagnostics string `json:"diagnostics"`
		} `json:"issue"`
	}
	if record.DecodeJSON(a.body, record.Limits{Bytes: 256 << 10}, &outcome) == nil && len(outcome.Issue) > 0 && outcome.Issue[0].Diagnostics != "" {
		e.Detail += ": " + outcome.Issue[0].Diagnostics
		if len(e.Detail) > 1000 {
			e.Detail = e.Detail[:1000] + "…"
		}
	}
	return e
}

func (a *answer) ok() bool { return a.status/100 == 2 }

// version reads the version from an ETag, 0 if it is no whole number.
func (a *answer) version() int64 {
	tag := strings.Trim(strings.TrimPrefix(a.header.Get("ETag"), "W/"), `"`)
	n, err := strconv.ParseInt(tag, 10, 64)
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// create makes a resource unless one with the operation's identifier exists.
func (k *Client) create(ctx context.Context, intent record.Intent, r record.Request) (record.Result, error) {
	body, err := withIdentifier(r.Body, intent.OperationID)
	if err != nil {
		return record.Result{}, err
	}
	search := "identifier=" + url.QueryEscape(OperationSystem+"|"+intent.OperationID)
	a, err := k.do(ctx, http.MethodPost, r.Path, body, http.Header{"Content-Type": {r.ContentType}, "If-None-Exist": {search}})
	if err != nil {
		return record.Result{}, err
	}
	if !a.ok() {
		return record.Result{}, a.failure()
	}
	result := record.Result{Type: r.Type, Version: a.version(), Status: a.status, Replayed: a.status == http.StatusOK}
	if result.ID = idIn(a.header.Get("Location"), r.Type); result.ID == "" {
		var made current
		if record.DecodeJSON(a.body, record.Limits{Bytes: maxAnswer, Values: 1 << 20}, &made) == nil && made.ResourceType == r.Type {
			result.ID = made.ID
		}
	}
	if result.ID != "" {
		return result, nil
	}
	// The server says that it is done, but not under which id.
	found, err := k.find(ctx, r.Type, search)
	if err != nil {
		return record.Result{}, err
	}
	result.ID, result.Version = found.ID, found.version()
	return result, nil
}

// current is what a resource says about itself.
type current struct {
	ResourceType string `json:"resourceType"`
	ID           string `json:"id"`
	Meta         struct {
		VersionID string `json:"versionId"`
	} `json:"meta"`
}

func (c current) version() int64 {
	n, err := strconv.ParseInt(c.Meta.VersionID, 10, 64)
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// find returns the one resource that a search finds.
func (k *Client) find(ctx context.Context, resourceType, search string) (current, error) {
	a, err := k.do(ctx, http.MethodGet, "/"+resourceType+"?"+search, nil, nil)
	if err != nil {
		return current{}, err
	}
	if !a.ok() {
		return current{}, a.failure()
	}
	var bundle struct {
		Entry []struct {
			Resource current `json:"resource"`
		} `json:"entry"`
	}
	err = record.DecodeJSON(a.body, record.Limits{Bytes: maxAnswer, Values: 1 << 20}, &bundle)
	if err != nil || len(bundle.Entry) != 1 || !record.IsResourceID(bundle.Entry[0].Resource.ID) {
		return current{}, &record.Error{Code: record.TransportUnavailable, Field: "answer", Detail: "the server does not say which resource it has made"}
	}
	return bundle.Entry[0].Resource, nil
}

// idIn reads the id from …/Type/id or …/Type/id/_history/version.
func idIn(location, resourceType string) string {
	if _, rest, ok := strings.Cut(location, "/"+resourceType+"/"); ok {
		if id, _, _ := strings.Cut(rest, "/"); record.IsResourceID(id) {
			return id
		}
	}
	return ""
}

// change updates a resource or a name.
func (k *Client) change(ctx context.Context, intent record.Intent, r record.Request) (record.Result, error) {
	a, err := k.do(ctx, r.Method, r.Path, r.Body, http.Header{"Content-Type": {r.ContentType}, "If-Match": {r.IfMatch}})
	if err != nil {
		return record.Result{}, err
	}
	if a.ok() {
		return record.Result{Type: r.Type, ID: r.ID, Version: a.version(), Status: a.status}, nil
	}
	failure := a.failure()
	if !errors.Is(failure, record.VersionConflict) {
		return record.Result{}, failure
	}
	// Stale: by somebody else's write, or by our own whose answer was lost.
	now, err := k.do(ctx, http.MethodGet, r.Path, nil, nil)
	if err != nil {
		return record.Result{}, err
	}
	if now.ok() && k.says(now.body, intent) {
		var c current
		if err := record.DecodeJSON(now.body, record.Limits{Bytes: maxAnswer, Values: 1 << 20}, &c); err == nil && c.version() > intent.BaseVersion {
			return record.Result{Type: r.Type, ID: r.ID, Version: c.version(), Status: http.StatusOK, Replayed: true}, nil
		}
	}
	return record.Result{}, failure
}

// says reports whether a resource on the server is what the intent wanted.
func (k *Client) says(resource []byte, intent record.Intent) bool {
	limits := record.Limits{Bytes: maxAnswer, Values: 1 << 20}
	if record.CheckJSON(resource, limits) != nil {
		return false
	}
	if intent.Operation == record.UpdateDemographics {
		var want struct {
			Name string `json:"name"`
		}
		var have struct {
			Name []jsontext.Value `json:"name"`
		}
		if json.Unmarshal(intent.Resource, &want) != nil || json.Unmarshal(resource, &have) != nil || len(have.Name) != 1 {
			return false
		}
		quoted, err := json.Marshal(map[string]string{"text": want.Name})
		if err != nil {
			return false
		}
		return sameJSON(quoted, have.Name[0], limits)
	}
	want, errWant := withoutMeta(intent.Resource)
	have, errHave := withoutMeta(resource)
	return errWant == nil && errHave == nil && sameJSON(want, have, limits)
}

func sameJSON(a, b []byte, limits record.Limits) bool {
	x, errX := record.Digest(a, limits)
	y, errY := record.Digest(b, limits)
	return errX == nil && errY == nil && x == y
}

// remove deletes a resource. One that is gone already is what was wanted.
func (k *Client) remove(ctx context.Context, intent record.Intent, r record.Request) (record.Result, error) {
	a, err := k.do(ctx, r.Method, r.Path, nil, http.Header{"If-Match": {r.IfMatch}})
	if err != nil {
		return record.Result{}, err
	}
	result := record.Result{Type: r.Type, ID: r.ID, Version: a.version(), Status: http.StatusNoContent}
	if result.Version == 0 {
		result.Version = intent.BaseVersion + 1
	}
	switch {
	case a.ok():
		return result, nil
	case a.status == http.StatusGone:
		result.Replayed = true
		return result, nil
	}
	return record.Result{}, a.failure()
}

// withIdentifier adds the operation's identifier to a resource; every other
// value keeps its bytes.
func withIdentifier(resource []byte, operationID string) ([]byte, error) {
	list, err := splice.Members(resource)
	if err != nil {
		return nil, &record.Error{Code: record.InvalidMessage, Field: "resource", Detail: "not a JSON object"}
	}
	own := `{"system":"` + OperationSystem + `","value":"` + operationID + `"}`
	for i, m := range list {
		if m.Name != "identifier" {
			continue
		}
		inner := bytes.TrimSpace(m.Raw)
		if len(inner) < 2 || inner[0] != '[' {
			return nil, &record.Error{Code: record.InvalidResource, Shape: true, Field: "identifier", Detail: "must be an array"}
		}
		inner = bytes.TrimSpace(inner[1 : len(inner)-1])
		joined := "[" + string(inner)
		if len(inner) > 0 {
			joined += ","
		}
		list[i] = splice.New("identifier", []byte(joined+own+"]"))
		return splice.Object(list), nil
	}
	return splice.Object(append(list, splice.New("identifier", []byte("["+own+"]")))), nil
}

// withoutMeta leaves out what a server sets by itself.
func withoutMeta(resource []byte) ([]byte, error) {
	list, err := splice.Members(resource)
	if err != nil {
		return nil, err
	}
	kept := list[:0]
	for _, m := range list {
		if m.Name != "meta" {
			kept = append(kept, m)
		}
	}
	return splice.Object(kept), nil
}
