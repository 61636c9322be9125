//go:build unix

package testserver

import "syscall"

func pauseGroup(pid int) error  { return syscall.Kill(-pid, syscall.SIGSTOP) }
func resumeGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGCONT) }
func killGroup(pid int) error   { return syscall.Kill(-pid, syscall.SIGKILL) }

// stopGroup wakes a paused process too: it would not see the request.
func stopGroup(pid int) error {
	if err := syscall.Kill(-pid, syscall.SIGTERM); err != nil {
		return err
	}
	return resumeGroup(pid)
}
