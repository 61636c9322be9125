package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/interlock-go/lock"
)

const runLong = `Run holds the lock NAME while COMMAND runs.

It tries once, or waits for as long as --wait says. COMMAND finds the lock's name
in LOCK_NAME and, if the store gives one, the fencing token in LOCK_TOKEN. It runs
in a process group of its own; signals that interlock gets are passed on to the
group. When COMMAND ends, the lock is freed, also if processes that it left in the
background go on.

If the lock cannot be renewed, the group gets SIGTERM, and SIGKILL before anyone
else can have the lock: at the latest one TTL after the last renewal, SIGTERM a
quarter of the TTL earlier (10 s at most). If the lock was taken away, SIGTERM
comes as soon as that is seen and SIGKILL a second later. COMMAND does not outlive
an interlock that was killed, and not for longer than the TTL one that was
stopped: Ctrl-Z stops the renewal too. On file, where no time ends a lock, a
stopped interlock keeps it.

The lock is at --url, or LOCK_URL, or else in files of this host. A password is
better in LOCK_URL, since everybody on the host can see arguments.

Exit codes: COMMAND's own, or 128 + n if signal n ended it, and of interlock:
   64  a mistake in the arguments or the URL
   69  the store did not answer, or refused
   71  the operating system refused what interlock needs
   75  another has the lock
   79  the lock was lost, and COMMAND was ended or had succeeded
  126  COMMAND cannot be executed
  127  COMMAND was not found`

// runOptions are the flags of run.
type runOptions struct {
	url     string
	wait    waitFlag
	ttl     time.Duration
	minHold time.Duration
	maxHold time.Duration
	owner   string
	json    bool
	quiet   bool
}

func newRun(code *int) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARG…]",
		Short: "Hold a lock while a command runs",
		Long:  runLong,
		Example: `  interlock run nightly-report -- ./report.sh
  interlock run --wait 10m deploy -- make deploy
  LOCK_URL=redis://10.0.0.5:6379 interlock run --ttl 15s --min-hold 1m cron:mail -- mail-queue`,
		Args: checkRunArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return misuse{cmd, err}
			}
			*code = o.run(cmd, args[0], args[1:])
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.url, "url", "", "the store, such as redis://host:6379 (default $LOCK_URL, else file://)")
	f.Var(&o.wait, "wait", `how long to wait for the lock, such as 30s, or "forever" (default: try once)`)
	f.DurationVar(&o.ttl, "ttl", 0, "how long a dead holder blocks others (default 30s, or the URL's)")
	f.DurationVar(&o.minHold, "min-hold", 0, "hold the lock for at least so long, even if COMMAND ends sooner")
	f.DurationVar(&o.maxHold, "max-hold", 0, "end COMMAND if it has not ended after so long")
	f.StringVar(&o.owner, "owner", "", "a label that others are shown (default HOST:PID)")
	f.BoolVar(&o.json, "json", false, "log as JSON, on standard error")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing if another has the lock")
	return cmd
}

func checkRunArgs(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0:
		return misuse{cmd, errors.New("the lock's NAME is missing")}
	case dash < 0 && len(args) == 1:
		return misuse{cmd, errors.New("no COMMAND: it stands after NAME and --")}
	case dash < 0:
		return misuse{cmd, fmt.Errorf("no -- before COMMAND: %s %s -- %s …", cmd.CommandPath(), strconv.Quote(args[0]), strconv.Quote(args[1]))}
	case dash != 1:
		return misuse{cmd, fmt.Errorf("%d arguments before --: there must be the lock's NAME alone", dash)}
	case len(args) == 1:
		return misuse{cmd, errors.New("no COMMAND after --")}
	}
	return nil
}

// check refuses durations that were given but mean nothing.
func (o *runOptions) check(cmd *cobra.Command) error {
	for name, d := range map[string]time.Duration{"ttl": o.ttl, "min-hold": o.minHold, "max-hold": o.maxHold} {
		if cmd.Flags().Changed(name) && d <= 0 {
			return fmt.Errorf("--%s %v is not positive", name, d)
		}
	}
	if o.minHold > 0 && o.maxHold > 0 && o.minHold > o.maxHold {
		return fmt.Errorf("--min-hold %v is longer than --max-hold %v", o.minHold, o.maxHold)
	}
	return nil
}

