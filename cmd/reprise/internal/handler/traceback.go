package handler

import "strings"

// maxRaised is the maximum number of bytes of a Python exception at the beginning of an error.
const maxRaised = 256

// exception returns the exception of the last Python traceback in stderr, or "" if there is no traceback. The exception
// is the first line below the traceback that is not indented. The beginning of the traceback may be missing, because
// stderr is only the end of the output.
func exception(stderr string) string {
	stderr = "\n  " + stderr // a syntax error begins with a File line, whose indentation clean has removed
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
