package main

import (
	"slices"
	"testing"
)

const root = "../../.."

func TestStringRulesMatchExamples(t *testing.T) {
	cases := map[string]struct{ bad, good string }{
		"no-noun":    {"%q is no integer", "%q is not an integer"},
		"opener":     {"topology: there is no queue %q", "topology: queue %q not found"},
		"person":     {"queue %q is used by somebody", "queue %q is in use"},
		"what":       {"cannot read what is stored in %s", "cannot read the content of %s"},
		"says":       {"the broker says %q", "the broker reports %q"},
		"imperative": {"Max is negative: use 0", "Max must not be negative: got %d (0 means unlimited)"},
		"colon":      {"cannot open %s: it is locked", "cannot open %s: file is locked"},
		"old":        {"%q is not a whole number", "%q is not an integer"},
		"state":      {"queue %q is gone", "queue %q not found"},
	}
	for _, r := range rules {
		c, ok := cases[r.name]
		if !ok {
			t.Errorf("rule %s has no case", r.name)
			continue
		}
		if names, advice := broken(c.bad); !slices.Contains(names, r.name) || len(advice) != len(names) {
			t.Errorf("broken(%q) = %v, want %s", c.bad, names, r.name)
		}
		if names, _ := broken(c.good); len(names) > 0 {
			t.Errorf("broken(%q) = %v, want none", c.good, names)
		}
	}
}
