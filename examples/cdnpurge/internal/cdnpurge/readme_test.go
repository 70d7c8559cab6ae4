package cdnpurge_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// compare holds the figures between two marks in a file against those measured;
// with -update it writes them there.
func compare(t *testing.T, file, mark, figures string) {
	t.Helper()
	t.Logf("%s:\n%s", mark, figures)
	begin, end := fmt.Sprintf("<!-- %s -->\n", mark), fmt.Sprintf("<!-- end of %s -->\n", mark)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	old, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for figures: write %q and %q", file, begin, end)
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+figures+end+after), 0o644); err != nil {
			t.Error(err)
		}
		return
	}
	if old != figures {
		t.Errorf("%s says otherwise; if that is to be so, run the test with -update:\n%s", file, old)
	}
}
