package handler

import "strings"

// maxRaised is the maximum size of a Python exception at the beginning of an error.
const maxRaised = 256

// exception returns the exception of the last Python traceback in stderr, the end of a program's output. The
// exception is the line below the traceback. The beginning of the traceback may be missing.
func exception(stderr string) string {
	stderr = "\n  " + stderr // a syntax error begins with the file, whose indentation clean has removed
	i := strings.LastIndex(stderr, "\n  File \"")
	if i < 0 {
		return ""
	}
	for line := range strings.Lines(stderr[i+1:]) {
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
