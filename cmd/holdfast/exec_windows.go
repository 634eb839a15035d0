package main

import (
	"os"
	"os/exec"
)

func shell(command string) *exec.Cmd { return exec.Command("cmd", "/C", command) }

// terminate: Windows has no request to end that a command line program would hear.
func terminate(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

func apart(*exec.Cmd) {}