// run takes the lock, runs the command under it, and returns the exit code.
func (o *runOptions) run(cmd *cobra.Command, name string, argv []string) int {
	r := newReporter(o.json, o.quiet)
	if code := findCommand(r, argv[0]); code != 0 {
		return code
	}
	url := o.url
	if url == "" {
		url = os.Getenv("LOCK_URL")
	}
	if url == "" {
		url = "file://"
	}

	ctx, interrupted := interruptible()
	if o.wait.set {
		r.note("waiting", "name", name, "for", o.wait.String())
	}
	renewed := make(chan struct{}, 1)
	locker, h, err := o.acquire(ctx, url, name, o.options(r, renewed))
	passOn := notifyPassedOn()
	if s := interrupted(); s != nil {
		if locker != nil {
			_ = locker.Close()
		}
		r.note("interrupted", "signal", s.String())
		return exitSignal + int(s.(syscall.Signal))
	}
	if err != nil {
		if locker != nil {
			_ = locker.Close()
		}
		return notAcquired(r, cmd, err)
	}

	began := time.Now()
	minHold := o.minHold
	if minHold == 0 {
		minHold = minHoldOf(url)
	}
	token, _ := h.Token()
	r.note("acquired", "name", name, "token", int64(token), "ttl", h.TTL().String())
	j := job{
		handle: h, argv: argv, env: environment(name, token), grace: killGrace(h),
		renewed: renewed, signals: passOn, report: r,
	}
	end := j.run()
	if end.survivors {
		// Something may still run under the lock: it ends by itself.
		r.fail("os", "the processes of COMMAND do not end; the lock is not freed by interlock")
		return exitOS
	}
	if rest := minHold - time.Since(began); rest > 0 && h.Err() == nil {
		stay(r, h, rest, passOn)
	}
	code := o.finish(r, locker, h, end)
	if end.interrupted {
		interruptGroup()
	}
	return code
}

// finish frees the lock and decides the exit code.
func (o *runOptions) finish(r *reporter, locker lock.Locker, h *lock.Handle, end ending) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := h.Release(ctx)
	lost := errors.Is(err, lock.ErrLost)
	if closed := locker.Close(); err == nil {
		err = closed
	}
	switch {
	case end.err != nil:
		r.fail("os", end.err.Error())
	case lost, end.told:
		r.fail("lost", lossText(h.Name(), err, end.told))
	case err != nil:
		r.warn("release", err.Error())
	}
	code := end.code
	switch {
	case end.told, lost && code == 0:
		code = exitLost
	case end.err != nil && code == 0:
		code = exitOS
	}
	r.note("ended", "code", code, "lost", lost || end.told)
	return code
}

// lossText says why the lock was lost, and what that meant for COMMAND.
func lossText(name string, err error, told bool) string {
	var lostErr *lock.LostError
	text := fmt.Sprintf("lock %q could not be renewed in time", name)
	if errors.As(err, &lostErr) {
		text = lostErr.Error()
	}
	if told {
		return text + "; COMMAND was ended"
	}
	return text
}

// job is a command that runs under a lock.
type job struct {
	handle  *lock.Handle
	argv    []string
	env     []string
	grace   time.Duration   // from SIGTERM to SIGKILL
	renewed <-chan struct{} // something is sent after each renewal
	signals chan os.Signal  // to be passed on
	report  *reporter
}

// ending is how a job ended.
type ending struct {
	code        int
	told        bool  // it was ended because of the lock
	err         error // it could not be started, or watched over
	survivors   bool  // some of its processes would not end
	interrupted bool  // by Ctrl-C on a terminal that only COMMAND was listening to
}

// findCommand makes sure that the command can be executed, before a lock is
// taken for it.
func findCommand(r *reporter, command string) int {
	switch _, err := exec.LookPath(command); {
	case err == nil:
		return 0
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		r.fail("command", err.Error())
		return exitNotFound
	default:
		r.fail("command", err.Error())
		return exitNotExecutable
	}
}

// environment is the command's: interlock's own, with the lock's name and token.
func environment(name string, token lock.Token) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LOCK_NAME=") && !strings.HasPrefix(v, "LOCK_TOKEN=") {
			env = append(env, v)
		}
	}
	env = append(env, "LOCK_NAME="+name)
	if token > 0 {
		env = append(env, "LOCK_TOKEN="+strconv.FormatInt(int64(token), 10))
	}
	return env
}

// minHoldOf is the min_hold of a URL that was opened: on a store where no clock
// ends a lock, it is for whoever holds to stay.
func minHoldOf(url string) time.Duration {
	u, err := lock.ParseURL(url)
	if err != nil {
		return 0
	}
	return u.Duration("min_hold", 0)
}

// stay keeps the lock for the rest of its least time. A signal ends that.
func stay(r *reporter, h *lock.Handle, rest time.Duration, signals <-chan os.Signal) {
	r.note("staying", "for", rest.String())
	timer := time.NewTimer(rest)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-h.Context().Done():
			return
		case s := <-signals:
			if ends(s) {
				r.warn("min-hold", fmt.Sprintf("%v: the lock was to be held for another %v", s, rest.Round(time.Millisecond)))
				return
			}
		}
	}
}

// notifyPassedOn starts to collect the signals that are passed on to COMMAND. One
// that is ignored, as under nohup, stays so, for COMMAND too.
func notifyPassedOn() chan os.Signal {
	c := make(chan os.Signal, 64)
	for _, s := range passedOnSignals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c
}

// ends reports whether s is a request to end.
func ends(s os.Signal) bool {
	for _, e := range endingSignals {
		if s == e {
			return true
		}
	}
	return false
}

// killGrace is the time from SIGTERM to SIGKILL for a lock that is not renewed, or
// held for as long as it may.
func killGrace(h *lock.Handle) time.Duration {
	grace := min(h.TTL()/4, 10*time.Second)
	if d := h.Deadline(); !d.IsZero() {
		grace = min(grace, max(0, time.Until(d))/4)
	}
	return grace
}

// takenGrace is the time from SIGTERM to SIGKILL for a lock that another may
// have already.
const takenGrace = time.Second
