package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		if err := serveWorker(context.Background(), os.Stdin, os.Stdout); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestDemo runs the program with worker processes on files, and with goroutines
// in memory: the lock must keep every update, and the demo shows nothing unless
// updates are lost without it.
func TestDemo(t *testing.T) {
	for name, url := range map[string]string{"file": "", "memory": "memory://inventory"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out bytes.Buffer
			err := demo(ctx, &out, url, 4, 30, job{Orders: 15, Think: 2 * time.Millisecond})
			t.Logf("\n%s", out.String())
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{"without a lock", "under the lock"} {
				if !strings.Contains(out.String(), line) {
					t.Errorf("no line %q", line)
				}
			}
			if strings.Contains(out.String(), "Without it, 0 sales") {
				t.Error("no update was lost without the lock")
			}
		})
	}
}

func TestOutcome(t *testing.T) {
	o := outcome{result: result{Sold: 120}, stock: 100, left: 40}
	if o.lost() != 60 || o.oversold() != 20 {
		t.Errorf("lost %d, oversold %d: want 60 and 20", o.lost(), o.oversold())
	}
}

func TestWorkersThatCannotStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, start := range map[string]starter{"process": startProcess, "goroutine": startGoroutine} {
		_, _, err := start(ctx, 2, job{URL: "unheard-of://host", Orders: 1})
		if err == nil || ctx.Err() != nil {
			t.Errorf("%s: error %v, ctx %v", name, err, ctx.Err())
		}
	}
}

func TestBadURL(t *testing.T) {
	var out bytes.Buffer
	err := demo(t.Context(), &out, "unheard-of://host", 2, 1, job{Orders: 1})
	if !errors.Is(err, lock.ErrInvalid) || out.Len() > 0 {
		t.Errorf("error %v, output %q", err, out.String())
	}
}

func TestFileURL(t *testing.T) {
	for dir, want := range map[string]string{
		"/tmp/a b%c#d?e@f": "/tmp/a%20b%25c%23d%3Fe%40f",
		"/tmp/inventory1":  "/tmp/inventory1",
	} {
		url := fileURL(dir)
		if url != "file://"+want {
			t.Errorf("fileURL(%q) = %q", dir, url)
		}
		u, err := lock.ParseURL(url)
		if err != nil || "/"+u.Path != dir {
			t.Errorf("ParseURL(%q): path %q, %v", url, u.Path, err)
		}
	}
}
