package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/eda94727/holdfast/record"
)

// Write does one write and returns what became of it, with the Host's receipt.
// The same intent again, with its operation id, is done once and returns the
// first result. The error is an *[record.Error]: its code's class says whether
// the write may be sent again (pending), met another one (conflicted) or must be
// changed (rejected). An answer without a valid receipt of this operation is
// [record.InvalidReceipt]: the write may or may not have happened, and sending
// it again will tell.
func (k *Client) Write(ctx context.Context, intent record.Intent) (record.Result, error) {
	r, err := intent.Request(k.config.Limits)
	if err != nil {
		return record.Result{}, err
	}
	header := http.Header{
		"Idempotency-Key": {`"` + intent.OperationID + `"`},
		"Content-Digest":  {record.ContentDigest(r.Body)},
		"Accept":          {"application/fhir+json"},
		"Prefer":          {"return=minimal"},
	}
	if r.ContentType != "" {
		header.Set("Content-Type", r.ContentType)
	}
	if r.IfMatch != "" {
		header.Set("If-Match", r.IfMatch)
	}
	if r.Lab {
		header.Set(record.LabHeader, string(record.CreateLab))
	}
	a, l, err := k.do(ctx, intent.Patient, r.Method, r.Path, r.Body, header)
	if err != nil {
		return record.Result{}, err
	}
	return k.checkReceipt(a, l, intent, r)
}

// VerifiesReceipts is true: Write returns no receipt that it has not verified, by its
// signature, the record's Hosts and the request.
func (k *Client) VerifiesReceipts() bool { return true }

// checkReceipt believes a success only if its receipt covers the operation and
// says the same as the answer.
func (k *Client) checkReceipt(a *answer, l Location, intent record.Intent, r record.Request) (record.Result, error) {
	bad := func(format string, args ...any) (record.Result, error) {
		return record.Result{}, &record.Error{Code: record.InvalidReceipt, Field: "Operation-Receipt", Detail: fmt.Sprintf(format, args...)}
	}
	text := a.header.Get("Operation-Receipt")
	receipt, err := k.keys.ReadReceipt(text)
	if err != nil {
		return record.Result{}, err
	}
	replayed := a.header.Get("Idempotent-Replayed") == "true"
	// Only a replay may come from an earlier Host of the record.
	if receipt.Host != l.Host.ID && !(replayed && k.knowsHost(l, receipt.Host)) {
		return bad("it is signed by %s, not by the record's Host", receipt.Host)
	}
	if err := receipt.Covers(intent.Patient, k.Subject(), intent.OperationID, record.Fingerprint(r.Method, r.Path, r.IfMatch, r.Body)); err != nil {
		return record.Result{}, err
	}
	switch {
	case receipt.Status != a.status:
		return bad("it is of status %d, the answer of %d", receipt.Status, a.status)
	case receipt.Method != r.Method || receipt.Type != r.Type || r.ID != "" && receipt.ID != r.ID:
		return bad("it is about %s %s/%s", receipt.Method, receipt.Type, receipt.ID)
	case receipt.Version != intent.BaseVersion+1:
		return bad("it is of version %d, which does not follow %d", receipt.Version, intent.BaseVersion)
	}
	return record.Result{Type: receipt.Type, ID: receipt.ID, Version: receipt.Version, Status: receipt.Status, Receipt: text, Replayed: replayed}, nil
}

// Receipt looks up what became of an operation of this application at the
// record's Host: [record.NotFound] if it has not succeeded there.
func (k *Client) Receipt(ctx context.Context, recordID, operationID string) (record.Receipt, error) {
	if err := record.CheckID("operation_id", operationID); err != nil {
		return record.Receipt{}, err
	}
	a, l, err := k.do(ctx, recordID, http.MethodGet, "/receipts/"+operationID, nil, nil)
	if err != nil {
		return record.Receipt{}, err
	}
	receipt, err := record.ReadReceipt(string(a.body))
	if err == nil && (!k.knowsHost(l, receipt.Host) || receipt.Record != recordID || receipt.Operation != operationID || receipt.Client != k.Subject()) {
		err = &record.Error{Code: record.InvalidReceipt, Field: "receipt", Detail: "it is the receipt of something else"}
	}
	return receipt, err
}

