package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

// interactive reports whether the command can ask the user.
func (s IO) interactive() bool { return terminal.Is(s.Stdin) && terminal.Is(s.Stderr) }

// confirm asks a question. Only y and yes, in upper or lower case, mean yes.
func confirm(ctx context.Context, streams IO, question string) (bool, error) {
	fmt.Fprintf(streams.Stderr, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // the read cannot be interrupted, so after a cancellation the goroutine may run until the process exits
		line, _ := bufio.NewReader(streams.Stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case a := <-answer:
		if a == "y" || a == "yes" {
			return true, nil
		}
		return false, stoppedError{errors.New("canceled; no changes made")}
	case <-ctx.Done():
		return false, stoppedError{errors.New("interrupted; no changes made")}
	}
}
