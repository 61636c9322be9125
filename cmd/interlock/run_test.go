//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

func TestExitCodes(t *testing.T) {
	url := fileURL(t)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		url  string
		args []string
		code int
		says string // "": standard error must be empty
	}{
		{"success", url, []string{"n", "--", "true"}, 0, ""},
		{"failure", url, []string{"n", "--", "sh", "-c", "exit 3"}, 3, ""},
		{"flags after the name", url, []string{"n", "--ttl", "5s", "--", "sh", "-c", "exit 4"}, 4, ""},
		{"flags of COMMAND", url, []string{"n", "--", "sh", "-c", "exit $#", "sh", "--wait", "--"}, 2, ""},
		{"signal", url, []string{"n", "--", "sh", "-c", "kill -9 $$"}, 137, ""},
		{"not found", url, []string{"n", "--", "interlock-no-such-command"}, 127, "not found"},
		{"not found by path", url, []string{"n", "--", "/no/such/command"}, 127, "no such file"},
		{"not executable", url, []string{"n", "--", text}, 126, "permission denied"},
		{"no name", url, nil, 64, "NAME is missing"},
		{"no command", url, []string{"n"}, 64, "no COMMAND"},
		{"nothing after dashes", url, []string{"n", "--"}, 64, "no COMMAND"},
		{"no dashes", url, []string{"n", "true"}, 64, "no -- before COMMAND"},
		{"two names", url, []string{"n", "m", "--", "true"}, 64, "NAME alone"},
		{"empty name", url, []string{"", "--", "true"}, 64, "name"},
		{"long name", url, []string{strings.Repeat("n", 513), "--", "true"}, 64, "512"},
		{"unknown flag", url, []string{"--tll=5s", "n", "--", "true"}, 64, "tll"},
		{"bad wait", url, []string{"--wait=5", "n", "--", "true"}, 64, "forever"},
		{"negative wait", url, []string{"--wait=-5s", "n", "--", "true"}, 64, "forever"},
		{"zero ttl", url, []string{"--ttl=0s", "n", "--", "true"}, 64, "not positive"},
		{"ttl too short", url, []string{"--ttl=1ms", "n", "--", "true"}, 64, "100ms"},
		{"holds cross", url, []string{"--min-hold=5s", "--max-hold=3s", "n", "--", "true"}, 64, "longer"},
		{"unknown scheme", "redsi://h", []string{"n", "--", "true"}, 64, "redsi"},
		{"unknown parameter", url + "?tll=5s", []string{"n", "--", "true"}, 64, "tll"},
		{"parameter of the Locker", url + "?ttl=5s", []string{"n", "--", "true"}, 0, ""},
		{"directory that cannot be made", "file:///proc/interlock", []string{"n", "--", "true"}, 69, "/proc/interlock"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stderr := run(t, test.url, test.args...)
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if test.says == "" {
				if stderr != "" {
					t.Errorf("standard error: %q", stderr)
				}
				return
			}
			oneHumanLine(t, stderr, test.says)
		})
	}
}

