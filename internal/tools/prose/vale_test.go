//go:build vale

package main

// The tests of this file need Vale, which takes minutes to compile. make prose ARGS=test runs them.

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// vale returns the path of Vale. scripts/prose builds Vale if it is missing.
func vale(t *testing.T) string {
	t.Helper()
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

func TestMeasure(t *testing.T) {
	dir := makeProject(t)
	units, err := measure(options{vale: vale(t), config: filepath.Join(root, ".vale.ini")}, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range units {
		for _, f := range u.findings {
			name, err := filepath.Rel(dir, f.file)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, finding{name, f.line, f.rule, ""}.String())
		}
	}
	want := []string{
		"README.md:1: [Words] ",
		"p/p.go:1: [Words] ",
		"p/p.go:10: [state,Idle] ",
		"p/p.go:12: [old] ",
		"p/p.go:16: [opener,person] ",
		"p/p.go:17: [opener,person] ",
		"p/p.go:18: [state] ",
		"p/p_test.go:3: [Words] ",
		"p/p_test.go:4: [opener,what,state] ",
		"p/p_test.go:6: [state] ",
		"p/templates/page.html:2: [person] ",
		"p/templates/page.html:3: [opener,person] ",
		"q/page.js:2: [opener,person] ",
		"scripts/run:2: [what,state] ",
		"scripts/run:4: [state] ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("findings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, want := range map[string]unit{
		"README.md": {words: 4, alerts: 1},
		"p":         {words: 8, alerts: 2, strings: 9},
		"q":         {words: 5, strings: 1},
		"q/deep":    {words: 4},
		"scripts":   {words: 10, strings: 2},
	} {
		i := slices.IndexFunc(units, func(u *unit) bool { return u.name == name })
		if i < 0 {
			t.Fatalf("unit %s not found", name)
		}
		if u := units[i]; u.words != want.words || u.alerts != want.alerts || u.strings != want.strings {
			t.Errorf("%s: got %d words, %d alerts, %d strings, want %+v", name, u.words, u.alerts, u.strings, want)
		}
	}
}
