//go:build unix

package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

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

// interruptGroup is what a terminal's Ctrl-C sends.
func interruptGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGINT) }

// runAs is a user for a server that refuses to run as root.
type runAs struct{ uid, gid uint32 }

// unprivileged returns the user of that name if the test runs as root, and nil,
// for the test's own, otherwise.
func unprivileged(name string) (*runAs, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, unavailable("the server refuses to run as root, and %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	return &runAs{uint32(uid), uint32(gid)}, nil
}

func (u *runAs) become(attr *syscall.SysProcAttr) {
	if u != nil {
		attr.Credential = &syscall.Credential{Uid: u.uid, Gid: u.gid}
	}
}

// own gives a file or a folder to the user.
func (u *runAs) own(path string) error {
	if u == nil {
		return nil
	}
	return os.Chown(path, int(u.uid), int(u.gid))
}
