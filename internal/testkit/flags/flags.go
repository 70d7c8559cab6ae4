// Package flags changes defaults of test flags. It imports the standard library only, so that any package can use it.
package flags

import (
	"flag"
	"testing"
)

// Default gives a flag another default value for the time of a test, which must not be parallel. A value of the command line
// stays: a property test draws few cases each time, and many with -rapid.checks.
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
