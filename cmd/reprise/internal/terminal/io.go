package terminal

import (
	"io"
	"os"
	"strconv"
)

// IO provides the streams and variables of a process.
type IO struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Lookup func(string) (string, bool) // looks up environment variables
}

// Process returns the IO of this process.
func Process() IO {
	return IO{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Lookup: os.LookupEnv}
}

// Result prints the result of a command, as JSON or as text.
func (s IO) Result(asJSON bool, value any, text string) error {
	if asJSON {
		return WriteJSON(s.Stdout, value)
	}
	_, err := io.WriteString(s.Stdout, text)
	return err
}

// Width returns the maximum width of a line: the width of the terminal, or COLUMNS without a terminal, but at
// least 40. 0 means no limit.
func (s IO) Width() int {
	if width := Width(s.Stdout); width > 0 {
		return max(width, 40)
	}
	if text, ok := s.Lookup("COLUMNS"); ok {
		if width, err := strconv.Atoi(text); err == nil && width > 0 {
			return max(width, 40)
		}
	}
	return 0
}
