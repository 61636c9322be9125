//go:build unix

package main

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal. COMMAND's process group is in its
// background at first, so that the other commands of interlock's job (as in
// "interlock run x -- make | less") keep the foreground. A group that reads the
// terminal, or changes its settings, there is stopped; then it gets the
// foreground.
type terminal struct {
	fd    int // -1: none
	given int // the group that got the foreground; 0: none
}

func openTerminal() terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		fd = -1
	}
	return terminal{fd: fd}
}

func (t *terminal) exists() bool { return t.fd >= 0 }

// ours reports whether interlock's group is in the foreground.
func (t *terminal) ours() bool {
	if !t.exists() {
		return false
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// give puts a group in the foreground.
func (t *terminal) give(group int) {
	if t.set(group) {
		t.given = group
	}
}

// takeBack puts interlock's group in the foreground, if it gave that away.
func (t *terminal) takeBack() {
	if t.given != 0 && t.set(unix.Getpgrp()) {
		t.given = 0
	}
}

func (t *terminal) set(group int) bool {
	// To a process in the background, the system call would send SIGTTOU. COMMAND
	// was started before, so it does not inherit this.
	signal.Ignore(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil
}

func (t *terminal) close() {
	if t.exists() {
		_ = unix.Close(t.fd)
	}
}
