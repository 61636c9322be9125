package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// reporter says what happened, on standard error only: in one line for people,
// and only when something is wrong, or as JSON for machines.
type reporter struct {
	log   *slog.Logger // nil: for people
	quiet bool         // do not say that the lock is held
}

func newReporter(asJSON, quiet bool) *reporter {
	r := &reporter{quiet: quiet}
	if asJSON {
		r.log = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return r
}

// note records a step of a run that goes well.
func (r *reporter) note(event string, args ...any) {
	if r.log != nil {
		r.log.Info(event, args...)
	}
}

// held says that another has the lock.
func (r *reporter) held(err error) {
	if r.log == nil && r.quiet {
		return
	}
	r.say(slog.LevelWarn, "held", err.Error())
}

// warn says that something is wrong that does not decide the exit code.
func (r *reporter) warn(event, text string) { r.say(slog.LevelWarn, event, text) }

// fail says what decides the exit code.
func (r *reporter) fail(event, text string) { r.say(slog.LevelError, event, text) }

func (r *reporter) say(level slog.Level, event, text string) {
	text = oneLine(text)
	if r.log != nil {
		r.log.Log(context.Background(), level, event, "error", text)
		return
	}
	fmt.Fprintln(os.Stderr, "interlock: "+text)
}

// oneLine joins the lines of a message.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
