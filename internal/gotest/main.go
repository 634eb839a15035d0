// Command gotest runs go test with the arguments it is given and holds it to what the gate promises: that no test was skipped.
//
// It prints what go test prints, with the closing line of every test ("--- PASS: …") before that of its package, and everything
// that tests said which failed or were skipped. At the end it counts the tests and lists every skip with its reason. It exits
// with 1 if go test fails, if a test was skipped, or if no test ran; with -short among the arguments a skip is in order if its
// reason says "short".
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], "", os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

// run runs go test in dir.
func run(args []string, dir string, out, errOut io.Writer) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir = dir
	cmd.Stderr = errOut
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r := report{out: out, shortRun: slices.Contains(args, "-short"), packages: map[string]*pkg{}}
	readErr := r.read(events)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test %s: %w", strings.Join(args, " "), err)
	}
	if readErr != nil {
		return fmt.Errorf("read the output of go test: %w", readErr)
	}
	return r.conclude()
}

// event is one line of go test -json; go doc test2json describes it.
type event struct {
	Action, Package, Test, Output string
}

// report gathers what a run of go test tells.
type report struct {
	out            io.Writer
	shortRun       bool
	packages       map[string]*pkg // those that are running
	passed, failed int             // tests, subtests included
	skips          []skip
}

type pkg struct {
	lines   []line
	results map[string]string // by test: pass, fail, skip
}

type line struct{ test, text string }

type skip struct{ pkg, test, reason string }

// read takes events until there are no more.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		text, err := lines.ReadBytes('\n')
		if len(text) > 0 {
			var e event
			if json.Unmarshal(text, &e) == nil {
				r.take(e)
			} else {
				r.out.Write(text) // go itself speaks, not a test
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(e event) {
	if e.Package == "" { // output of the build
		io.WriteString(r.out, e.Output)
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &pkg{results: map[string]string{}}
		r.packages[e.Package] = p
	}
	switch e.Action {
	case "output":
		p.lines = append(p.lines, line{e.Test, e.Output})
	case "pass", "fail", "skip":
		if e.Test != "" {
			p.results[e.Test] = e.Action
			return
		}
		r.close(e.Package, p)
		delete(r.packages, e.Package)
	}
}

// close counts and prints a package that has ended.
func (r *report) close(name string, p *pkg) {
	for _, l := range p.lines {
		text := strings.TrimLeft(l.text, " ")
		closing := strings.HasPrefix(text, "--- ")
		quiet := p.results[l.test] == "pass" // a test that did not end at all is not
		switch {
		case closing: // those of subtests are indented, as go test does without -json
			io.WriteString(r.out, strings.Repeat("    ", strings.Count(l.test, "/"))+text)
		case !quiet && !strings.HasPrefix(text, "=== "):
			io.WriteString(r.out, l.text)
		}
	}
	for test, result := range p.results {
		switch result {
		case "pass":
			r.passed++
		case "fail":
			r.failed++
		case "skip":
			r.skips = append(r.skips, skip{name, test, p.said(test)})
		}
	}
}

// said returns what a test logged, on one line.
func (p *pkg) said(test string) string {
	var said []string
	for _, l := range p.lines {
		text := strings.TrimSpace(l.text)
		if l.test == test && !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- ") {
			said = append(said, text)
		}
	}
	return strings.Join(said, " ")
}

// conclude prints the counts and the skips, and says whether they are in order.
func (r *report) conclude() error {
	slices.SortFunc(r.skips, func(a, b skip) int {
		return strings.Compare(a.pkg+" "+a.test, b.pkg+" "+b.test)
	})
	fmt.Fprintf(r.out, "\n%d tests passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skips))
	unexpected := 0
	for _, s := range r.skips {
		note := ""
		if r.shortRun && strings.Contains(strings.ToLower(s.reason), "short") {
			note = " (in order: -short)"
		} else {
			unexpected++
		}
		fmt.Fprintf(r.out, "skipped: %s %s: %s%s\n", s.pkg, s.test, s.reason, note)
	}
	if unexpected > 0 {
		return fmt.Errorf("%d tests were skipped that must run", unexpected)
	}
	if r.passed == 0 {
		return errors.New("no test ran")
	}
	return nil
}
