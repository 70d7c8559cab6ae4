// Package flags changes the defaults of test flags. It imports only the standard library, so that any package can use
// it.
package flags

import (
	"flag"
	"testing"
)

// Default sets the default of a flag for the duration of a test, which must not be parallel. A value from the command
// line takes precedence. For example, a property test runs few cases by default, and many with -rapid.checks.
func Default(t testing.TB, name, value string) {
	t.Helper()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	v := flag.Lookup(name).Value
	before := v.String()
	if err := v.Set(value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Set(before) })
}
