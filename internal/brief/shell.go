package brief

import (
	"regexp"
	"strings"
)

// Shell returns a name as one word of a shell. Names come from others, and users paste commands that contain them.
func Shell(name string) string {
	if plainWord.MatchString(name) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

var plainWord = regexp.MustCompile(`^[\w./:][\w./:=-]*$`)
