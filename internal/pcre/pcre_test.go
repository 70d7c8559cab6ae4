package pcre

import (
	"fmt"
	"runtime/metrics"
	"strings"
	"testing"
)

// Tests of the syntax and the meaning are in managementtest, because they also run with RabbitMQ.

// heavy are expressions that need too many steps, too deep a stack or expensive steps, if a match were not limited.
var heavy = map[string]string{
	"nested repetition":     `^(a+)+b`,
	"equal alternatives":    `^(a|a)+b`,
	"many options":          `(a?){60}(a?){60}(a?){60}b`,
	"recursion":             `^(?:(?R)|a)*$`,
	"calls":                 `(?=(?1)*)(.*(?1)|b)`,
	"many alternatives":     strings.Repeat("(a|a|a)", 100) + "b",
	"repeated assertions":   `^(?:a` + strings.Repeat(`\B`, 2000) + `(?=` + strings.Repeat(`(?=)`, 1000) + `))*b`,
	"long sequences":        `^(?:a` + strings.Repeat(`(?:)`, 4000) + `)*b`,
	"groups in assertions":  strings.Repeat(`()`, 3000) + `(?:(?=a)a|(?=a)a)*b`,
	"groups in calls":       strings.Repeat(`()`, 3000) + `(?:(?1)a|(?1)a)*b`,
	"wide classes":          `(?:[` + strings.Repeat(`b-cd-e`, 1000) + `a]|a)*b`,
	"long references":       `(?:(?=(a*))(?:a|a)\1?)*b`,
	"lookbehinds":           `(?:(?<=(?:a|a){0,255})a|a)*b`,
	"optional empty groups": `(?:(?:(?:a?)*)*)*b`,
}

// A match that needs too many steps fails, and its stack is limited.
func TestMatchHasALimit(t *testing.T) {
	name := strings.Repeat("a", 255)
	stack := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	for label, expression := range heavy {
		re, err := Compile(expression, false)
		if err != nil {
			t.Errorf("%s: %v", label, err)
			continue
		}
		metrics.Read(stack)
		before := stack[0].Value.Uint64()
		matched := make(chan bool)
		go func() { // on a new stack
			ok := re.MatchString(name)
			metrics.Read(stack)
			matched <- ok
		}()
		if <-matched {
			t.Errorf("%s matches", label)
		}
		if grown := int64(stack[0].Value.Uint64() - before); grown > 64<<20 { // stacks grow by doubling
			t.Errorf("%s: stack grew by %d bytes", label, grown)
		}
	}
}

// Matches of several texts share a limit.
func TestMatchWithinLimitsSeveralMatches(t *testing.T) {
	re, err := Compile(heavy["nested repetition"], false)
	if err != nil {
		t.Fatal(err)
	}
	remaining := MaxSteps + 10
	for range 3 {
		if re.MatchWithin(&remaining, strings.Repeat("a", 100)) {
			t.Error("expression matches")
		}
	}
	if remaining != 0 || re.MatchWithin(&remaining, "a") {
		t.Errorf("remaining steps: got %d, want 0", remaining)
	}
	if !re.MatchString("ab") {
		t.Error("expression does not match")
	}
}

// The time to compile an expression does not grow exponentially with the number of its groups.
func TestCompileComputesEachLengthOnce(t *testing.T) {
	var b strings.Builder
	b.WriteString(`(?<=(?1))`)
	for i := range 1000 {
		fmt.Fprintf(&b, "((?%d)|(?%d))", i+2, i+2)
	}
	b.WriteString(`(a)`)
	if _, err := Compile(b.String(), false); err != nil {
		t.Error(err)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(`^(?!amq\.)(?<x>[\w-]+)\k<x>{2,}(?(1)a|b)$`, "amq.gen")
	for _, expression := range heavy {
		f.Add(expression, "aab")
	}
	f.Fuzz(func(_ *testing.T, expression, text string) {
		if re, err := Compile(expression, len(text)%2 == 0); err == nil {
			re.MatchString(text)
		}
	})
}
