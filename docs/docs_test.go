// Package docs proves what the pages say: what is made from the code is as the
// code has it, the Go in them compiles, and links lead somewhere.
package docs

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/all"
	"github.com/interlock-go/lock/internal/testserver"
)

var update = flag.Bool("update", false, "write what is made from the code into the pages")

// pages returns the paths of all pages, from this directory.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("../*.md")
	if err != nil {
		t.Fatal(err)
	}
	found = append(found, "../examples/README.md")
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// section is what stands between the comments "<!-- name: … -->" and
// "<!-- /name -->" of a page.
type section struct{ path, before, text, after string }

func sectionOf(t *testing.T, path, name string) section {
	t.Helper()
	page := read(t, path)
	begin := regexp.MustCompile(`<!-- ` + name + `:[^\n]*-->\n`).FindStringIndex(page)
	end := strings.Index(page, "<!-- /"+name+" -->")
	if begin == nil || end < begin[1] {
		t.Fatalf("%s has no section between <!-- %s: … --> and <!-- /%[2]s -->", path, name)
	}
	return section{path, page[:begin[1]], page[begin[1]:end], page[end:]}
}

// replace writes another text if the test is to update.
func (s section) replace(t *testing.T, text string) {
	t.Helper()
	switch {
	case s.text == text:
	case *update:
		if err := os.WriteFile(s.path, []byte(s.before+text+s.after), 0o644); err != nil { //nolint:gosec // a page is for all
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is out of date (go test ./docs -update writes it); want:\n%s", s.path, text)
	}
}

const tableHead = `| URL | Fencing tokens | A dead holder's lock ends by | Order of waiters | TTL | Faults of the store that do no harm |
|---|---|---|---|---|---|
`

// TestGuarantees compares each row of the README's table with what a Locker that
// was opened says.
func TestGuarantees(t *testing.T) {
	rows := []struct {
		label string
		url   func(t *testing.T) string
	}{
		{"memory://name", func(*testing.T) string { return "memory://docs" }},
		{"file:///directory", func(t *testing.T) string { return "file://" + durableDir(t) }},
		{"redis://host:6379", redisURL},
		{"redis://host:6379?fencing=counter", func(t *testing.T) string { return redisURL(t) + "?fencing=counter" }},
	}
	labels := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	var have []string
	for _, m := range labels.FindAllStringSubmatch(sectionOf(t, "../README.md", "guarantees").text, -1) {
		have = append(have, m[1])
	}
	var want []string
	for _, r := range rows {
		want = append(want, r.label)
	}
	if !slices.Equal(have, want) {
		if !*update {
			t.Fatalf("the README's table has rows for %q, want %q", have, want)
		}
		empty := tableHead
		for _, label := range want {
			empty += "| `" + label + "` |\n"
		}
		sectionOf(t, "../README.md", "guarantees").replace(t, empty)
	}
	for _, r := range rows {
		t.Run(strings.NewReplacer("/", "", "?", " ").Replace(r.label), func(t *testing.T) {
			l, err := lock.Open(t.Context(), r.url(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
			s := sectionOf(t, "../README.md", "guarantees")
			line := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(r.label) + "` \\|.*\n")
			s.replace(t, tableHead+line.ReplaceAllLiteralString(strings.TrimPrefix(s.text, tableHead), row(r.label, l.Guarantees())))
		})
	}
}

// redisURL starts a Redis, or skips or fails as testserver says.
func redisURL(t *testing.T) string {
	return testserver.NeedRedis(t, testserver.RedisOptions{}).URL()
}

// durableDir is a directory that is not in memory: there tokens are only
// volatile, which the table does not show.
func durableDir(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	for _, parent := range []string{os.TempDir(), cache, "."} {
		dir, err := os.MkdirTemp(parent, "interlock-docs")
		if err != nil {
			continue
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if dir, err = filepath.Abs(dir); err != nil {
			t.Fatal(err)
		}
		if l, err := lock.Open(t.Context(), "file://"+dir); err == nil {
			durable := l.Guarantees().Fencing == lock.FencingDurable
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if durable {
				return dir
			}
		}
	}
	t.Fatal("no directory on a local disk found: set TMPDIR to one")
	return ""
}

func row(label string, g lock.Guarantees) string {
	order := "none"
	if g.FIFO {
		order = "first come, first served"
	}
	return fmt.Sprintf("| `%s` | %v | %v | %s | %s to %s | %v |\n",
		label, g.Fencing, g.Ends, order, short(g.MinTTL), short(g.MaxTTL), g.Survives)
}

// short is a duration as people write it.
func short(d time.Duration) string {
	switch day := 24 * time.Hour; {
	case d >= 2*day && d%day == 0:
		return fmt.Sprintf("%d days", d/day)
	case d < time.Second && d%time.Millisecond == 0:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	}
	return d.String()
}

// TestCommandHelp compares docs/command.md with the command's own help.
func TestCommandHelp(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "run", "../cmd/interlock", "run", "--help").Output()
	if err != nil {
		t.Fatalf("interlock run --help: %v", err)
	}
	sectionOf(t, "command.md", "help").replace(t, "```text\n"+string(out)+"```\n")
}

// TestBackendPages wants the same headings, in the same order, of each page.
func TestBackendPages(t *testing.T) {
	want := []string{"How it works", "How it waits", "What breaks it", "Options"}
	for _, backend := range []string{"memory", "file", "redis"} {
		var have []string
		for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(read(t, "backends/"+backend+".md"), -1) {
			have = append(have, m[1])
		}
		if !slices.Equal(have, want) {
			t.Errorf("backends/%s.md has the headings %q, want %q", backend, have, want)
		}
	}
}

// TestParameters compares the parameters on a backend's page, and the Locker's in
// design.md, with those that a URL of the backend may have.
func TestParameters(t *testing.T) {
	first := regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")
	listed := func(page, after, until string) (names []string) {
		_, text, found := strings.Cut(read(t, page), after)
		if !found {
			return nil
		}
		text, _, _ = strings.Cut(text, until)
		for _, m := range first.FindAllStringSubmatch(text, -1) {
			for name := range strings.SplitSeq(strings.ReplaceAll(m[1], "`", ""), ", ") {
				name, _, _ = strings.Cut(name, "=")
				names = append(names, name)
			}
		}
		return names
	}
	lockers := listed("design.md", "| parameter |", "\n\n")
	for backend, url := range map[string]string{"memory": "memory://x", "file": "file:///x", "redis": "redis://127.0.0.1:1"} {
		_, err := lock.Open(t.Context(), url+"?no.such=1") // found before anything is dialled
		if !errors.Is(err, lock.ErrInvalid) {
			t.Fatalf("an unknown parameter: %v", err)
		}
		_, known, _ := strings.Cut(err.Error(), "(have ")
		want := strings.Split(strings.TrimSuffix(known, ")"), ", ")
		have := append(listed("backends/"+backend+".md", "| parameter |", "\n\n"), lockers...)
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("backends/%s.md and design.md name the parameters\n%q, a URL may have\n%q", backend, have, want)
		}
	}
}

// TestLinks wants each relative link to lead to a file, and to a heading if it
// names one.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(withoutCode(read(t, page)), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link to %s: %v", page, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s: link to %s: no such heading", page, m[1])
			}
		}
	}
}

var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

func withoutCode(page string) string { return fence.ReplaceAllString(page, "") }

// anchors returns the page's headings as a link names them.
func anchors(page string) []string {
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(withoutCode(page), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N}\s_-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}
