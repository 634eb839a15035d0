package main

import (
	"runtime"
	"syscall"
)

// dieWithParent lets the kernel end the command when the worker dies, however it dies: otherwise it
// would still run when another worker has taken the task over.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// holdThread keeps the goroutine on its thread while a command runs: to the kernel, the parent is the
// thread that started the command, and an idle thread may end.
func holdThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
