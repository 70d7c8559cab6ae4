package docstest

import (
	"slices"
	"strings"
	"testing"
)

func TestParseFindsFaults(t *testing.T) {
	for text, want := range map[string]string{
		"```\nx\n```":                                 `line 1: the block has the language ""`,
		"```sh\nx":                                    "has no end",
		"a\n\n    go run .\n":                         "line 3: indented code",
		"<!-- not run -->\n```sh\nx\n```":             "line 1: not run needs a text",
		"<!-- not run: why -->\nno block":             "line 2: the comment above",
		"<!-- output -->\n```text\nx\n```":            "line 2: output is a text block after commands",
		"<!-- until: a; b -->\n```sh\nx\n```":         "line 2: 1 commands, and 2 texts",
		"```text\n$ go run .\n```":                    "line 1: commands are for a console block",
		"```sh\n# nothing\n```":                       "line 1: no command",
		"- a list\n\n  ```sh\n  x\n  ```\n\nand text": "",
	} {
		blocks, faults := parse(text)
		_, more := steps(blocks)
		if got := strings.Join(append(faults, more...), "\n"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestCommands(t *testing.T) {
	blocks, _ := parse("```console\n$ one \\\n    more\nout 1\n\nout 2\n$ two\n```\n<!-- until: Working -->\n```sh\n# why\nthree   # and so on\n```\n<!-- output -->\n```text\nout 3\n```")
	all, faults := steps(blocks)
	if len(faults) > 0 || len(all) != 3 {
		t.Fatalf("%+v %v", all, faults)
	}
	if s := all[0]; s.text != "one \\\n    more" || !slices.Equal(s.output, []string{"out 1", "", "out 2"}) || s.line != 2 {
		t.Errorf("%+v", s)
	}
	if s := all[2]; s.text != "three   # and so on" || s.until != "Working" || !slices.Equal(s.output, []string{"out 3"}) {
		t.Errorf("%+v", s)
	}
}

func TestMissing(t *testing.T) {
	printed := "17 jobs in 2.3s\nid 0fe3aa91 done\n  parked  4\n"
	for documented, want := range map[string]bool{
		"20 jobs in 12s": true, "id c0ffee00 done": true, "parked 12": true, "17 … in 1m0s": true, "11:12:13 differs": true, "": true,
		"jobs": false, "parked": false, "lost 4": false,
	} {
		if got := len(missing([]string{documented}, printed)) == 0; got != want {
			t.Errorf("%q: %v", documented, got)
		}
	}
}
