//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// shell runs a command line in a process group of its own, so that signals reach all of it and those
// of the terminal do not.
func shell(command string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// terminate asks the command's process group to end. The group may be gone already, which is no error.
func terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// kill ends the command's process group.
func kill(cmd *exec.Cmd) { killGroup(cmd.Process.Pid) }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// apart keeps a process out of the reach of the terminal's signals.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
