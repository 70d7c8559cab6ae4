package framework

import "strings"

// javaKind returns the innermost cause in a stack trace of Java, in one line. Spring wraps each exception of a listener, so the
// outermost exception is the same for all failures.
func javaKind(stack string) string {
	kind := ""
	for line := range strings.Lines(stack) {
		line = strings.TrimSpace(line)
		if cause, found := strings.CutPrefix(line, "Caused by: "); found && cause != "" {
			kind = cause
		}
	}
	if kind == "" {
		kind, _, _ = strings.Cut(strings.TrimSpace(stack), "\n")
	}
	return strings.TrimSpace(kind)
}
