// Package cause finds the cause of a failure in the output of a program or in the body of a response, whatever language has
// written it. Lists and error groups show the cause, and the output follows as detail. The package imports the standard
// library and an HTML parser only.
package cause

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/brief"
)

// maxText is the maximum size of an error message within a cause, in bytes.
const maxText = 256

// OfOutput returns the cause of the failure of a program, in one line: the error of the last stack trace in its output,
// with the root of its chain of causes, or otherwise the last line. A line that is a JSON object is replaced with its
// message.
func OfOutput(output string) string {
	lines := split(output)
	if c := traced(lines); c != "" {
		return c
	}
	for i := len(lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(lines[i]); line != "" && !hint.MatchString(line) {
			return short(orMessage(line))
		}
	}
	return short(lastText(lines))
}

// hint matches lines below an error that are not its cause.
var hint = regexp.MustCompile(`^(Node\.js v\d|Bun v\d|\(Use .node --trace|note: |npm ERR! (A complete log|\s*/)|exit status \d+$|[{}\])]+;?$` +
	`|BEGIN failed--|Compilation failed in require|Execution of .* aborted due to|Crash dump is being written|make(\[\d+\])?: \*\*\* ` +
	`|(Aborted|Illegal instruction|Segmentation fault|Trace/breakpoint trap)( \(core dumped\))?$)`)

// traced returns the cause according to a stack trace or to a message of a runtime. It returns "" if there is none.
func traced(lines []string) string {
	var last trace
	for _, find := range []func([]string) trace{python, pythonGroup, php, ruby, frames, panics, headed, compiled} {
		if t := find(lines); t.thrown != "" && t.line >= last.line {
			last = t
		}
	}
	thrown, root := short(last.thrown), short(last.root)
	if root == "" || strings.Contains(thrown, root) {
		return thrown
	}
	return thrown + cmp.Or(last.link, "; caused by ") + root
}

// trace is an error that a runtime has reported.
type trace struct {
	line         int    // at or below which the trace ends
	thrown, root string // root is the innermost cause, or ""
	link         string // the words before root; "": caused by
}

func split(text string) []string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimPrefix(line, "[error] "), "[ERROR] ") // sbt, Maven
	}
	return lines
}

// short returns the text in one line of at most maxText bytes.
func short(text string) string {
	return brief.Excerpt(strings.Join(strings.Fields(text), " "), maxText)
}

func indented(line string) bool { return strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") }

// python finds the exception of the last traceback. The exception is the first line below the traceback that is not
// indented. The beginning of the traceback may be missing.
func python(lines []string) (t trace) {
	link := ""
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "The above exception was the direct cause") {
			link = "; caused by "
		} else if strings.HasPrefix(lines[i], "During handling of the above exception") {
			link = "; while handling "
		}
		if !strings.HasPrefix(strings.TrimLeft(lines[i], " |"), `File "`) {
			continue
		}
		for i < len(lines) && (lines[i] == "" || indented(lines[i]) || strings.HasPrefix(lines[i], `File "`)) {
			i++
		}
		if i == len(lines) {
			break
		}
		next := trace{line: i, thrown: lines[i]}
		if link != "" {
			next.root, next.link = cmp.Or(t.root, t.thrown), link
		}
		t, link = next, ""
	}
	return t
}

// margin matches the lines that Python draws beside the exceptions of a group.
var margin = regexp.MustCompile(`^\s*(\+-\+-+ \d+ -+|\+-+( \d+ -+)?$|[|+] ?)`)

// pythonGroup finds the last exception group, and the first exception in it that is not itself a group.
func pythonGroup(lines []string) (t trace) {
	from := len(lines) - 1
	for from >= 0 && !strings.HasPrefix(strings.TrimLeft(lines[from], " "), "+ Exception Group Traceback") {
		from--
	}
	if from < 0 {
		return t
	}
	var inside []string
	for i, line := range lines[from:] {
		line = margin.ReplaceAllString(line, "")
		if inside = append(inside, line); i == 0 || !strings.HasSuffix(line, "Traceback (most recent call last):") && i < len(lines)-1-from {
			continue
		}
		found := python(inside)
		switch {
		case found.thrown == "":
			continue
		case t.thrown == "":
			t.thrown = found.thrown
		case t.root == "" && !strings.Contains(found.thrown, " sub-exception"):
			t.root = found.thrown
		}
		t.line, inside = from+i, nil
	}
	return t
}

var (
	phpError = regexp.MustCompile(`^(?:\[[^\]]*\] )?(?:PHP )?(?:Fatal|Parse|Recoverable fatal|Catchable fatal) error:\s+(?:Uncaught )?(.+)$`)
	phpNext  = regexp.MustCompile(`^Next (.+)$`)
	phpPlace = regexp.MustCompile(` in \S.*?(:\d+| on line \d+)$`)
)

