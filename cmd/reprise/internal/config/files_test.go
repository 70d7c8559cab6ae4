package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write writes files and returns their directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The files of a directory, and several files, form one configuration. Relative paths are relative to their own file.
func TestSeveralFiles(t *testing.T) {
	dir := write(t, map[string]string{
		"10-base.yaml":     "exchanges: {shop: topic}\nmetrics: 127.0.0.1:9091\n",
		"20-orders.yml":    "workers:\n  - queue: orders\n    exec: {command: [x], dir: sub}\n    bind: [{exchange: shop, key: a}]\n",
		"30-mail.yaml":     "workers:\n  - queue: mail\n    exec: [x]\n    bind: [{exchange: post, key: b}]\nexchanges: {post: direct}\n",
		".hidden.yaml":     "no configuration",
		"notes.txt":        "no configuration",
		"old.yaml/x.yaml":  "no configuration",
		"other/local.yaml": "data: memory\nworkers: [{queue: local, exec: {command: [x], dir: sub}}]\n",
	})
	c, err := Load(dir, filepath.Join(dir, "other", "local.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range c.Workers {
		got = append(got, w.Queue+" "+strings.TrimPrefix(w.Exec.Dir, dir))
	}
	if diff := cmp.Diff([]string{"orders /sub", "mail ", "local /other/sub"}, got); diff != "" {
		t.Errorf("workers and directories (-want +got)\n%s", diff)
	}
	if c.Metrics != "127.0.0.1:9091" || c.Data != "" || c.Dir != dir {
		t.Errorf("got metrics %q, data %q, dir %q", c.Metrics, c.Data, c.Dir)
	}
}

// Problems of several files have the name of their file, also if two files conflict.
func TestProblemsOfSeveralFiles(t *testing.T) {
	dir := write(t, map[string]string{
		"a.yaml": "metrics: 127.0.0.1:9090\nlisten: 127.0.0.1:9090\nworkers:\n  - queue: orders\n    exec: [x]\n",
		"b.yaml": "metrics: 127.0.0.1:9091\nworkers:\n  - queue: orders\n    exec: [x]\n    speed: 3\n",
		"c.yaml": "workers: [{queue: c, exec: [x], bind: [{exchange: absent, key: k}]}]\nconsole: 127.0.0.1:1\nhm: 1\n",
	})
	_, err := Load(dir)
	if err == nil {
		t.Fatal("accepted conflicting files")
	}
	got := strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")
	for _, want := range []string{
		"a.yaml:1:10: metrics and listen have the same address",
		"b.yaml:1:1: key metrics already exists in a.yaml on line 1: keep one",
		"b.yaml:3:5: queue “orders” has a worker in a.yaml on line 4: merge the workers",
		"b.yaml:5:5: unknown key “speed” in a worker",
		"      5 |     speed: 3",
		"c.yaml:1:51: exchange “absent” not found in the embedded broker",
		"c.yaml:3:1: unknown key “hm” in the file",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing %q in\n%s", want, got)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "b.yaml"), []byte("workers: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "b.yaml:1:") || strings.Contains(err.Error(), "c.yaml:1:51") {
		t.Errorf("invalid YAML in one file: got %v", err)
	}
	if _, err := Load(dir, filepath.Join(dir, "a.yaml")); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("file twice: got %v", err)
	}
}
