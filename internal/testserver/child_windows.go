package testserver

import (
	"errors"
	"os"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

var errNoPause = errors.New("Windows cannot pause a process: use the container way")

func pauseGroup(int) error  { return errNoPause }
func resumeGroup(int) error { return errNoPause }

func killGroup(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

func stopGroup(pid int) error { return killGroup(pid) }

func interruptGroup(pid int) error { return killGroup(pid) }

// runAs is never used here: a service account needs no other user.
type runAs struct{}

func unprivileged(string) (*runAs, error) {
	return nil, unavailable("on Windows use the container way")
}

func (u *runAs) become(*syscall.SysProcAttr) {}

func (u *runAs) own(string) error { return nil }

func childrenOf(int) ([]int, error) { return nil, nil }
