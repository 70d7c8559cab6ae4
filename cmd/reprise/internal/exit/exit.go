// Package exit defines the exit codes of all commands, and the errors that determine them.
package exit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
)

// Exit codes of all commands.
const (
	CodeOK     = 0
	CodeFailed = 1 // attempted and failed: no broker, no route, interrupted handlers
	CodeUsage  = 2 // not attempted: invalid flags or configuration
	CodeEnded  = 3 // started but not completed: a stopped replay, an interrupted redrive
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as a mistake on the command line.
func Usage(err error) error { return usageError{err} }

// Usagef returns an error that is a mistake on the command line.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// stoppedError means that the command stopped gracefully before its work was complete.
type stoppedError struct{ error }

func (e stoppedError) Unwrap() error { return e.error }

// Stopped marks an error as a graceful stop before the work was complete.
func Stopped(err error) error { return stoppedError{err} }

// ErrPrinted is the error of a command whose result already describes the failure. It determines only the exit code.
var ErrPrinted = errors.New("result already printed")

// Code returns the exit code of a command that has returned err.
func Code(err error) int {
	if err == nil {
		return CodeOK
	}
	if _, ok := errors.AsType[*config.Problems](err); ok {
		return CodeUsage
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return CodeUsage
	}
	if _, ok := errors.AsType[stoppedError](err); ok {
		return CodeEnded
	}
	return CodeFailed
}

// Text formats an error without the package prefix "reprise", which does not help users.
func Text(err error) string {
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "reprise: "), ": reprise: ", ": ")
}
