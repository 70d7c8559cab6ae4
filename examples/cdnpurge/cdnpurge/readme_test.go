package cdnpurge_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// compare compares the figures between two marks in a file with the measured figures. With -update, it writes the
// measured figures to the file.
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
		t.Fatalf("%s must contain the marks %q and %q", file, begin, end)
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+figures+end+after), 0o644); err != nil {
			t.Error(err)
		}
		return
	}
	if old != figures {
		t.Errorf("%s contains other figures (run the test with -update to replace them):\n%s", file, old)
	}
}
