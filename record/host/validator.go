package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/eda94727/holdfast/record"
)

// Validation is what an external validator is asked about.
type Validation struct {
	Record    string         `json:"record"`
	Client    string         `json:"client"`
	Operation string         `json:"operation_id"`
	Method    string         `json:"method"`
	Type      string         `json:"type"`
	ID        string         `json:"id,omitzero"`
	Resource  jsontext.Value `json:"resource"`
}

// Validator has the last word on a resource before it is committed: the rules of
// a laboratory, say. It is asked outside the transaction. An error that is or
// wraps an *[record.Error] with [record.ExternalValidationRejected] refuses the
// write; every other error means that it cannot be asked now, and the write is
// answered host_unavailable.
type Validator interface {
	Validate(ctx context.Context, v Validation) error
}

// HTTPValidator asks a validator over HTTP: it posts a [Validation] as JSON. 2xx
// accepts; 422 refuses, with a reason in the member detail of its JSON answer;
// everything else, and no answer in time, is no answer.
type HTTPValidator struct {
	URL string
	// Timeout is its deadline; 0 means five seconds.
	Timeout time.Duration
	// Client does the requests; nil means http.DefaultClient's transport.
	Client *http.Client
}

// maxReason bounds the reason of a refusal.
const maxReason = 500

// Validate asks.
func (v HTTPValidator) Validate(ctx context.Context, question Validation) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("host: ask the validator: %w", err)
	}
	timeout := v.Timeout
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, v.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("host: ask the validator: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	client := http.Client{}
	if v.Client != nil {
		client = *v.Client
	}
	// A patient's data goes to the validator that was configured and nowhere else.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("host: ask the validator: %w", err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("host: ask the validator: %w", err)
	}
	switch {
	case answer.StatusCode/100 == 2:
		return nil
	case answer.StatusCode != http.StatusUnprocessableEntity:
		return fmt.Errorf("host: the validator answered %s", answer.Status)
	}
	var reason struct {
		Detail string `json:"detail"`
	}
	if record.DecodeJSON(data, record.Limits{}, &reason) != nil || reason.Detail == "" {
		reason.Detail = "the validator gave no reason"
	}
	if len(reason.Detail) > maxReason {
		reason.Detail = reason.Detail[:maxReason] + "…"
	}
	return &record.Error{Code: record.ExternalValidationRejected, Field: question.Type, Detail: reason.Detail}
}