func TestGuardByHandIsMisuse(t *testing.T) {
	out, err := exec.Command(program, "guard", "--", "true").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitMisuse {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTwoRunsExclude(t *testing.T) { testExclusion(t, fileURL(t)) }

func testExclusion(t *testing.T, url string) {
	holder := start(t, url, "--owner", "the first", "n", "--", "sh", "-c", "echo ready; read x")
	holder.expect("ready")
	code, stderr := run(t, url, "n", "--", "true")
	if code != exitHeld {
		t.Errorf("exit code %d, want %d", code, exitHeld)
	}
	oneHumanLine(t, stderr, `"n"`, "held by")
	if code, stderr := run(t, url, "--quiet", "n", "--", "true"); code != exitHeld || stderr != "" {
		t.Errorf("--quiet: exit code %d, standard error %q", code, stderr)
	}
	if code, _ := run(t, url, "other", "--", "true"); code != 0 {
		t.Errorf("another name: exit code %d", code)
	}
	began := time.Now()
	if code, _ := run(t, url, "--wait=300ms", "n", "--", "true"); code != exitHeld || time.Since(began) < 300*time.Millisecond {
		t.Errorf("--wait=300ms: exit code %d after %v", code, time.Since(began))
	}
	waiter := start(t, url, "--wait=forever", "n", "--", "echo", "mine")
	holder.closeInput()
	holder.mustEnd(1) // of read, at the end of its input
	waiter.expect("mine")
	waiter.mustEnd(0)
}

// Many runs at once, each of which finds out by a directory of its own making
// whether another is at work.
func TestManyRunsNeverOverlap(t *testing.T) {
	url, dir := fileURL(t), filepath.Join(t.TempDir(), "busy")
	var all []*process
	for range 12 {
		all = append(all, start(t, url, "--wait=1m", "n", "--", "sh", "-c",
			`mkdir "$1" || exit 9; echo "$LOCK_TOKEN"; rmdir "$1"`, "sh", dir))
	}
	tokens := map[string]bool{}
	for _, p := range all {
		p.mustEnd(0)
		tokens[p.line()] = true
	}
	if len(tokens) != len(all) {
		t.Errorf("%d tokens of %d runs: %v", len(tokens), len(all), tokens)
	}
}

func TestEnvironment(t *testing.T) {
	url := fileURL(t)
	last := int64(0)
	for range 3 {
		p := startWith(t, func(c *exec.Cmd) {
			c.Env = append(os.Environ(), "LOCK_TOKEN=7", "LOCK_NAME=outer", "KEPT=yes")
		}, url, "a b\"ü", "--", "sh", "-c", `echo "$LOCK_NAME"; echo "$LOCK_TOKEN"; echo "$KEPT"`)
		if got := p.line(); got != "a b\"ü" {
			t.Errorf("LOCK_NAME is %q", got)
		}
		token, err := strconv.ParseInt(p.line(), 10, 64)
		if err != nil || token <= last {
			t.Errorf("LOCK_TOKEN %d (%v) after %d", token, err, last)
		}
		last = token
		p.expect("yes")
		p.mustEnd(0)
	}
}

func TestURLFromEnvironment(t *testing.T) {
	url := fileURL(t)
	take(t, rival(t, url), "n")
	p := exec.Command(program, "run", "n", "--", "true")
	p.Env = append(os.Environ(), "LOCK_URL="+url)
	out, _ := p.CombinedOutput()
	if code := p.ProcessState.ExitCode(); code != exitHeld {
		t.Errorf("exit code %d, want %d: %s", code, exitHeld, out)
	}
}

func TestInheritsFilesAndInput(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("from three\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(text)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := startWith(t, func(c *exec.Cmd) {
		c.Stdin = strings.NewReader("from zero\n")
		c.ExtraFiles = []*os.File{f}
	}, fileURL(t), "n", "--", "sh", "-c", "cat; cat <&3")
	p.expect("from zero")
	p.expect("from three")
	p.mustEnd(0)
}

func TestSignalsArePassedOn(t *testing.T) {
	for _, s := range []syscall.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
	} {
		t.Run(s.String(), func(t *testing.T) {
			n := strconv.Itoa(int(s))
			p := start(t, fileURL(t), "n", "--", "sh", "-c",
				`trap "echo got it; exit 5" `+n+`; echo ready; while :; do sleep 0.01; done`)
			p.expect("ready")
			p.signal(s)
			p.expect("got it")
			p.mustEnd(5)
		})
	}
}

func TestSignalThatEndsCommand(t *testing.T) {
	url := fileURL(t)
	p := start(t, url, "n", "--", "sh", "-c", "echo ready; while :; do sleep 0.01; done")
	p.expect("ready")
	p.signal(syscall.SIGTERM)
	p.mustEnd(143)
	if code, stderr := run(t, url, "n", "--", "true"); code != 0 {
		t.Errorf("the next run: exit code %d: %s", code, stderr)
	}
}

