package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
)

// Exit codes of all commands.
const (
	ExitOK     = 0
	ExitFailed = 1 // attempted and failed: no broker, no route, interrupted handlers
	ExitUsage  = 2 // not attempted: invalid flags or configuration
	ExitEnded  = 3 // started but not completed: a stopped replay, an interrupted redrive
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage marks an error as a mistake on the command line.
func usage(err error) error { return usageError{err} }

// usagef returns an error that is a mistake on the command line.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// stoppedError means that the command stopped gracefully before its work was complete.
type stoppedError struct{ error }

func (e stoppedError) Unwrap() error { return e.error }

// stopped marks an error as a graceful stop before the work was complete.
func stopped(err error) error { return stoppedError{err} }

// errPrinted is the error of a command whose result already describes the failure. It determines only the exit code.
var errPrinted = errors.New("result already printed")

// exitCode returns the exit code of a command that has returned err.
func exitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if _, ok := errors.AsType[*config.Problems](err); ok {
		return ExitUsage
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return ExitUsage
	}
	if _, ok := errors.AsType[stoppedError](err); ok {
		return ExitEnded
	}
	return ExitFailed
}

// textOf formats an error without the package prefixes "reprise" and "failed", which do not help users.
func textOf(err error) string {
	text := err.Error()
	for _, name := range []string{"reprise", "failed"} {
		text = strings.ReplaceAll(strings.TrimPrefix(text, name+": "), ": "+name+": ", ": ")
	}
	return text
}