// Resource is a resource as the Host sent it.
type Resource struct {
	Type    string
	ID      string
	Version int64
	// Content is the JSON, byte for byte.
	Content jsontext.Value
}

// Read returns the current version of a resource.
func (k *Client) Read(ctx context.Context, recordID, resourceType, id string) (Resource, error) {
	a, _, err := k.do(ctx, recordID, http.MethodGet, "/"+url.PathEscape(resourceType)+"/"+url.PathEscape(id), nil, http.Header{"Accept": {"application/fhir+json"}})
	if err != nil {
		return Resource{}, err
	}
	return readResource(a.body)
}

func readResource(data []byte) (Resource, error) {
	var v struct {
		ResourceType string `json:"resourceType"`
		ID           string `json:"id"`
		Meta         struct {
			VersionID string `json:"versionId"`
		} `json:"meta"`
	}
	err := record.DecodeJSON(data, record.Limits{Bytes: maxAnswer, Values: 1 << 20}, &v)
	version, parseErr := strconv.ParseInt(v.Meta.VersionID, 10, 64)
	if err != nil || parseErr != nil || v.ResourceType == "" || v.ID == "" {
		return Resource{}, &record.Error{Code: record.TransportUnavailable, Field: "answer", Detail: "the Host's answer is not a resource of a version"}
	}
	return Resource{v.ResourceType, v.ID, version, data}, nil
}

// Search yields the resources of a type that match, page by page as they are
// wanted. It ends with the first error.
func (k *Client) Search(ctx context.Context, recordID, resourceType string, query url.Values) iter.Seq2[Resource, error] {
	path := "/" + url.PathEscape(resourceType)
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return k.pages(ctx, recordID, path)
}

// Everything yields all current resources of a record, page by page.
func (k *Client) Everything(ctx context.Context, recordID string) iter.Seq2[Resource, error] {
	return k.pages(ctx, recordID, "/Patient/"+url.PathEscape(recordID)+"/$everything")
}

func (k *Client) pages(ctx context.Context, recordID, path string) iter.Seq2[Resource, error] {
	return func(yield func(Resource, error) bool) {
		for e, err := range k.entries(ctx, recordID, path) {
			var r Resource
			if err == nil {
				r, err = readResource(e.Resource)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// entry is one of a Bundle, of a search or a history.
type entry struct {
	Resource jsontext.Value `json:"resource"`
	Response struct {
		ETag         string    `json:"etag"`
		LastModified time.Time `json:"lastModified"`
	} `json:"response"`
}

// entries yields the entries of a Bundle and of those that its next links lead to,
// page by page as they are wanted. It ends with the first error.
func (k *Client) entries(ctx context.Context, recordID, path string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for path != "" {
			a, l, err := k.do(ctx, recordID, http.MethodGet, path, nil, http.Header{"Accept": {"application/fhir+json"}})
			if err != nil {
				yield(entry{}, err)
				return
			}
			var page struct {
				ResourceType string `json:"resourceType"`
				Link         []struct {
					Relation string `json:"relation"`
					URL      string `json:"url"`
				} `json:"link"`
				Entry []entry `json:"entry"`
			}
			if err := record.DecodeJSON(a.body, record.Limits{Bytes: maxAnswer, Values: 1 << 20}, &page); err != nil || page.ResourceType != "Bundle" {
				yield(entry{}, &record.Error{Code: record.TransportUnavailable, Field: "answer", Detail: "the Host's answer is not a Bundle"})
				return
			}
			for _, e := range page.Entry {
				if !yield(e, nil) {
					return
				}
			}
			last := path
			path = ""
			for _, link := range page.Link {
				if link.Relation != "next" {
					continue
				}
				// The token goes to the record's Host and nowhere else.
				next, ok := strings.CutPrefix(link.URL, l.Host.FHIRBase+"/")
				if !ok || "/"+next == last {
					yield(entry{}, &record.Error{Code: record.TransportUnavailable, Field: "next", Detail: "the next link leads elsewhere or nowhere"})
					return
				}
				path = "/" + next
			}
		}
	}
}
