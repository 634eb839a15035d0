package main

import (
	"context"
	"net/http"
	"net/http/httptest"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/host"
)

// thereHost stands for the Host that another organisation runs: "holdfast host", usually.
type thereHost struct {
	host   *host.Host
	server *httptest.Server
	ref    *record.HostRef
	http   *http.Client // believes the Host's certificate
}

func startHost(ctx context.Context, dir string) (*thereHost, error) {
	server := httptest.NewUnstartedServer(nil) // record/serve in a real program
	server.StartTLS()
	config, err := host.InDir(dir)
	if err != nil {
		server.Close()
		return nil, err
	}
	config.URL = server.URL
	h, err := host.Open(ctx, config)
	if err != nil {
		server.Close()
		return nil, err
	}
	server.Config.Handler = h.Handler()
	ref := h.Ref()
	return &thereHost{h, server, &ref, server.Client()}, nil
}

// admit makes a record that an application may write to.
func (t *thereHost) admit(ctx context.Context, application string) (patient string, err error) {
	r, err := t.host.CreateRecord(ctx, host.NewRecord{})
	if err != nil {
		return "", err
	}
	_, err = t.host.Grant(ctx, host.Grant{Record: r.ID, Client: application, Scope: "patient/*.cruds"})
	return r.ID, err
}

func (t *thereHost) stop() {
	t.server.Close()
	t.host.Close()
}
