package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"github.com/spf13/cobra"
)

// guard is a small process beside a worker that outlives it by a moment: when the worker dies without
// ending its commands (kill -9, out of memory), the guard does. Otherwise they would still run when
// another worker has taken their tasks over.
type guard struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	in  io.WriteCloser
}

// startGuard runs this program again, as the guard. It learns of the worker's end from the pipe,
// which the kernel closes however the worker ends.
func startGuard() (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g := &guard{cmd: exec.Command(self, "worker-guard")}
	apart(g.cmd)
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("the process that guards the worker's commands did not start: %w", err)
	}
	return g, nil
}

// watch tells the guard of a process group that runs now; forget, that it has ended. A guard that was
// killed is no reason to stop working: it is a second net.
func (g *guard) watch(pid int)  { g.say("+", pid) }
func (g *guard) forget(pid int) { g.say("-", pid) }

func (g *guard) say(what string, pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = fmt.Fprintf(g.in, "%s%d\n", what, pid)
}

// close ends the guard, and whatever the worker has not ended itself.
func (g *guard) close() {
	g.in.Close()
	_ = g.cmd.Wait()
}

// guardCommand is the guard's process. It ends with its standard input, whatever signals say.
func (a *app) guardCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker-guard",
		Hidden: true,
		Short:  "The process that ends a dead worker's commands",
		Args:   cobra.NoArgs,
		RunE: a.action(func(context.Context, []string) error {
			groups := map[int]bool{}
			for in := bufio.NewScanner(a.stdin); in.Scan(); {
				line := in.Text()
				if len(line) < 2 {
					continue
				}
				pid, err := strconv.Atoi(line[1:])
				switch {
				case err != nil || pid <= 1: // -1 would mean everybody
				case line[0] == '+':
					groups[pid] = true
				default:
					delete(groups, pid)
				}
			}
			for pid := range groups {
				killGroup(pid)
			}
			return nil
		}),
	}
}
