package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
)

// ErrNoAnswer is returned if standard input has no answer, for example in a cron job.
var ErrNoAnswer = exit.Stopped(errors.New("no answer; no changes made (--yes confirms)"))

// Confirm asks a question. Only y and yes, in upper or lower case, mean yes. The answer can also come from a pipe. Each
// action on messages that flags select calls confirm, unless --yes is set.
func Confirm(ctx context.Context, streams IO, question string) (bool, error) {
	fmt.Fprintf(streams.Stderr, "%s [y/N] ", question)
	type reply struct {
		line string
		err  error
	}
	answer := make(chan reply, 1)
	go func() { // the read cannot be interrupted, so after a cancellation the goroutine may run until the process exits
		line, err := bufio.NewReader(streams.Stdin).ReadString('\n')
		answer <- reply{strings.ToLower(strings.TrimSpace(line)), err}
	}()
	select {
	case a := <-answer:
		switch {
		case a.line == "y" || a.line == "yes":
			return true, nil
		case a.line == "" && a.err != nil:
			fmt.Fprintln(streams.Stderr)
			return false, ErrNoAnswer
		}
		return false, exit.Stopped(errors.New("canceled; no changes made"))
	case <-ctx.Done():
		return false, exit.Stopped(errors.New("interrupted; no changes made"))
	}
}
