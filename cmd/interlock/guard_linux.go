package main

import "syscall"

// dieWithParent has the kernel kill COMMAND if its guard is killed. It comes late
// and does not reach COMMAND's children: interlock kills the group besides.
func dieWithParent(sys *syscall.SysProcAttr) { sys.Pdeathsig = syscall.SIGKILL }
