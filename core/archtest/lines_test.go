package archtest

import (
	"bufio"
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const maxColumns = 120

// longLines names files that may have longer lines for now. What has none any more has to go.
//
//go:embed long_lines.txt
var longLines string

// TestLinesAreShort measures Go, C and Markdown; a tab counts as one column.
func TestLinesAreShort(t *testing.T) {
	root := filepath.Join("..", "..")
	allowed := strings.Fields(longLines)
	err := filesOf(root, func(path, rel string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		long := tooLong(text, filepath.Ext(rel) == ".md")
		switch i := slices.Index(allowed, rel); {
		case i < 0:
			for _, line := range long {
				t.Errorf("%s:%s", rel, line)
			}
		case len(long) == 0:
			t.Logf("%s has no long line any more: take it off core/archtest/long_lines.txt", rel)
		}
		return nil
	}, ".go", ".c", ".h", ".md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rel := range allowed {
		if _, err := os.Stat(filepath.Join(root, rel)); err != nil {
			t.Logf("%s is gone: take it off core/archtest/long_lines.txt", rel)
		}
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