// php finds the last fatal error. PHP prints the innermost exception first.
func php(lines []string) (t trace) {
	for i, line := range lines {
		if m := phpError.FindStringSubmatch(line); m != nil {
			t = trace{line: i, thrown: phpPlace.ReplaceAllString(m[1], "")}
		} else if m := phpNext.FindStringSubmatch(line); m != nil && t.thrown != "" {
			if t.root == "" {
				t.root = t.thrown
			}
			t.line, t.thrown = i, phpPlace.ReplaceAllString(m[1], "")
		}
	}
	return t
}

var rubyError = regexp.MustCompile(`^\S.*?:\d+:in [` + "`" + `'].*?': (.*) \(([A-Z][\w:]*)\)$`)

// ruby finds an uncaught exception. Ruby prints the chain of its causes below the exception.
func ruby(lines []string) (t trace) {
	for i, line := range lines {
		if m := rubyError.FindStringSubmatch(line); m != nil {
			text := m[2] + ": " + m[1]
			if t.thrown == "" {
				t.thrown = text
			} else {
				t.root = text
			}
			t.line = i
		}
	}
	return t
}

var (
	frame  = regexp.MustCompile(`^(…$|\s+(at\s|\.\.\. \d+ |--- End of ))`) // … replaces lines that were not kept
	thrown = regexp.MustCompile(`^(?:Exception in thread ".*?" |Unhandled exception[.:] |Unhandled Exception: |(?:error: )?Uncaught (?:\(in promise\) )?)(.+)$`)
	rooted = regexp.MustCompile(`^\s*(?:Caused by: |---> |\[cause\]: )(.+?)(?: \{)?$`)
	others = regexp.MustCompile(`^\s*\[errors\]: \[$`) // of an AggregateError
)

// frames finds the error above the last stack trace in the format of Java, .NET and JavaScript: lines that begin with at.
func frames(lines []string) (t trace) {
	for i, line := range lines {
		switch m := rooted.FindStringSubmatch(line); {
		case m != nil && t.thrown != "":
			t.line, t.root = i, m[1]
		case others.MatchString(line) && t.thrown != "" && i+1 < len(lines):
			t.line, t.root = i, strings.TrimSpace(lines[i+1])
		case m != nil && i > 0: // .NET prints the inner exceptions above the frames
			t = trace{line: i, thrown: named(lines[i-1]), root: m[1]}
		case frame.MatchString(line) && i > 0 && !frame.MatchString(lines[i-1]) && !rooted.MatchString(lines[i-1]) && strings.TrimSpace(lines[i-1]) != "":
			if h := header(lines[:i]); h != "" {
				t = trace{line: i, thrown: h}
			}
		}
	}
	return t
}

// typed matches the first line of an error that has the name of a type.
var typed = regexp.MustCompile(`^(?:Exception in thread ".*?" |Unhandled exception[.:] |Unhandled Exception: |(?:error: )?Uncaught )|^[\w.$]*(?:Error|Exception|Rejection|Throwable|Failure|Fault)\b.*?(?::|$)`)

// header returns the error at the end of lines. An error with several lines begins with the name of a type.
func header(lines []string) string {
	for i := len(lines) - 1; i >= 0 && i >= len(lines)-20 && !frame.MatchString(lines[i]); i-- {
		if typed.MatchString(lines[i]) {
			if slices.ContainsFunc(lines[i:], caret.MatchString) { // Deno marks the place below the error
				return named(lines[i])
			}
			return named(strings.Join(lines[i:], " "))
		}
	}
	if last := lines[len(lines)-1]; !indented(last) {
		return named(last)
	}
	return ""
}

// named returns an error without the words of the runtime before it.
func named(line string) string {
	line = strings.TrimSpace(line)
	if m := thrown.FindStringSubmatch(line); m != nil {
		return m[1]
	}
	return line
}

func lastText(lines []string) string {
	for i := len(lines) - 1; i >= 0; i-- {
		if text := strings.TrimSpace(lines[i]); text != "" {
			return text
		}
	}
	return ""
}

var (
	below = regexp.MustCompile(`^(stack traceback:|\s+while executing|CallStack \(from |Backtrace:|Stack trace:)`) // Lua, Tcl, Haskell, others
	caret = regexp.MustCompile(`^\s*\^+$`)
)

// headed finds the line above a trace that has a title, or below the position that JavaScript marks with a caret.
func headed(lines []string) (t trace) {
	for i, line := range lines {
		if below.MatchString(line) && i > 0 {
			if text := lastText(lines[:i]); text != "" && !phpPlace.MatchString(text) {
				t = trace{line: i, thrown: text}
			}
		} else if caret.MatchString(line) {
			for _, next := range lines[i+1:] {
				if next == "" {
					continue
				}
				if !indented(next) {
					t = trace{line: i, thrown: next}
				}
				break
			}
		}
	}
	return t
}
