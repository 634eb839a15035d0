package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"
)

// jobEnv holds the job of a process that this program started, of itself, so that each measurement has a process of its own.
const jobEnv = "HOLDFAST_BENCH_JOB"

// patience is how long a job may take: at 50 tasks a second, which is slower than any, and a minute besides.
func (j job) patience() time.Duration {
	return time.Minute + time.Duration(j.Tasks)*20*time.Millisecond
}

// command makes the process for a job. It is killed when ctx ends.
func (j job) command(ctx context.Context) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	return cmd, nil
}

// run has the job done by a new process.
func (j job) run(ctx context.Context) (out outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, j.patience()+10*time.Second) // it should end by itself, with a better message
	defer cancel()
	cmd, err := j.command(ctx)
	if err != nil {
		return out, err
	}
	var said, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &complaint
	if err := cmd.Run(); err != nil {
		text := complaint.String()
		return out, fmt.Errorf("%w: %s", err, strings.TrimSpace(text[max(0, len(text)-4000):]))
	}
	if err := json.Unmarshal(said.Bytes(), &out); err != nil {
		return out, fmt.Errorf("the process said %q: %w", said.String(), err)
	}
	return out, nil
}

// serve does the job that the environment names and ends the process, or returns at once if it names none.
func serve() {
	text := os.Getenv(jobEnv)
	if text == "" {
		return
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err := attend(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func attend(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.patience())
	defer cancel()
	out, err := j.do(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}
