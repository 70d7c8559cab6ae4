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
	CodeUsage  = 2 // not attempted: invalid flags or configuration; in topology plan and apply: differences
	CodeEnded  = 3 // started but not completed: a stopped replay, an interrupted redrive
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as a mistake on the command line.
func Usage(err error) error { return usageError{err} }

// Usagef returns an error that is a mistake on the command line.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// failedError has the code CodeFailed, whatever error it contains.
type failedError struct{ error }

func (e failedError) Unwrap() error { return e.error }

// Failed marks an error of a command in which CodeUsage has another meaning. A nil error remains nil.
func Failed(err error) error {
	if err == nil || errors.Is(err, ErrDiffer) {
		return err
	}
	return failedError{err}
}

// stoppedError means that the command stopped gracefully before its work was complete.
type stoppedError struct{ error }

func (e stoppedError) Unwrap() error { return e.error }

// Stopped marks an error as a graceful stop before the work was complete.
func Stopped(err error) error { return stoppedError{err} }

// ErrPrinted is the error of a command whose result already describes the failure. It determines only the exit code.
var ErrPrinted = errors.New("result already printed")

// ErrDiffer is the error of a command that has printed differences, with the code 2 as in diff and other comparing programs.
var ErrDiffer = fmt.Errorf("differences: %w", ErrPrinted)

// Code returns the exit code of a command that has returned err.
func Code(err error) int {
	if err == nil {
		return CodeOK
	}
	if _, ok := errors.AsType[stoppedError](err); ok {
		return CodeEnded
	}
	if _, ok := errors.AsType[failedError](err); ok {
		return CodeFailed
	}
	if _, ok := errors.AsType[*config.Problems](err); ok || errors.Is(err, ErrDiffer) {
		return CodeUsage
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return CodeUsage
	}
	return CodeFailed
}

// Text formats an error without the package prefix "reprise", which does not help users.
func Text(err error) string {
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "reprise: "), ": reprise: ", ": ")
}
