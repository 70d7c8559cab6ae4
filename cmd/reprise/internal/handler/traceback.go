package handler

import "strings"

// maxRaised is the maximum size of a Python exception at the beginning of an error.
const maxRaised = 256

// raised returns the exception of the last Python traceback in said, the end of a program's output. The exception is
// the line below the traceback, whose beginning may be missing.
func raised(said string) string {
	said = "\n  " + said // a syntax error begins with the file, whose indentation clean has removed
	i := strings.LastIndex(said, "\n  File \"")
	if i < 0 {
		return ""
	}
	for line := range strings.Lines(said[i+1:]) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case line == "" || strings.HasPrefix(line, " "):
		case len(line) > maxRaised:
			return strings.ToValidUTF8(line[:maxRaised], "") + " …"
		default:
			return line
		}
	}
	return ""
}
