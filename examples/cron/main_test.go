package main

import (
	"bytes"
	"context"
	"testing"
	"time"
)

func TestDemo(t *testing.T) {
	s := schedule{period: 1500 * time.Millisecond, periods: 2, skew: 200 * time.Millisecond, hosts: 4, minHold: time.Second}
	for name, url := range map[string]string{"memory": "memory://cron-test", "file": "file://" + t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out bytes.Buffer
			err := demo(ctx, &out, url, s)
			t.Logf("\n%s", out.String())
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWithoutMinHold shows what the least hold is for: without it the job runs
// on each host.
func TestWithoutMinHold(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := schedule{period: 600 * time.Millisecond, periods: 1, skew: 300 * time.Millisecond, hosts: 3, minHold: time.Nanosecond}
	var out bytes.Buffer
	if err := demo(ctx, &out, "memory://cron-without", s); err == nil {
		t.Errorf("the job ran once:\n%s", out.String())
	}
}
