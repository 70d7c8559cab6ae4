package docstest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// block is a code block of a document, or a setup comment.
type block struct {
	line   int
	lang   string // "setup" for a comment
	lines  []string
	notRun string   // reason why the block is not run; "": run
	until  []string // output after which a command continues in the background
	output bool     // the block is the output of the commands above
}

// step is a command of a document.
type step struct {
	line   int
	text   string
	until  string
	output []string // documented output of the command, or of its block
	block  *block
}

var (
	directive = regexp.MustCompile(`^<!-- (not run|until|output)(?:: (.+?))? -->$`)
	languages = []string{
		"sh", "console", "text", "go", "yaml", "json", "html", "toml", "bash", "ini", "dockerfile",
		"python", "javascript", "php", "ruby", "java", "csharp",
	}
)

// parse returns the blocks and the errors of a document.
func parse(text string) (blocks []*block, faults []string) {
	fault := func(line int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("line %d: "+format, append([]any{line}, args...)...))
	}
	var next, open *block // next has the directives for the next block; open is the current block
	before := ""          // previous line
	for i, line := range strings.Split(text, "\n") {
		n := i + 1
		trimmed := strings.TrimSpace(line)
		switch found := directive.FindStringSubmatch(line); {
		case open != nil && (open.lang == "setup" && trimmed == "-->" || open.lang != "setup" && trimmed == "```"):
			blocks, open = append(blocks, open), nil
		case open != nil:
			open.lines = append(open.lines, line)
		case line == "<!-- setup":
			open = &block{line: n, lang: "setup"}
		case found != nil:
			if next == nil {
				next = &block{}
			}
			switch {
			case found[1] == "output":
				next.output = true
			case found[2] == "":
				fault(n, "%s must have a text: <!-- %s: TEXT -->", found[1], found[1])
			case found[1] == "not run":
				next.notRun = found[2]
			default:
				next.until = strings.Split(found[2], "; ")
			}
		case strings.HasPrefix(trimmed, "```"):
			open, next = next, nil
			if open == nil {
				open = &block{}
			}
			open.line, open.lang = n, strings.TrimPrefix(trimmed, "```")
			if !slices.Contains(languages, open.lang) {
				fault(n, "language must be one of %s: got %q", strings.Join(languages, ", "), open.lang)
			}
		case next != nil && trimmed != "":
			fault(n, "a comment for a code block must precede a code block")
			next = nil
		case strings.HasPrefix(line, "    ") && before == "":
			fault(n, "code must be in a block between ``` lines: got indented code")
		}
		if before = line; trimmed == "" {
			before = ""
		}
	}
	if open != nil || next != nil {
		fault(strings.Count(text, "\n"), "block or comment is not closed")
	}
	return blocks, faults
}

// steps returns the commands and the errors of a document.
func steps(blocks []*block) (all []step, faults []string) {
	for _, b := range blocks {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Sprintf("line %d: "+format, append([]any{b.line}, args...)...))
		}
		switch {
		case b.output:
			if b.lang != "text" || len(all) == 0 {
				fault("output must be a text block after commands")
				continue
			}
			last := &all[len(all)-1]
			last.output = append(last.output, b.lines...)
		case b.notRun != "":
		case b.lang == "setup":
			all = append(all, step{line: b.line, text: strings.Join(b.lines, "\n"), block: b})
		case b.lang == "sh", b.lang == "console":
			mine := commands(b)
			others := len(mine) - len(b.until)
			if others < 0 {
				fault("until must not have more texts than commands: got %d commands, %d texts", len(mine), len(b.until))
				continue
			}
			for i, text := range b.until {
				mine[others+i].until = text
			}
			if len(mine) == 0 {
				fault("block must contain a command")
			}
			all = append(all, mine...)
		case b.lang == "text":
			for _, line := range b.lines {
				if strings.HasPrefix(line, "$ ") {
					fault("commands must be in a console block")
					break
				}
			}
		}
	}
	return all, faults
}

// commands returns the commands of a block.
func commands(b *block) (all []step) {
	continued := false
	for i, line := range b.lines {
		if b.lang == "console" && !continued {
			command, is := strings.CutPrefix(line, "$ ")
			if !is {
				if len(all) > 0 {
					all[len(all)-1].output = append(all[len(all)-1].output, line)
				}
				continue
			}
			line = command
		}
		switch trimmed := strings.TrimSpace(line); {
		case continued:
			all[len(all)-1].text += "\n" + line
		case trimmed == "", strings.HasPrefix(trimmed, "#"):
			continue
		default:
			all = append(all, step{line: b.line + 1 + i, text: line, block: b})
		}
		continued = strings.HasSuffix(line, "\\")
	}
	return all
}

// These expressions match parts of a line that differ between runs.
var (
	clock    = regexp.MustCompile(`^\d\d:\d\d:\d\d\b`)
	idents   = regexp.MustCompile(`\b[0-9a-f]{6,}\b|\b[A-Z2-7]{12,}\b`)
	numerals = regexp.MustCompile(`(\d+([.,:-]\d+)*(ns|µs|ms|s|m|h|d|w)?)+`)
	ages     = regexp.MustCompile(`\bnow\b|\b0 ago\b`)
	bars     = regexp.MustCompile(`[█▁-▇·]{3,}`)
	spaces   = regexp.MustCompile(`\s+`)
)

func loose(line string) string {
	line = idents.ReplaceAllString(line, "0")
	line = numerals.ReplaceAllString(line, "0")
	line = ages.ReplaceAllString(line, "0 ago")
	line = bars.ReplaceAllString(line, "|")
	return strings.TrimSpace(spaces.ReplaceAllString(line, " "))
}

// missing returns the documented lines that are not in printed.
func missing(documented []string, printed string) (lines []string) {
	var have []string
	for line := range strings.Lines(printed) {
		have = append(have, loose(line))
	}
	for _, line := range documented {
		want := loose(line)
		if want == "" || clock.MatchString(line) {
			continue
		}
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*") + "$")
		if !slices.ContainsFunc(have, pattern.MatchString) {
			lines = append(lines, line)
		}
	}
	return lines
}
