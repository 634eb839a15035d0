package outbox

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every rule and crash point has a test with its name, and stands in the page.
func TestEveryRuleHasATest(t *testing.T) {
	names := regexp.MustCompile(`(?m)^func Test(\w+)\(t`)
	var tests []string
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	for _, file := range files {
		for _, m := range names.FindAllStringSubmatch(readFile(t, file), -1) {
			tests = append(tests, m[1])
		}
	}
	page := readFile(t, "../docs/outbox.md")
	for letter, n := range map[string]int{"O": 5, "E": 9, "F": 10, "M": 6} {
		for i := 1; i <= n; i++ {
			rule := fmt.Sprintf("%s%d", letter, i)
			if !strings.Contains(page, rule+" ") {
				t.Errorf("docs/outbox.md does not have %s", rule)
			}
			named := regexp.MustCompile(`(^|And)` + rule + `([A-Z]|$)`)
			found := false
			for _, name := range tests {
				found = found || named.MatchString(name)
			}
			if !found {
				t.Errorf("no test carries the name %s", rule)
			}
		}
	}
	crashes := readFile(t, "crash_test.go")
	for i := 1; i <= 12; i++ {
		if !regexp.MustCompile(fmt.Sprintf(`"%d [a-z]|TestCrash%d[A-Z]|To%dA`, i, i, i)).MatchString(crashes) {
			t.Errorf("no test of crash point %d", i)
		}
	}
	for _, code := range []string{string(WrongQueueOwner), string(QueueInUse), string(UnknownQueue), string(QueueHasNoClient), string(QueueKeyMismatch), string(QueueWorkerBusy),
		string(QueueRouteUpdateRequired), string(QueueOperationIDConflict), string(UnknownQueueRoute), string(UnknownQueueEntry), string(QueueStateConflict),
		string(QueueOutcomeUnknown), string(QueueEntryAltered)} {
		if !strings.Contains(page, "`"+code+"`") {
			t.Errorf("docs/outbox.md does not have %s", code)
		}
	}
	for _, code := range append(strings.Fields(conflictedCodes), strings.Fields(rejectedCodes)...) {
		if !strings.Contains(page, "`"+code+"`") {
			t.Errorf("docs/outbox.md does not have %s", code)
		}
	}
}

// The page's Go stands in the examples, line by line.
func TestThePagesCodeIsInTheExamples(t *testing.T) {
	examples := map[string]bool{}
	for line := range strings.Lines(readFile(t, "example_test.go")) {
		examples[strings.TrimSpace(line)] = true
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readFile(t, "../docs/outbox.md"), -1)
	if len(blocks) < 2 {
		t.Error("there is no code")
	}
	for _, block := range blocks {
		for line := range strings.Lines(block[1]) {
			if line = strings.TrimSpace(line); !examples[line] {
				t.Errorf("no example has %q", line)
			}
		}
	}
}
