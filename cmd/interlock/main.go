// Command interlock holds a distributed lock while another command runs.
//
// See interlock run --help.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	_ "github.com/interlock-go/lock/all"
)

// Exit codes of interlock's own. All others are COMMAND's.
const (
	exitMisuse        = 64  // EX_USAGE: a mistake in the arguments or the URL; nothing was sent
	exitUnavailable   = 69  // EX_UNAVAILABLE: the store did not answer, or refused
	exitOS            = 71  // EX_OSERR: COMMAND could not be watched over
	exitHeld          = 75  // EX_TEMPFAIL: another has the lock
	exitLost          = 79  // the lock was lost, and COMMAND ended for it if it still ran
	exitNotExecutable = 126 // as a shell has it
	exitNotFound      = 127
	exitSignal        = 128 // + the signal's number
)

func main() {
	redis.SetLogger(silent{})
	root := &cobra.Command{
		Use:               "interlock",
		Short:             "Distributed locks on the store that you already run",
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	code := 0
	root.AddCommand(newRun(&code))
	addGuard(root, &code)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return misuse{c, err} })
	if cmd, err := root.ExecuteC(); err != nil {
		code = newReporter(jsonWanted(os.Args[1:]), false).misuse(cmd, err)
	}
	os.Exit(code)
}

// silent keeps the Redis client from writing to standard error by itself: what
// matters of it is in the errors.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// misuse is a mistake in the arguments of a command.
type misuse struct {
	cmd *cobra.Command
	err error
}

func (m misuse) Error() string { return m.err.Error() }
func (m misuse) Unwrap() error { return m.err }

// jsonWanted looks for --json among arguments that could not be parsed.
func jsonWanted(args []string) bool {
	for _, a := range args {
		switch a {
		case "--":
			return false
		case "--json", "--json=true":
			return true
		}
	}
	return false
}

// misuse reports a mistake in the arguments and returns its exit code.
func (r *reporter) misuse(cmd *cobra.Command, err error) int {
	var m misuse
	if errors.As(err, &m) {
		cmd = m.cmd
	}
	r.fail("misuse", err.Error()+" (see "+cmd.CommandPath()+" --help)")
	return exitMisuse
}
