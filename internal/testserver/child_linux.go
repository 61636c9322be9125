package testserver

import "syscall"

// ownGroup sets a child apart from the terminal's signals, and makes the kernel
// kill it when the test's process ends.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
