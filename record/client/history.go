package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/eda94727/holdfast/record"
)

// Version is one version of a resource's history.
type Version struct {
	Type    string
	ID      string
	Version int64
	// Deleted is true for a version that is a deletion.
	Deleted bool
	// Updated is when the Host committed it.
	Updated time.Time
	// Content is the JSON, byte for byte; nil for a deletion.
	Content jsontext.Value
}

// ReadVersion returns a version of a resource: [record.ResourceDeleted] for a
// deletion, [record.NotFound] for a version that there never was.
func (k *Client) ReadVersion(ctx context.Context, recordID, resourceType, id string, version int64) (Resource, error) {
	path := "/" + url.PathEscape(resourceType) + "/" + url.PathEscape(id) + "/_history/" + strconv.FormatInt(version, 10)
	a, _, err := k.do(ctx, recordID, http.MethodGet, path, nil, http.Header{"Accept": {"application/fhir+json"}})
	if err != nil {
		return Resource{}, err
	}
	return readResource(a.body)
}

// History yields the versions of a resource, newest first, page by page as they
// are wanted. It ends with the first error.
func (k *Client) History(ctx context.Context, recordID, resourceType, id string) iter.Seq2[Version, error] {
	return func(yield func(Version, error) bool) {
		path := "/" + url.PathEscape(resourceType) + "/" + url.PathEscape(id) + "/_history"
		for e, err := range k.entries(ctx, recordID, path) {
			if err != nil {
				yield(Version{}, err)
				return
			}
			tag := strings.TrimSuffix(strings.TrimPrefix(e.Response.ETag, `W/"`), `"`)
			number, err := strconv.ParseInt(tag, 10, 64)
			if err != nil || number < 1 {
				yield(Version{}, &record.Error{Code: record.TransportUnavailable, Field: "answer", Detail: "an entry of the history has no version"})
				return
			}
			v := Version{Type: resourceType, ID: id, Version: number, Deleted: e.Resource == nil, Updated: e.Response.LastModified, Content: e.Resource}
			if !yield(v, nil) {
				return
			}
		}
	}
}
