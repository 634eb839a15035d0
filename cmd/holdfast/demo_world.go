package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/directory"
	"github.com/eda94727/holdfast/record/directory/service"
	"github.com/eda94727/holdfast/record/host"
	"github.com/eda94727/holdfast/record/serve"
)

// demoWorld is a Directory and two Hosts, each a process of this program with a folder of its own, as
// their operators start them.
type demoWorld struct {
	dir       string
	directory *demoService
	a, b      *demoService
	pin       directory.Pin
}

// demoService is a Host or Directory of the demo's.
type demoService struct {
	kind   serviceKind
	folder string
	flags  []string // of the first start
	*child
	ID   string
	URL  string
	Cert string `json:"certificate"`
}

func newDemoWorld(ctx context.Context, dir string) (w *demoWorld, err error) {
	w = &demoWorld{dir: dir}
	defer func() {
		if err != nil {
			w.end()
		}
	}()
	at := func(name string) string { return filepath.Join(dir, name) }
	w.directory = &demoService{kind: directoryKind, folder: at("directory")}
	if err := w.directory.start(ctx); err != nil {
		return w, err
	}
	if err := w.askDirectory(ctx, func(d *service.Service) error { w.pin = d.Pin(); return nil }); err != nil {
		return w, err
	}
	if err := writeSettings(at("pin.json"), w.pin); err != nil {
		return w, err
	}
	trust := []string{"--directory", at("pin.json"), "--ca", w.directory.Cert}
	w.b = &demoService{kind: hostKind, folder: at("b"), flags: append(trust, "--rate=-1")}
	if err := w.b.start(ctx); err != nil {
		return w, err
	}
	// A sends records to B, and so must believe its certificate.
	w.a = &demoService{kind: hostKind, folder: at("a"), flags: append(slices.Clone(w.b.flags), "--ca", w.b.Cert)}
	if err := w.a.start(ctx); err != nil {
		return w, err
	}
	if err := addRoots(at(rootFile), []string{w.directory.Cert, w.a.Cert, w.b.Cert}); err != nil {
		return w, err
	}
	return w, w.askDirectory(ctx, func(d *service.Service) error {
		for name, h := range map[string]*demoService{"A": w.a, "B": w.b} {
			if err := d.AdmitHost(ctx, h.ID, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// end ends all processes.
func (w *demoWorld) end() {
	for _, s := range []*demoService{w.a, w.b, w.directory} {
		if s != nil && s.child != nil {
			s.end()
		}
	}
}

// start starts the service's process, and waits until it listens.
func (s *demoService) start(ctx context.Context) (err error) {
	args := append([]string{"demo", "service", strings.TrimPrefix(s.kind.command, "holdfast "), "--data", s.folder, "--json", "--quiet"}, s.flags...)
	if s.URL == "" {
		args = append(args, "--listen", "127.0.0.1:0") // kept in the folder for the next start
	}
	// Databases of the user's are none of the demo's business.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, hostKind.env+"=") || strings.HasPrefix(v, directoryKind.env+"=")
	})
	if s.child, err = startChild(env, args...); err != nil {
		return err
	}
	select {
	case <-s.first.done:
		return json.Unmarshal(s.first.line(), s)
	case <-s.ended:
		return fmt.Errorf("the demo's %s has ended by itself: %s", s.kind.noun, cleanLines(s.errors.String()))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *demoService) pid() int { return s.cmd.Process.Pid }

// kill ends the process by SIGKILL.
func (s *demoService) kill() (pid int) {
	pid = s.pid()
	s.end()
	return pid
}

// demoServiceCommand is the process of a demoService: another command of this program, that ends when
// the demo does, however that ends.
func (a *app) demoServiceCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "service COMMAND…",
		Hidden:             true,
		Short:              "A Host or Directory that the demo kills",
		DisableFlagParsing: true,
		RunE: a.action(func(ctx context.Context, args []string) error {
			ctx, cancel := a.untilGone(ctx)
			defer cancel()
			root := a.root()
			root.SetArgs(args)
			return root.ExecuteContext(ctx)
		}),
	}
}

// askDirectory opens the Directory's folder beside its process, as its operator's commands do.
func (w *demoWorld) askDirectory(ctx context.Context, act func(*service.Service) error) error {
	s, err := loadService(directoryKind, w.directory.folder)
	if err != nil {
		return err
	}
	config, err := directoryConfig(w.directory.folder, s, "")
	if err != nil {
		return err
	}
	d, err := service.Open(ctx, config)
	if err != nil {
		return err
	}
	defer d.Close()
	return act(d)
}

// askHost opens a Host's folder in the same way.
func (w *demoWorld) askHost(ctx context.Context, s *demoService, act func(*host.Host) error) error {
	config, err := hostConfig(s.folder, settings{URL: s.URL}, "")
	if err != nil {
		return err
	}
	_, http, err := new(trustFlags).load(s.folder)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(w.dir, "trust-*")
	if err != nil {
		return err
	}
	config.Directory = &host.Directory{Pin: w.pin, TrustFile: host.TrustIn(dir), HTTP: http}
	h, err := host.Open(ctx, config)
	if err != nil {
		return err
	}
	defer h.Close()
	return act(h)
}

// application makes an application with a folder and a key of its own.
func (w *demoWorld) application(name string) (*client.Client, error) {
	config, err := client.InDir(filepath.Join(w.dir, name))
	if err != nil {
		return nil, err
	}
	config.Pin = w.pin
	if config.HTTP, err = serve.TrustingClient(filepath.Join(w.dir, rootFile)); err != nil {
		return nil, err
	}
	return client.New(config)
}

// observation is a weight, as a FHIR resource.
func observation(patient string, n int) record.Intent {
	return record.Intent{Operation: record.CreateResource, Patient: patient, OperationID: record.NewID(),
		Resource: fmt.Appendf(nil, `{"resourceType":"Observation","status":"final","code":{"text":"body weight"},"subject":{"reference":"Patient/%s"},"valueQuantity":{"value":%d.%d0,"unit":"kg"}}`,
			patient, 60+n/10, n%10)}
}
