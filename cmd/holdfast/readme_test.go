//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// blocks are the README's code blocks in that language.
func blocks(t *testing.T, language string) (found []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)\n```").FindAllStringSubmatch(readFile(t, "../../README.md"), -1) {
		found = append(found, m[1])
	}
	if len(found) == 0 {
		t.Fatalf("the README has no block of %s", language)
	}
	return found
}

// The README's Go code is that of the examples, which compile: each line of a block stands in one
// example, in this order.
func TestTheReadmesGoCodeIsThatOfTheExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	examples := map[string][]string{}
	for _, f := range files {
		for line := range strings.Lines(readFile(t, f)) {
			examples[f] = append(examples[f], strings.TrimSpace(line))
		}
	}
	for _, block := range blocks(t, "go") {
		best, missing := 0, ""
		whole := false
		lines := strings.Split(block, "\n")
		for _, rest := range examples {
			n := 0
			for _, line := range lines {
				i := slices.Index(rest, strings.TrimSpace(line))
				if i < 0 {
					if n >= best {
						best, missing = n, line
					}
					break
				}
				rest = rest[i+1:]
				n++
			}
			whole = whole || n == len(lines)
		}
		if !whole {
			t.Errorf("no example has this block; %d lines fit, then comes %q:\n%s", best, missing, block)
		}
	}
}

func TestTheExamplesRun(t *testing.T) {
	args := map[string][]string{"anydatabase": {"tasks.db"}}
	for name, want := range map[string]string{
		"anydatabase": "2 + 3 = 5, on sqlite\n",
		"quickstart":  "Hello, Ada\n",
		"transaction": "1 user, 1 mail to send: {\"To\":\"ada@example.org\",\"Subject\":\"Welcome\"}\n",
		"keys":        "20 callers, 1 report written\nthe key \"report:2026-05\" is taken\nits task has succeeded\n",
		"batch":       "10000 tasks submitted\n10000 tasks succeeded\n",
		"clinic":      "1 form saved, 1 write: committed as Observation, version 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			program := filepath.Join(dir, "example")
			if out, err := exec.Command("go", "build", "-o", program, "../../examples/"+name).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			cmd := exec.CommandContext(t.Context(), program, args[name]...)
			cmd.Dir = dir
			if out, err := cmd.Output(); err != nil || string(out) != want {
				t.Errorf("%v, it prints %q", err, out)
			}
		})
	}
}

// inPath makes this program the command "holdfast" of the shells that the test starts.
func inPath(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "holdfast")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// What the README says about the shell, done as it says.
func TestTheReadmesCommandsWork(t *testing.T) {
	inPath(t)
	dir := t.TempDir()
	var first, worker, wait string
	for _, b := range blocks(t, "sh") {
		switch {
		case strings.Contains(b, "holdfast submit"):
			first = regexp.MustCompile(`(?m)^go install.*\n`).ReplaceAllString(b, "")
		case strings.Contains(b, "holdfast worker"):
			worker = b
		case strings.Contains(b, "holdfast wait"):
			wait = b
		}
	}
	sh := func(script string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Dir = dir
		return cmd
	}
	out, err := sh(first).CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?s)^task_\w{26}\n.*greet +default +queued`).Match(out) {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv(envDatabase, "tasks.db") // what the block's export does for the reader's shell
	w := sh("exec " + worker)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Process.Kill(); w.Wait() })
	if out, err := sh(wait).CombinedOutput(); err != nil || string(out) != "\"hello from attempt 1\"\n" {
		t.Errorf("%v, %s", err, out)
	}
}

// What the README says about the outbox, in one shell.
func TestTheReadmesOutboxCommandsWork(t *testing.T) {
	t.Parallel()
	script := ""
	for _, b := range blocks(t, "sh") {
		if strings.Contains(b, "holdfast host") || strings.Contains(b, "holdfast outbox") {
			script += b + "\n"
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "holdfast")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script+"kill $!; wait $! || true")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	defer func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }() // the Host, if the script has failed
	var out, errs buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || !regexp.MustCompile(`(?s) 1  pending  create_resource .*\n1 sent, 1 committed\n.*Observation/`).MatchString(out.String()) {
		t.Errorf("%v\n%s%s", err, &out, &errs)
	}
}

func TestTheShellExampleIsAWorker(t *testing.T) {
	dir := t.TempDir()
	picture := filepath.Join(dir, "cat.png")
	if err := os.WriteFile(picture, []byte("meow"), 0o600); err != nil {
		t.Fatal(err)
	}
	task := attempt(t, "../../examples/shell/thumbnail.sh", `{"path": "`+picture+`", "width": 120}`)
	var out struct{ Thumbnail string }
	if err := task.DecodeResult(&out); err != nil || out.Thumbnail != picture+".120" || readFile(t, out.Thumbnail) != "meow" {
		t.Errorf("the result is %s, the failure %s", task.Result, task.Error)
	}
	if task := attempt(t, "../../examples/shell/thumbnail.sh", `{"path": "x"}`); task.Status != holdfast.Failed {
		t.Errorf("a bad payload makes it %s", task.Status)
	}
	if task := attempt(t, "../../examples/shell/thumbnail.sh", `{"path": "none.png", "width": 1}`, "--snooze", "1h"); task.Status != holdfast.Queued || task.Attempt != 0 || time.Until(task.RunAt) < 30*time.Minute {
		t.Errorf("a picture that is not there yet makes it %s, attempt %d", task.Status, task.Attempt)
	}
}

// Whoever adds a dependency says why.
func TestEveryDependencyHasAReason(t *testing.T) {
	docs := readFile(t, "../../docs/dependencies.md")
	for _, m := range regexp.MustCompile(`(?m)^\s+(\S+) v\S+`).FindAllStringSubmatch(readFile(t, "../../go.mod"), -1) {
		if !strings.Contains(docs, "`"+m[1]+"`") {
			t.Errorf("docs/dependencies.md does not say why there is %s", m[1])
		}
	}
}

func TestTheDocumentsLinkToWhatIsThere(t *testing.T) {
	for _, file := range []string{"../../README.md", "../../docs/cli.md", "../../docs/architecture.md", "../../docs/dependencies.md"} {
		for _, m := range regexp.MustCompile(`\]\(([\w./-]+)\)`).FindAllStringSubmatch(readFile(t, file), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}
