package host_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/host"
)

// A Host with one record, and an application that writes to it twice under one
// operation id.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "host")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	server := httptest.NewUnstartedServer(nil) // serve.Run in a real program
	server.StartTLS()
	defer server.Close()
	config, err := host.InDir(filepath.Join(dir, "host"))
	if err != nil {
		panic(err)
	}
	config.URL = server.URL
	h, err := host.Open(ctx, config)
	if err != nil {
		panic(err)
	}
	defer h.Close()
	server.Config.Handler = h.Handler()

	patient, err := h.CreateRecord(ctx, host.NewRecord{})
	if err != nil {
		panic(err)
	}
	app := record.NewKey()
	if _, err := h.Grant(ctx, host.Grant{Record: patient.ID, Client: app.ID(), Scope: "patient/*.cruds"}); err != nil {
		panic(err)
	}

	ref := h.Ref()
	c, err := client.New(client.Config{Key: app, Host: &ref, HTTP: server.Client()})
	if err != nil {
		panic(err)
	}
	intent := record.Intent{Operation: record.CreateResource, Patient: patient.ID, OperationID: record.NewID(),
		Resource: []byte(`{"resourceType":"Condition","code":{"text":"Asthma"},"subject":{"reference":"Patient/` + patient.ID + `"}}`)}
	for range 2 {
		result, err := c.Write(ctx, intent)
		if err != nil {
			panic(err)
		}
		fmt.Println(result.Type, result.Version, "done before:", result.Replayed)
	}
	// Output:
	// Condition 1 done before: false
	// Condition 1 done before: true
}
