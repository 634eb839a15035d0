package host

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
	"github.com/eda94727/holdfast/record/profile"
)

// look is one request that reads a record.
type look struct {
	action       string
	resourceType string // or * for all
	target       string
	permission   byte
}

// read authenticates a request, runs fn in a read transaction behind the grant's
// check, and writes the audit before anything is answered.
func (h *Host) read(r *http.Request, l look, fn func(tx db.Tx, a access) error) (*caller, error) {
	c, err := h.authenticate(r)
	if err != nil {
		return nil, err
	}
	err = h.audit.before(func() error {
		return h.db.Read(r.Context(), func(tx db.Tx) error {
			a, err := h.authorize(tx, c, l.resourceType, l.permission, false)
			if err != nil {
				return err
			}
			if l.resourceType != "*" && !profile.Supports(l.resourceType) {
				return &record.Error{Code: record.UnsupportedResourceType, Field: clip(l.resourceType, 64), Detail: "this record holds " + strings.Join(profile.Types(), ", ")}
			}
			return fn(tx, a)
		})
	})
	if err := h.audit.add(r.Context(), h.note(c, l.action, clip(l.target, 120), "", err)); err != nil {
		return c, err
	}
	return c, err
}

// serveRead answers the current version.
func (h *Host) serveRead(w http.ResponseWriter, r *http.Request) error {
	t, id := r.PathValue("type"), r.PathValue("id")
	var v version
	var content []byte
	_, err := h.read(r, look{"read", t, t + "/" + id, permRead}, func(tx db.Tx, a access) error {
		v, content = version{}, nil
		found, err := db.One(tx, "resource_read", db.Args{"rk": a.rk, "type": t, "id": id}, &v.rid, &v.version, &v.deleted, &v.updated, &content)
		return missing(t, id, found, err)
	})
	if err != nil {
		return err
	}
	return h.answerVersion(w, r, t, id, v, content)
}

func missing(t, id string, found bool, err error) error {
	if err == nil && !found {
		err = &record.Error{Code: record.NotFound, Field: clip(t+"/"+id, 120), Detail: "this record has no such resource or version"}
	}
	return err
}

// serveVersion answers one version of the past.
func (h *Host) serveVersion(w http.ResponseWriter, r *http.Request) error {
	t, id := r.PathValue("type"), r.PathValue("id")
	n, parseErr := strconv.ParseInt(r.PathValue("version"), 10, 64)
	v := version{version: n}
	var content []byte
	_, err := h.read(r, look{"vread", t, t + "/" + id + "/_history/" + r.PathValue("version"), permRead}, func(tx db.Tx, a access) error {
		if parseErr != nil {
			return missing(t, id, false, nil)
		}
		found, err := db.One(tx, "version_read", db.Args{"rk": a.rk, "type": t, "id": id, "version": n}, &v.deleted, &v.updated, &content)
		return missing(t, id, found, err)
	})
	if err != nil {
		return err
	}
	return h.answerVersion(w, r, t, id, v, content)
}

func (h *Host) answerVersion(w http.ResponseWriter, r *http.Request, t, id string, v version, content []byte) error {
	header := w.Header()
	tag := `W/"` + strconv.FormatInt(v.version, 10) + `"`
	header.Set("ETag", tag)
	header.Set("Last-Modified", time.UnixMilli(v.updated).UTC().Format(http.TimeFormat))
	if v.deleted {
		return &record.Error{Code: record.ResourceDeleted, Field: t + "/" + id, Detail: "deleted in version " + strconv.FormatInt(v.version, 10)}
	}
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	body, err := served(t, id, v.version, time.UnixMilli(v.updated), content)
	if err != nil {
		return err
	}
	header.Set("Content-Type", "application/fhir+json")
	header.Set("Content-Location", h.fhirBase()+"/"+t+"/"+id+"/_history/"+strconv.FormatInt(v.version, 10))
	w.Write(body)
	return nil
}

// bundle is a FHIR Bundle of pages.
type bundle struct {
	ResourceType string  `json:"resourceType"`
	Type         string  `json:"type"`
	Link         []link  `json:"link"`
	Entry        []entry `json:"entry,omitempty"`
}

type link struct {
	Relation string `json:"relation"`
	URL      string `json:"url"`
}

type entry struct {
	FullURL  string         `json:"fullUrl"`
	Resource jsontext.Value `json:"resource,omitzero"`
	Search   *entrySearch   `json:"search,omitzero"`
	Request  *entryRequest  `json:"request,omitzero"`
	Response *entryResponse `json:"response,omitzero"`
}

type entrySearch struct {
	Mode string `json:"mode"`
}

type entryRequest struct {
	Method string `json:"method"`
	URL    string `json:"url"`
}

type entryResponse struct {
	Status       string `json:"status"`
	ETag         string `json:"etag"`
	LastModified string `json:"lastModified"`
}

// Page sizes, for _count.
const (
	defaultCount = 50
	maxCount     = 500
)

