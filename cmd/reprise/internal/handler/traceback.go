package handler

import "strings"

// maxRaised is how much of what was raised is said before all else.
const maxRaised = 256

// raised is what Python has raised, if said are a program's last words: the line
// below the last traceback, whose beginning may be lost.
func raised(said string) string {
	said = "\n  " + said // a syntax error begins with the file; clean has taken the blanks away
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
