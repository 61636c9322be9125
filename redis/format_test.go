package redis

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
)

// golden returns the cells of a table of docs/format.md.
func golden(t *testing.T, table string) [][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)<!-- golden: ` + table + ` -->\r?\n(.*?)<!-- /golden -->`).FindSubmatch(page)
	if m == nil {
		t.Fatalf("docs/format.md has no table %q", table)
	}
	var rows [][]string
	for _, line := range strings.Split(strings.TrimSpace(string(m[1])), "\n")[2:] {
		rows = append(rows, strings.Split(strings.Trim(strings.ReplaceAll(line, "`", ""), "| \r"), " | "))
	}
	if len(rows) == 0 {
		t.Fatalf("the table %q of docs/format.md is empty", table)
	}
	return rows
}

func goldenName(t *testing.T, cell string) string {
	t.Helper()
	s, err := strconv.Unquote(cell)
	if err != nil {
		t.Fatalf("docs/format.md: %s is no Go string", cell)
	}
	return s
}

func TestFormatNames(t *testing.T) {
	b := &backend{prefix: defaultPrefix}
	for _, row := range golden(t, "redis names") {
		if got := b.keysOf(goldenName(t, row[0])).lock; got != row[1] {
			t.Errorf("the key of %s is %s, docs/format.md says %s", row[0], got, row[1])
		}
	}
	c := &counters{prefix: defaultPrefix, cluster: true}
	for _, row := range golden(t, "redis cluster") {
		if got := c.key(b.keysOf(goldenName(t, row[0])).lock); got != row[1] {
			t.Errorf("the counter of %s is %s, docs/format.md says %s", row[0], got, row[1])
		}
	}
}

// TestRightsOnPage compares what docs/backends/redis.md and the package comment
// ask for with the rights that TestRights finds to be enough, and each needed.
func TestRightsOnPage(t *testing.T) {
	for _, file := range []string{"../docs/backends/redis.md", "redis.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`~app:\* &app:\* ([^\n]*\n[^\n]*)\n`).FindSubmatch(text)
		if m == nil {
			t.Errorf("%s names no rights", file)
			continue
		}
		have := regexp.MustCompile(`\+\w+`).FindAllString(string(m[1]), -1)
		want := slices.Clone(rights)
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s names the rights\n%q, tested are\n%q", file, have, want)
		}
	}
}

// The acquisitions of docs/format.md.
var (
	holder = lock.Request{Name: "sku:42", ID: "J6PJ2QKX5V7MZ4T3N6RABCDEFG", TTL: 10 * time.Second, Owner: "web-1:4711"}
	waiter = lock.Request{
		Name: "sku:42", ID: "Q3WF7YHB2LKD5C6XTE4MNOPQRS", TTL: 10 * time.Second, Owner: "web-2:4712",
		Wait: true, Wake: func(time.Duration) {},
	}
)

func TestFormatKeys(t *testing.T) {
	s := startServer(t)
	b := openBackend(t, s.URL())
	if _, err := b.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	g, err := b.Acquire(t.Context(), waiter)
	if !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	compareKeys(t, s.admin(), golden(t, "redis keys"))
	if err := g.Lease.Release(t.Context()); err != nil && !errors.Is(err, lock.ErrLost) {
		t.Error(err)
	}
}

func TestFormatCounter(t *testing.T) {
	s := startServer(t)
	b := openBackend(t, s.url("?fencing=counter"))
	if _, err := b.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	compareKeys(t, s.admin(), golden(t, "redis counter"))
}

// compareKeys compares all that is on the server with a table's rows of key,
// type, content and life.
func compareKeys(t *testing.T, admin *goredis.Client, rows [][]string) {
	t.Helper()
	want := make(map[string][]string)
	for _, row := range rows {
		want[row[0]] = row
	}
	have := residue(t, admin, "*")
	slices.Sort(have)
	if documented := slices.Sorted(maps.Keys(want)); !slices.Equal(have, documented) {
		t.Errorf("the server has the keys\n%q, docs/format.md says\n%q", have, documented)
	}
	for _, key := range have {
		kind, err := admin.Type(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if row := want[key]; row != nil {
			if kind != row[1] {
				t.Errorf("%s is a %s, docs/format.md says %s", key, kind, row[1])
			}
			if text := contentOf(t, admin, key, kind); !pattern(row[2]).MatchString(text) {
				t.Errorf("%s has\n%s, docs/format.md says\n%s", key, text, row[2])
			}
			checkLife(t, admin, key, row[3])
		}
	}
}

func contentOf(t *testing.T, admin *goredis.Client, key, kind string) string {
	t.Helper()
	var parts []string
	switch kind {
	case "string":
		text, err := admin.Get(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, text)
	case "zset":
		members, err := admin.ZRangeWithScores(t.Context(), key, 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range members {
			parts = append(parts, fmt.Sprintf("%s with score %.0f", m.Member, m.Score))
		}
	case "hash":
		fields, err := admin.HGetAll(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		for field, value := range fields {
			parts = append(parts, field+": "+value)
		}
	}
	return strings.Join(parts, ", ")
}

// pattern makes an expression of a cell: times are of this century.
func pattern(cell string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.NewReplacer(
		"<µs>", `\d{16}`, "<ms>", `\d{13}`, "<channel>", `[A-Z2-7]{26}`,
	).Replace(regexp.QuoteMeta(cell)) + "$")
}

func checkLife(t *testing.T, admin *goredis.Client, key, cell string) {
	t.Helper()
	left, err := admin.PTTL(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	if cell == "for ever" {
		if left >= 0 {
			t.Errorf("%s lives for %v, docs/format.md says for ever", key, left)
		}
		return
	}
	most, err := time.ParseDuration(strings.ReplaceAll(cell, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	if left <= 0 || left > most || left < most-5*time.Second {
		t.Errorf("%s lives for %v, docs/format.md says %v", key, left, most)
	}
}