// parseCount reads _count; more than the most is the most.
func parseCount(values url.Values) (int, error) {
	text := values.Get("_count")
	if text == "" {
		return defaultCount, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, &record.Error{Code: record.InvalidMessage, Field: "_count", Detail: "must be a whole number above zero"}
	}
	return min(n, maxCount), nil
}

// parseCursor reads the place that a next link goes on from.
func parseCursor(values url.Values) (int64, error) {
	text := values.Get("_after")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, &record.Error{Code: record.InvalidMessage, Field: "_after", Detail: "not a place of a next link"}
	}
	return n, nil
}

// pageLinks returns self, and next where the page was full.
func (h *Host) pageLinks(path string, values url.Values, last int64, more bool) []link {
	self := h.fhirBase() + path
	if len(values) > 0 {
		self += "?" + values.Encode()
	}
	links := []link{{"self", self}}
	if more {
		next := url.Values{}
		for key, value := range values {
			next[key] = value
		}
		next.Set("_after", strconv.FormatInt(last, 10))
		links = append(links, link{"next", h.fhirBase() + path + "?" + next.Encode()})
	}
	return links
}

// serveHistory answers a resource's versions, newest first.
func (h *Host) serveHistory(w http.ResponseWriter, r *http.Request) error {
	t, id := r.PathValue("type"), r.PathValue("id")
	values := r.URL.Query()
	count, errCount := parseCount(values)
	before, errCursor := parseCursor(values)
	if before == 0 {
		before = 1 << 62
	}
	var entries []entry
	var last int64
	_, err := h.read(r, look{"history", t, t + "/" + id, permRead}, func(tx db.Tx, a access) error {
		if err := errors.Join(errCount, errCursor); err != nil {
			return err
		}
		entries, last = nil, 0
		err := tx.Query("version_history", db.Args{"rk": a.rk, "type": t, "id": id, "before": before, "limit": count + 1}, func(row db.Row) error {
			var v version
			var content []byte
			if err := row.Scan(&v.version, &v.deleted, &v.updated, &content); err != nil {
				return err
			}
			e, err := h.historyEntry(t, id, v, content)
			if len(entries) < count {
				last = v.version
			}
			entries = append(entries, e)
			return err
		})
		return missing(t, id, len(entries) > 0, err)
	})
	if err != nil {
		return err
	}
	more := len(entries) > count
	writeJSON(w, "application/fhir+json", http.StatusOK, bundle{"Bundle", "history",
		h.pageLinks("/"+t+"/"+id+"/_history", values, last, more), entries[:min(len(entries), count)]})
	return nil
}

func (h *Host) historyEntry(t, id string, v version, content []byte) (e entry, err error) {
	updated := time.UnixMilli(v.updated).UTC()
	e = entry{FullURL: h.fhirBase() + "/" + t + "/" + id, Request: &entryRequest{http.MethodPut, t + "/" + id},
		Response: &entryResponse{"200", `W/"` + strconv.FormatInt(v.version, 10) + `"`, updated.Format(time.RFC3339Nano)}}
	switch {
	case v.deleted:
		e.Request.Method, e.Response.Status = http.MethodDelete, "204"
		return e, nil
	case v.version == 1:
		e.Request.Method, e.Request.URL, e.Response.Status = http.MethodPost, t, "201"
	}
	e.Resource, err = served(t, id, v.version, updated, content)
	return e, err
}

// serveEverything answers the whole record, page by page: Patient/{id}/$everything.
func (h *Host) serveEverything(w http.ResponseWriter, r *http.Request) error {
	values := r.URL.Query()
	count, errCount := parseCount(values)
	after, errCursor := parseCursor(values)
	var entries []entry
	var last int64
	more := false
	_, err := h.read(r, look{"everything", "*", "Patient/" + r.PathValue("id"), permRead}, func(tx db.Tx, a access) error {
		entries, last, more = nil, 0, false
		if err := errors.Join(errCount, errCursor); err != nil {
			return err
		}
		if r.PathValue("id") != a.record {
			return missing("Patient", r.PathValue("id"), false, nil)
		}
		return tx.Query("everything", db.Args{"rk": a.rk, "after": after, "limit": count + 1}, func(row db.Row) error {
			if len(entries) == count {
				more = true
				return nil
			}
			e, rid, err := h.matchEntry(row)
			last, entries = rid, append(entries, e)
			return err
		})
	})
	if err != nil {
		return err
	}
	writeJSON(w, "application/fhir+json", http.StatusOK, bundle{"Bundle", "searchset",
		h.pageLinks("/Patient/"+r.PathValue("id")+"/$everything", values, last, more), entries})
	return nil
}

// matchEntry reads a row of a search: rid, type, id, version, last_updated, content.
func (h *Host) matchEntry(row db.Row) (entry, int64, error) {
	var rid, n, updated int64
	var t, id string
	var content []byte
	if err := row.Scan(&rid, &t, &id, &n, &updated, &content); err != nil {
		return entry{}, 0, err
	}
	resource, err := served(t, id, n, time.UnixMilli(updated), content)
	return entry{FullURL: h.fhirBase() + "/" + t + "/" + id, Resource: resource, Search: &entrySearch{"match"}}, rid, err
}
