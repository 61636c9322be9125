package file

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// golden returns the cells of a table of docs/format.md, without their backquotes.
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
		cells := strings.Split(strings.Trim(line, "| \r"), " | ")
		for i := range cells {
			cells[i] = strings.Trim(cells[i], "`")
		}
		rows = append(rows, cells)
	}
	if len(rows) == 0 {
		t.Fatalf("the table %q of docs/format.md is empty", table)
	}
	return rows
}

func unquoted(t *testing.T, cell string) string {
	t.Helper()
	s, err := strconv.Unquote(cell)
	if err != nil {
		t.Fatalf("docs/format.md: %s is no Go string", cell)
	}
	return s
}

func TestFormatNames(t *testing.T) {
	for _, row := range golden(t, "file names") {
		if got := filepath.Base((&backend{dir: "/d"}).path(unquoted(t, row[0]))); got != row[1] {
			t.Errorf("the file of %s is %s, docs/format.md says %s", row[0], got, row[1])
		}
	}
}

func TestFormatRecords(t *testing.T) {
	for _, row := range golden(t, "file records") {
		token, err := strconv.ParseInt(row[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r := record{token: token, name: unquoted(t, row[1]), owner: unquoted(t, row[2])}
		slot, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		want := row[3] + strings.Repeat(" ", 4096-1-len(row[3])) + "\n"
		if string(slot) != want {
			t.Errorf("the record is\n%s\ndocs/format.md says\n%s", strings.TrimRight(string(slot), " \n"), row[3])
		}
		if got, ok := decode([]byte(want)); !ok || got != r {
			t.Errorf("docs/format.md's record is read as %+v, %v", got, ok)
		}
	}
}
