//go:build unix && !linux

package main

import "syscall"

// dieWithParent: only Linux can. Elsewhere a command outlives a worker that was killed.
func dieWithParent(*syscall.SysProcAttr) {}

func holdThread() (release func()) { return func() {} }
