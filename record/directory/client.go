package directory

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/eda94727/holdfast/record"
)

// LogPage is how many documents a page of the log has at most.
const LogPage = 100

// Limits on what is read from a Directory.
const (
	maxDocumentAnswer = 64 << 10
	maxLogAnswer      = LogPage * maxDocumentAnswer
	maxLogPages       = 100
)

// Client reads from and publishes to Directories over HTTP. It follows no
// redirects. Nothing that it returns is verified: that is [Trust]'s work.
type Client struct {
	// HTTP does the requests; nil means http.DefaultClient's transport. Set
	// deadlines with the contexts.
	HTTP *http.Client
}

// Document reads the document at an address.
func (c Client) Document(ctx context.Context, address string) (string, error) {
	body, err := c.do(ctx, http.MethodGet, address, "", maxDocumentAnswer)
	return string(body), err
}

// Log reads the documents of the generations above after and up to last.
func (c Client) Log(ctx context.Context, address string, after, last int64) ([]string, error) {
	var documents []string
	for page := 0; after < last; page++ {
		if page == maxLogPages {
			return nil, fmt.Errorf("directory: the log has more than %d pages", maxLogPages)
		}
		body, err := c.do(ctx, http.MethodGet, address+"/log?after="+strconv.FormatInt(after, 10), "", maxLogAnswer)
		if err != nil {
			return nil, err
		}
		var list []string
		if err := record.DecodeJSON(body, record.Limits{Bytes: maxLogAnswer, Depth: 2}, &list); err != nil {
			return nil, &record.Error{Code: record.TransportUnavailable, Field: address, Detail: "the log is not a list of documents", Err: err}
		}
		if len(list) == 0 {
			break
		}
		for _, document := range list {
			if after++; after <= last {
				documents = append(documents, document)
			}
		}
	}
	return documents, nil
}

// Publish sends a publication to the address that it is for and returns the
// Directory's document.
func (c Client) Publish(ctx context.Context, address, publication string) (string, error) {
	body, err := c.do(ctx, http.MethodPost, address, publication, maxDocumentAnswer)
	return string(body), err
}

func (c Client) do(ctx context.Context, method, address, body string, limit int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, &record.Error{Code: record.InvalidMessage, Field: "address", Detail: "not a URL"}
	}
	request.Header.Set("Accept", "application/jose, application/jose+json, application/json, application/problem+json")
	if body != "" {
		request.Header.Set("Content-Type", "application/jose")
	}
	var client http.Client
	if c.HTTP != nil {
		client = *c.HTTP
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := client.Do(request)
	if err != nil {
		return nil, &record.Error{Code: record.TransportUnavailable, Field: address, Err: err}
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	if err != nil {
		return nil, &record.Error{Code: record.TransportUnavailable, Field: address, Err: err}
	}
	if int64(len(data)) > limit {
		return nil, &record.Error{Code: record.TransportUnavailable, Field: address, Detail: "the answer is too large"}
	}
	if answer.StatusCode/100 == 2 {
		return data, nil
	}
	var problem struct {
		Code   record.Code `json:"code"`
		Detail string      `json:"detail"`
	}
	if record.DecodeJSON(data, record.Limits{Bytes: maxDocumentAnswer}, &problem) == nil && problem.Code != "" {
		if _, known := problem.Code.Info(); known {
			return nil, &record.Error{Code: problem.Code, Field: address, Detail: problem.Detail}
		}
	}
	return nil, &record.Error{Code: record.TransportUnavailable, Field: address, Detail: "the Directory answered " + answer.Status}
}
