package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// report is what -json prints.
type report struct {
	When     time.Time         `json:"when"`
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // of the modules that matter
	Postgres string            `json:"postgres,omitempty"`
	Suite    suite             `json:"suite"`
	Rows     []*row            `json:"rows"`
}

type machine struct {
	System    string `json:"system"`
	Go        string `json:"go"`
	Processor string `json:"processor,omitempty"`
	Cores     int    `json:"cores"`
	Load      string `json:"load,omitempty"` // when the run began: a busy machine is a bad witness
}

// row is one contender. Its figures are by measure ("submit 1"), one a round.
type row struct {
	Library  string `json:"library"`
	Database string `json:"database"`
	Settings string `json:"settings,omitempty"`

	PerSecond map[string][]float64 `json:"per_second"`
	Pickups   []float64            `json:"pickup_ms"` // of all rounds
	PeakMiB   map[string][]float64 `json:"peak_mib"`
	Failures  []string             `json:"failures,omitempty"`

	name string
}

func newReport(s suite, chosen []contender) *report {
	r := &report{When: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), Versions: versions(), Suite: s}
	for _, c := range chosen {
		r.Rows = append(r.Rows, &row{
			Library: c.library, Database: c.db, Settings: c.settings, name: c.name(),
			PerSecond: map[string][]float64{}, PeakMiB: map[string][]float64{},
		})
	}
	return r
}

func (r *report) has(db string) bool {
	return slices.ContainsFunc(r.Rows, func(row *row) bool { return row.Database == db })
}

func (r *report) add(i int, m measure, out outcome, err error) {
	row := r.Rows[i]
	if err != nil {
		row.Failures = append(row.Failures, fmt.Sprintf("%s: %v", m, err))
		return
	}
	if m.what == "pickup" {
		row.Pickups = append(row.Pickups, out.Pickups...)
	} else {
		row.PerSecond[m.String()] = append(row.PerSecond[m.String()], out.PerSecond)
	}
	if out.PeakBytes > 0 {
		row.PeakMiB[m.String()] = append(row.PeakMiB[m.String()], float64(out.PeakBytes)/(1<<20))
	}
}

// failed returns what went wrong, nil if nothing did.
func (r *report) failed() error {
	var all []error
	for _, row := range r.Rows {
		for _, failure := range row.Failures {
			all = append(all, fmt.Errorf("%s on %s: %s", row.name, row.Database, failure))
		}
	}
	return errors.Join(all...)
}

// figures returns the row's numbers in the order of the table's columns; 0 is unknown. rate says which are better when higher.
func (r *row) figures() (numbers []float64, rate []bool) {
	for _, m := range measures() {
		if m.what != "pickup" {
			numbers, rate = append(numbers, quantile(r.PerSecond[m.String()], 0.5)), append(rate, true)
		}
	}
	peak := 0.0
	for _, each := range r.PeakMiB {
		peak = max(peak, quantile(each, 0.5))
	}
	numbers = append(numbers, quantile(r.Pickups, 0.5), quantile(r.Pickups, 0.99), peak)
	return numbers, append(rate, false, false, false)
}

func headings() []string {
	h := []string{""}
	for _, m := range measures() {
		switch m.what {
		case "submit":
			h = append(h, fmt.Sprintf("submit, %d producer%s", m.width, plural(m.width)))
		case "drain":
			h = append(h, fmt.Sprintf("drain, concurrency %d", m.width))
		}
	}
	return append(h, "pickup p50, ms", "pickup p99, ms", "peak memory, MiB")
}

// cells returns the row as text, with its ratios to the base's figures: above 1 the base does better.
func (r *row) cells(base *row) []string {
	cells := []string{r.name}
	numbers, rate := r.figures()
	others, _ := base.figures()
	for i, n := range numbers {
		ratio := n / others[i]
		if rate[i] {
			ratio = others[i] / n
		}
		switch {
		case n == 0:
			cells = append(cells, "–")
		case r == base || others[i] == 0:
			cells = append(cells, short(n))
		default:
			cells = append(cells, fmt.Sprintf("%s (%s×)", short(n), short(ratio)))
		}
	}
	return cells
}

// table has the headings and the rows of one database. Holdfast's first row is the base of the ratios; without it there are none.
func (r *report) table(db string) [][]string {
	table := [][]string{headings()}
	var base *row
	for _, row := range r.Rows {
		if row.Database != db {
			continue
		}
		if base == nil && row.Library == "holdfast" {
			base = row
		}
		if base == nil {
			table = append(table, row.cells(row))
		} else {
			table = append(table, row.cells(base))
		}
	}
	return table
}

// about says how the figures came about, a line each.
func (r *report) about() []string {
	m := r.Machine
	var used []string
	for name, version := range r.Versions {
		used = append(used, name+" "+version)
	}
	slices.Sort(used)
	lines := []string{
		fmt.Sprintf("%s, %s, %d cores%s, %s%s", r.When.Format("2006-01-02 15:04 UTC"), m.System, m.Cores, prefixed(" of ", m.Processor), m.Go, prefixed(", load ", m.Load)),
		fmt.Sprintf("%d no-op tasks a measurement, %d round%s%s; tasks a second unless said", r.Suite.Tasks, r.Suite.Rounds, plural(r.Suite.Rounds), map[bool]string{true: ", medians"}[r.Suite.Rounds > 1]),
		strings.Join(used, ", "),
	}
	if r.Rows[0].Library == "holdfast" {
		lines = append(lines, "In brackets: how many times better Holdfast's figure in the first row is (below 1: worse)")
	}
	return lines
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func (r *report) title(db string) string {
	if db == "sqlite" {
		return "SQLite, WAL, synchronous NORMAL unless said"
	}
	return r.Postgres
}

// quantile returns the q-th quantile of the numbers, 0 if there are none.
func quantile(numbers []float64, q float64) float64 {
	if len(numbers) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	if q == 0.5 && len(sorted)%2 == 0 {
		return (sorted[len(sorted)/2-1] + sorted[len(sorted)/2]) / 2
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func thisMachine() machine {
	m := machine{System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Cores: runtime.NumCPU()}
	if file, err := os.Open("/proc/cpuinfo"); err == nil {
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan() && m.Processor == ""; {
			if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
				m.Processor = strings.TrimSpace(value)
			}
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(text), " ")
	}
	return m
}

// versions of what is measured, as this program was built with.
func versions() map[string]string {
	names := map[string]string{
		"github.com/riverqueue/river":        "River",
		"maragu.dev/goqite":                  "goqite",
		"github.com/mikestefanello/backlite": "backlite",
		"github.com/vgarvardt/gue/v5":        "gue",
		"github.com/jackc/pgx/v5":            "pgx",
		"modernc.org/sqlite":                 "modernc.org/sqlite",
		"github.com/ncruces/go-sqlite3":      "ncruces/go-sqlite3",
	}
	found := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if name := names[dep.Path]; name != "" {
				found[name] = dep.Version
			}
		}
	}
	return found
}
