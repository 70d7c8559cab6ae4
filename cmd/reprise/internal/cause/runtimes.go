package cause

import (
	"cmp"
	"regexp"
	"strings"
)

var (
	rustOld   = regexp.MustCompile(`^thread '.*?' panicked at '(.*)', \S+:\d+:\d+$`)
	rustNew   = regexp.MustCompile(`^thread '.*?'(?: \(\d+\))? panicked at \S+:\d+:\d+:$`)
	rustBelow = regexp.MustCompile(`^(note: |stack backtrace:|\s*$)`)
	goPanic   = regexp.MustCompile(`^(?:panic: |fatal error: )(.+?)(?: \[recovered\].*)?$`)
	elixir    = regexp.MustCompile(`^\s*\*\* \(([\w.]+)\) (.+)$`)
	erlang    = regexp.MustCompile(`^\s*(?:\*\* |escript: )?exception (?:error|exit|throw): (.+)$`)
	erlangEnd = regexp.MustCompile(`^init terminating in do_boot \(\{?(.+?)(?:,\[\{.*)?\)$`)
	erlangOf  = regexp.MustCompile(`^\{(.+?),\s*\[\{\w+,`) // an error with its stack
	swift     = regexp.MustCompile(`^(?:\S+\.swift:\d+: )?Fatal error: (?:Error raised at top level: )?(.+)$`)
	perlFrame = regexp.MustCompile(`^\t.* called at .* line \d+\.?$`)
)

// panics finds the messages of the runtimes of Rust, Go, Elixir, Erlang, Swift and Perl.
func panics(lines []string) (t trace) {
	for i, line := range lines {
		var text string
		switch m := func(e *regexp.Regexp) []string { return e.FindStringSubmatch(line) }; {
		case m(rustOld) != nil:
			text = m(rustOld)[1]
		case rustNew.MatchString(line):
			if text = until(lines[i+1:], rustBelow); strings.HasSuffix(text, "Any { .. }") && t.thrown != "" {
				text = t.thrown // a join of the thread that has panicked
			}
		case m(goPanic) != nil:
			text = m(goPanic)[1]
		case m(elixir) != nil:
			text = strings.Join(m(elixir)[1:], ": ")
		case m(erlang) != nil:
			text = m(erlang)[1]
		case m(erlangEnd) != nil:
			text = m(erlangEnd)[1]
		case strings.HasSuffix(line, " with exit value:") && i+1 < len(lines):
			if text = lines[i+1]; erlangOf.MatchString(text) {
				text = erlangOf.FindStringSubmatch(text)[1]
			}
		case m(swift) != nil && !phpPlace.MatchString(line): // PHP has the same words
			text = m(swift)[1]
		case perlFrame.MatchString(line) && i > 0 && !perlFrame.MatchString(lines[i-1]):
			text = lines[i-1]
		}
		if text != "" {
			t = trace{line: i, thrown: text}
		} else if line == "Caused by:" && i > 1 { // anyhow and eyre, which Rust programs print with "Error: "
			t = trace{line: i, thrown: strings.TrimPrefix(lastText(lines[:i]), "Error: "), root: strings.TrimLeft(lastText(block(lines[i+1:])), "0123456789: ")}
		}
	}
	return t
}

// until returns the lines above the first line that end matches.
func until(lines []string, end *regexp.Regexp) string {
	for i, line := range lines {
		if end.MatchString(line) {
			return strings.Join(lines[:i], " ")
		}
	}
	return strings.Join(lines, " ")
}

// block returns the indented lines at the beginning.
func block(lines []string) []string {
	for i, line := range lines {
		if !indented(line) {
			return lines[:i]
		}
	}
	return lines
}

var (
	compileError = regexp.MustCompile(`^(?:[^:\s]+: )?(?:[A-Za-z]:)?[^:]+:(?: line )?\d+: (?:error: (.+)|(syntax error.*?)(?: \(SyntaxError\))?)$`)
	compileMark  = regexp.MustCompile(`^\s+\| *[\^~ ]*\^[\^~ ]*(.+)$`) // of Ruby from 3.4 on, with the error
	compileCount = regexp.MustCompile(`^\d+ errors?$`)
)

// compiled finds the first error of javac, and of a script that Ruby or bash cannot read. Others are often its consequences.
func compiled(lines []string) (t trace) {
	for i, line := range lines {
		switch m := compileError.FindStringSubmatch(line); {
		case m != nil:
			t.line, t.thrown = i, cmp.Or(t.thrown, m[1], m[2])
		case t.thrown == "":
		case compileMark.MatchString(line) && strings.HasSuffix(t.thrown, " found"):
			t = trace{line: i, thrown: "syntax error: " + compileMark.FindStringSubmatch(line)[1]}
		case caret.MatchString(line) || compileCount.MatchString(line):
			t.line = i
		}
	}
	return t
}
