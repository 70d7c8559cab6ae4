package docstest

import (
	"slices"
	"strings"
	"testing"
)

func TestParseReportsErrors(t *testing.T) {
	for text, want := range map[string]string{
		"```\nx\n```":                                 "line 1: language must be",
		"```sh\nx":                                    "block or comment is not closed",
		"a\n\n    go run .\n":                         "line 3: code must be in a block",
		"<!-- not run -->\n```sh\nx\n```":             "line 1: not run must have a text",
		"<!-- not run: why -->\nno block":             "line 2: a comment for a code block",
		"<!-- output -->\n```text\nx\n```":            "line 2: output must be a text block after commands",
		"<!-- until: a; b -->\n```sh\nx\n```":         "got 1 commands, 2 texts",
		"```text\n$ go run .\n```":                    "line 1: commands must be in a console block",
		"```sh\n# nothing\n```":                       "line 1: block must contain a command",
		"- a list\n\n  ```sh\n  x\n  ```\n\nand text": "",
	} {
		blocks, faults := parse(text)
		_, more := steps(blocks)
		if got := strings.Join(append(faults, more...), "\n"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q: got errors %s, want %s", text, got, want)
		}
	}
}

func TestStepsHaveOutput(t *testing.T) {
	blocks, _ := parse("```console\n$ one \\\n    more\nout 1\n\nout 2\n$ two\n```\n<!-- until: Working -->\n```sh\n# why\nthree   # and so on\n```\n<!-- output -->\n```text\nout 3\n```")
	all, faults := steps(blocks)
	if len(faults) > 0 || len(all) != 3 {
		t.Fatalf("got steps %+v, errors %v, want none", all, faults)
	}
	if s := all[0]; s.text != "one \\\n    more" || !slices.Equal(s.output, []string{"out 1", "", "out 2"}) || s.line != 2 {
		t.Errorf("first step: got %+v, want two lines of text with three lines of output, at line 2", s)
	}
	if s := all[2]; s.text != "three   # and so on" || s.until != "Working" || !slices.Equal(s.output, []string{"out 3"}) {
		t.Errorf("third step: got %+v, want \"three   # and so on\", until Working", s)
	}
}

func TestMissingIgnoresVariableParts(t *testing.T) {
	printed := "17 jobs in 2.3s\nid 0fe3aa91 done\n  parked  4\n"
	for documented, want := range map[string]bool{
		"20 jobs in 12s": true, "id c0ffee00 done": true, "parked 12": true, "17 … in 1m0s": true, "11:12:13 differs": true, "": true,
		"jobs": false, "parked": false, "lost 4": false,
	} {
		if got := len(missing([]string{documented}, printed)) == 0; got != want {
			t.Errorf("line %q: got printed %v, want %v", documented, got, want)
		}
	}
}
