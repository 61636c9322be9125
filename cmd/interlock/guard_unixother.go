//go:build unix && !linux

package main

import "syscall"

// dieWithParent does nothing: there is no parent-death signal. interlock kills
// the group when it sees the guard's end.
func dieWithParent(*syscall.SysProcAttr) {}
