package archtest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxColumns = 120
	maxLines   = 400 // of a file in Go, tests too
)

// TestLinesAreShort measures what is written by hand in Go, C and Markdown; a tab counts as one
// column. A file in Go is short, too.
func TestLinesAreShort(t *testing.T) {
	err := filesOf(filepath.Join("..", ".."), func(path, rel string) error {
		text, err := os.ReadFile(path)
		if err != nil || bytes.HasPrefix(text, []byte("// Code generated ")) {
			return err
		}
		if n := bytes.Count(text, []byte("\n")); n > maxLines && filepath.Ext(rel) == ".go" {
			t.Errorf("%s: %d lines, at most %d are allowed", rel, n, maxLines)
		}
		for _, line := range tooLong(text, filepath.Ext(rel) == ".md") {
			t.Errorf("%s:%s", rel, line)
		}
		return nil
	}, ".go", ".c", ".h", ".md")
	if err != nil {
		t.Fatal(err)
	}
}

// tooLong lists the lines that are. Rows of Markdown's tables cannot be broken, nor can what has
// no blank, as an address.
func tooLong(text []byte, markdown bool) (found []string) {
	scanner := bufio.NewScanner(bytes.NewReader(text))
	scanner.Buffer(nil, len(text)+1)
	for n := 1; scanner.Scan(); n++ {
		line := strings.TrimSpace(scanner.Text())
		columns := utf8.RuneCount(scanner.Bytes())
		table := markdown && strings.HasPrefix(line, "|")
		if columns > maxColumns && !table && strings.ContainsAny(line, " \t") {
			found = append(found, fmt.Sprintf("%d: %d columns, at most %d are allowed", n, columns, maxColumns))
		}
	}
	return found
}

func TestTooLong(t *testing.T) {
	long := strings.Repeat("é ", maxColumns/2) + "é"
	for text, want := range map[string]int{
		strings.Repeat("é", maxColumns) + "\n": 0,
		long:                                   1,
		"a\n" + long + "\n" + long:             2,
		"| " + long:                            0,
		strings.Repeat("a", 2*maxColumns):      0,
	} {
		if found := tooLong([]byte(text), true); len(found) != want {
			t.Errorf("%q: %v", text, found)
		}
	}
}
