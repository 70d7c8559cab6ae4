package reprise

import (
	"errors"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

// panicked is the error of a handler that panics.
func panicked(handle func()) (err error) {
	defer func() { err = &PanicError{Value: recover(), Stack: debug.Stack()} }()
	handle()
	return nil
}

// The log contains a panic in one line, with its location. The error that is recorded on the message contains the stack.
func TestLoggedShortensPanic(t *testing.T) {
	var none *struct{ field int }
	for want, handle := range map[string]func(){
		`^panic: no price \(.*/panicked_internal_test\.go:\d+\)$`:                                                         func() { panic("no price") },
		`^panic: runtime error: invalid memory address or nil pointer dereference \(.*/panicked_internal_test\.go:\d+\)$`: func() { none.field++ },
	} {
		err := panicked(handle)
		if got := logged(err.Error()); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("logged panic: got %q, want a match of %s", got, want)
		}
		if !strings.Contains(err.Error(), "TestLoggedShortensPanic") {
			t.Errorf("error must contain the stack: got\n%s", err)
		}
	}
	after := panicked(func() { panic("no price") }).Error() + "\n\nparked: cannot retry the message: no room"
	if got := logged(after); strings.Contains(got, "\n") || !strings.HasSuffix(got, "); parked: cannot retry the message: no room") {
		t.Errorf("logged panic with a note: got %q, want one line with the note at its end", got)
	}
	for _, text := range []string{"no price", "a\n\nb", "panic: a\n\nb", panicked(func() { panic(errors.New("a\n\nb")) }).Error()} {
		if got := logged(text); got != text {
			t.Errorf("logged(%q): got %q, want it unchanged", text, got)
		}
	}
}
