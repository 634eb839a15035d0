package client

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/eda94727/holdfast/record"
)

// More versions than a page has, and a deletion among them.
func TestHistory(t *testing.T) {
	w := newWorld(t)
	k := w.client()
	ctx := context.Background()
	id := record.NewID()
	with := func(op record.Operation, base int64) {
		t.Helper()
		i := record.Intent{Operation: op, Patient: w.record, OperationID: record.NewID(), BaseVersion: base}
		if op == record.DeleteResource {
			i.ResourceType, i.ResourceID = "Observation", id
		} else {
			i.Resource = []byte(`{"resourceType":"Observation","id":"` + id + `","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/` + w.record + `"},"valueQuantity":{"value":1.10}}`)
		}
		if _, err := k.Write(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	with(record.CreateResource, 0)
	const last = 60
	for base := int64(1); base < last; base++ {
		if base == 30 {
			with(record.DeleteResource, base)
			continue
		}
		with(record.UpdateResource, base)
	}
	want := int64(last)
	for v, err := range k.History(ctx, w.record, "Observation", id) {
		if err != nil {
			t.Fatal(err)
		}
		if v.Version != want || v.Deleted != (want == 31) || v.Deleted == strings.Contains(string(v.Content), `"value":1.10`) || v.Updated.IsZero() || v.ID != id {
			t.Fatalf("wanted version %d, got %+v", want, v)
		}
		want--
	}
	if want != 0 {
		t.Errorf("the history ends above version %d", want)
	}
	for v := range k.History(ctx, w.record, "Observation", id) {
		if v.Version != last {
			t.Error(v)
		}
		break // what is not wanted is not read
	}
	if r, err := k.ReadVersion(ctx, w.record, "Observation", id, 2); err != nil || r.Version != 2 {
		t.Error(r, err)
	}
	if _, err := k.ReadVersion(ctx, w.record, "Observation", id, 31); !errors.Is(err, record.ResourceDeleted) {
		t.Error(err)
	}
	if _, err := k.ReadVersion(ctx, w.record, "Observation", id, 99); !errors.Is(err, record.NotFound) {
		t.Error(err)
	}
	for _, err := range k.History(ctx, w.record, "Observation", record.NewID()) {
		if !errors.Is(err, record.NotFound) {
			t.Error(err)
		}
	}
}
