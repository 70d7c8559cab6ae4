package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// For any file, Parse does not panic, each problem has a text and a position in the file, and the library accepts each
// configuration that Parse accepts.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "reprise.example.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	files, err := filepath.Glob(filepath.Join("testdata", "problems", "*.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	for _, s := range []string{
		"workers: &a [*a]", "workers: [&a {queue: *a}]", "&a *a", "? [a]: b", "workers: !!seq []", "- &a\n- *a",
		"workers:\n - queue: |\n    a\n   exec: >-\n    b", "%YAML 1.2\n---\na: b", "workers: {<<: *x, <<: [*y]}", "\ufeffworkers: []",
		"workers: [{queue: a, exec: [0x1F, 1_000, .inf, ~, yes]}]", "a: &\nb: *\n", "'", "\"\\x", "workers:\n\t- a",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("fuzz.yaml", []byte(text), environment)
		if err == nil {
			for _, w := range c.Workers {
				w.Handler = idle
				if err := w.Validate(); err != nil {
					t.Errorf("library refuses an accepted configuration: %v", err)
				}
				handlers := 0
				for _, has := range []bool{w.HTTP != nil, w.Exec != nil, w.Process != nil} {
					if has {
						handlers++
					}
				}
				if handlers != 1 {
					t.Errorf("worker must have one handler: got HTTP %v, Exec %v, Process %v", w.HTTP, w.Exec, w.Process)
				}
			}
			return
		}
		p := err.(*Problems)
		for _, x := range p.List {
			if x.Line < 1 || x.Column < 1 || strings.TrimSpace(x.Text) == "" {
				t.Errorf("invalid problem: %+v, want Line at least 1, Column at least 1", x)
			}
		}
		_ = p.Error()
	})
}
