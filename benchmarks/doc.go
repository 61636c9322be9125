// Package benchmarks measures Interlock beside a bare client and beside other
// libraries for locks on Redis. It is a module of its own, so that nobody who
// uses Interlock downloads the others.
//
// Each benchmark takes its contestants in turns, round by round, on the same
// server, and reports medians over the rounds: on a machine that others use too,
// a ratio within one round means something where a time does not.
//
//	go test -run='^$' -bench=. -benchtime=7x           # seven rounds
//	go test -run='^$' -bench=. -benchtime=7x -update   # and write docs/speed.md
package benchmarks
