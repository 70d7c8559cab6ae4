package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// vale returns the path of Vale. scripts/prose builds Vale if it is missing.
func vale(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short (takes minutes to build Vale)")
	}
	cmd := exec.Command("scripts/prose", "install")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot install Vale: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// alertsIn returns the rules that Vale reports for each file, relative to dir.
func alertsIn(t *testing.T, dir string) map[string][]string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.md", "*.go"} {
		matches, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, matches...)
	}
	alerts, err := runVale(vale(t), filepath.Join(root, ".vale.ini"), files)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string][]string)
	for _, file := range files {
		found[filepath.Base(file)] = nil
		for _, a := range alerts[file] {
			found[filepath.Base(file)] = append(found[filepath.Base(file)], strings.TrimPrefix(a.Check, "Reprise."))
		}
	}
	return found
}

func TestValeRulesMatchExamples(t *testing.T) {
	styles, err := filepath.Glob("styles/Reprise/*.yml")
	if err != nil || len(styles) < 12 {
		t.Fatalf("got %d rules, want at least 12 (%v)", len(styles), err)
	}
	found := alertsIn(t, "testdata/rules")
	for _, style := range styles {
		name := strings.TrimSuffix(filepath.Base(style), ".yml")
		if got := found[name+".bad.md"]; !slices.Contains(got, name) {
			t.Errorf("testdata/rules/%s.bad.md: got alerts %v, want one of %s", name, got, name)
		}
		got, ok := found[name+".good.md"]
		if !ok || len(got) > 0 {
			t.Errorf("testdata/rules/%s.good.md: got alerts %v (file exists: %v), want none", name, got, ok)
		}
	}
}

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
