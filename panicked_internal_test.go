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

// The log contains a panic in one line, with the location. The message contains the stack.
func TestLoggedShortensPanic(t *testing.T) {
	var none *struct{ field int }
	for want, handle := range map[string]func(){
		`^panic: no price \(.*/panicked_internal_test\.go:\d+\)$`:                                                         func() { panic("no price") },
		`^panic: runtime error: invalid memory address or nil pointer dereference \(.*/panicked_internal_test\.go:\d+\)$`: func() { none.field++ },
	} {
		err := panicked(handle)
		if got := logged(err.Error()); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%q does not match %s", got, want)
		}
		if !strings.Contains(err.Error(), "TestLoggedShortensPanic") {
			t.Errorf("error does not contain the stack:\n%s", err)
		}
	}
	after := panicked(func() { panic("no price") }).Error() + "\n\nparked: cannot retry the message: no room"
	if got := logged(after); strings.Contains(got, "\n") || !strings.HasSuffix(got, "); parked: cannot retry the message: no room") {
		t.Errorf("panic with a note: got %q", got)
	}
	for _, text := range []string{"no price", "a\n\nb", "panic: a\n\nb", panicked(func() { panic(errors.New("a\n\nb")) }).Error()} {
		if got := logged(text); got != text {
			t.Errorf("logged(%q): got %q", text, got)
		}
	}
}