func TestIgnoredSignalStaysIgnored(t *testing.T) {
	p := startWith(t, func(c *exec.Cmd) {
		c.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`, program}, c.Args[1:]...)
		c.Path = "/bin/sh"
	}, fileURL(t), "n", "--", "sh", "-c", "echo ready; kill -HUP $$; read x; echo alive")
	p.expect("ready")
	p.signal(syscall.SIGHUP)
	p.closeInput()
	p.expect("alive")
	p.mustEnd(0)
}

func TestSignalEndsTheWait(t *testing.T) {
	url := fileURL(t)
	take(t, rival(t, url), "n")
	stderr, stderrWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	p := startWith(t, func(c *exec.Cmd) { c.Stderr = stderrWrite }, url, "--wait=forever", "--json", "n", "--", "true")
	_ = stderrWrite.Close()
	if line, err := bufio.NewReader(stderr).ReadString('\n'); err != nil || !strings.Contains(line, "waiting") {
		t.Fatalf("first event: %q, %v", line, err)
	}
	p.signal(syscall.SIGTERM)
	p.mustEnd(143)
}

func TestMinHold(t *testing.T) {
	url := fileURL(t)
	l := rival(t, url)
	for _, code := range []string{"0", "3"} {
		began := time.Now()
		p := start(t, url, "--min-hold=700ms", "n", "--", "sh", "-c", "echo done; exit "+code)
		p.expect("done")
		if _, err := l.TryAcquire(t.Context(), "n"); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("after COMMAND's end: %v, want ErrHeld", err)
		}
		h := take(t, l, "n")
		if held := time.Since(began); held < 700*time.Millisecond {
			t.Errorf("held for %v", held)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if got := strconv.Itoa(p.wait()); got != code {
			t.Errorf("exit code %s, want %s", got, code)
		}
	}
}

func TestMaxHold(t *testing.T) {
	url, work := fileURL(t), newBusy(t)
	p := start(t, url, append([]string{"--max-hold=3s", "n", "--"}, work.argv()...)...)
	work.mustWork()
	began := time.Now()
	h := take(t, rival(t, url), "n")
	work.mustRest("after a rival had the lock")
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("COMMAND had the lock for %v", took)
	}
	p.mustEnd(exitLost)
	oneHumanLine(t, p.errors(), `"n"`)
	if err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestJSON(t *testing.T) {
	url := fileURL(t)
	_, held := run(t, url, "--json", "n", "--", "true")
	take(t, rival(t, url), "n")
	_, refused := run(t, url, "--json", "n", "--", "true")
	_, misused := run(t, url, "--json", "--tll", "n", "--", "true")
	events := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(held+refused+misused), "\n") {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("no JSON: %q", line)
			continue
		}
		event, _ := v["msg"].(string)
		events[event] = true
	}
	for _, want := range []string{"acquired", "started", "ended", "held", "misuse"} {
		if !events[want] {
			t.Errorf("no event %q among %v", want, events)
		}
	}
}

func TestNoSecretInMessages(t *testing.T) {
	const secret = "S3CR3T"
	for _, url := range []string{
		"redis://user:" + secret + "@127.0.0.1:1",
		"redis://user:" + secret + "@127.0.0.1:x",
		"redis://user:" + secret + "@@127.0.0.1",
		"redsi://user:" + secret + "@127.0.0.1:1",
		"redis://user:" + secret + "%@127.0.0.1:1",
		"file://user:" + secret + "@/tmp/x",
	} {
		for _, flag := range []string{"--json", "--json=false"} {
			code, stderr := run(t, url, flag, "n", "--", "true")
			if code != exitMisuse && code != exitUnavailable {
				t.Errorf("%s: exit code %d", strings.ReplaceAll(url, secret, "…"), code)
			}
			if stderr == "" || strings.Contains(stderr, secret) {
				t.Errorf("%s: standard error %q", strings.ReplaceAll(url, secret, "…"), stderr)
			}
		}
	}
}

func TestHoldsOfTheURL(t *testing.T) {
	url := fileURL(t)
	began := time.Now()
	if code, stderr := run(t, url+"?min_hold=700ms", "n", "--", "true"); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if took := time.Since(began); took < 700*time.Millisecond {
		t.Errorf("min_hold=700ms: ended after %v", took)
	}
	p := start(t, url+"?max_hold=8s", "n", "--", "sh", "-c",
		`exec 2>/dev/null; trap "echo told; exit 0" TERM; echo ready; while :; do sleep 0.01; done`)
	began = time.Now()
	p.expect("ready")
	p.expect("told")
	// SIGTERM is due 2 s before the end. With a quarter of the TTL, it would come at
	// once.
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("max_hold=8s: COMMAND was told to end after %v", took)
	}
	p.mustEnd(exitLost)
}
