package reprise

import "strings"

// logged is an error's text as it is logged: of a panic, what it was and where, in one
// line. The stack is many, and is on the message for whoever looks into it.
func logged(text string) string {
	what, rest, found := strings.Cut(text, "\n\n")
	if !found || !strings.HasPrefix(text, panicPrefix) {
		return text
	}
	stack, more, _ := strings.Cut(rest, "\n\n") // what was found out after it
	lines := strings.Split(stack, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		place, isFrame := strings.CutPrefix(lines[i+1], "\t")
		if !isFrame {
			break
		}
		if strings.HasPrefix(lines[i], "runtime.") { // what a nil pointer goes through
			continue
		}
		place, _, _ = strings.Cut(place, " +0x")
		what += " (" + place + ")"
		if more = strings.TrimSpace(more); more != "" {
			what += "; " + more
		}
		return what
	}
	return text
}
