package docstest

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(isolated) != "" {
		os.Exit(isolate(os.Args[1]))
	}
	if err := flag.Set("test.parallel", "4"); err != nil { // the commands of the documents spend most of their time waiting
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(journeysBin)
	os.Exit(status)
}

// In a new environment, the commands of each document print the documented output.
func TestDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the test runs all commands of the documentation")
	}
	root := output(t, "", "git", "rev-parse", "--show-toplevel")
	source, bin := snapshot(t, root), t.TempDir()
	for _, module := range []string{".", "examples"} { // downloads the modules that the documents need
		output(t, filepath.Join(source, module), "go", "mod", "tidy", "-diff")
	}
	output(t, source, "make", "build")
	must(t, os.Rename(filepath.Join(source, "bin", "reprise"), filepath.Join(bin, "reprise")))
	if imports("pika") { // PATH may contain a different Python before it
		must(t, os.Symlink("/usr/bin/python3", filepath.Join(bin, "python3")))
	}
	var exceptions []string
	t.Run("all", func(t *testing.T) {
		for name := range strings.FieldsSeq(output(t, source, "git", "ls-files", "*.md")) {
			text, err := os.ReadFile(filepath.Join(source, name))
			must(t, err)
			blocks, faults := parse(string(text))
			todo, more := steps(blocks)
			for _, fault := range append(faults, more...) {
				t.Errorf("%s: %s", name, fault)
			}
			for _, b := range blocks {
				if b.notRun != "" {
					exceptions = append(exceptions, fmt.Sprintf("%s:%d: %s", name, b.line, b.notRun))
				}
			}
			if todo = possible(t, name, todo); len(todo) == 0 {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if there := libraries[name]; there != nil && !there() {
					t.Skip("the client library of the language is missing (make test installs it)")
				}
				r := reader{t: t, dir: t.TempDir(), source: source, bin: bin, steps: todo}
				r.clone = filepath.Join(r.dir, "reprise")
				output(t, "", "git", "clone", "-q", source, r.clone)
				for i, b := range blocks {
					if b.lang == "setup" || b.lang == "sh" || b.lang == "console" || b.lang == "text" {
						continue
					}
					content := strings.Join(b.lines, "\n") + "\n"
					f := file{b.line, b.lang, filepath.Join(r.dir, fmt.Sprintf("block%d.%s", i, b.lang)), nameOf(content)}
					must(t, os.WriteFile(f.path, []byte(content), 0o644))
					r.files = append(r.files, f)
				}
				r.read()
			})
		}
	})
	t.Logf("%d blocks are not run:\n%s", len(exceptions), strings.Join(exceptions, "\n"))
}

// snapshot returns a repository with the working tree as its only commit.
func snapshot(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	for name := range strings.SplitSeq(output(t, root, "git", "ls-files", "-z", "-co", "--exclude-standard"), "\x00") {
		from, to := filepath.Join(root, name), filepath.Join(dir, name)
		info, err := os.Lstat(from)
		if name == "" || os.IsNotExist(err) {
			continue
		}
		must(t, err)
		must(t, os.MkdirAll(filepath.Dir(to), 0o755))
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(from)
			must(t, err)
			must(t, os.Symlink(target, to))
			continue
		}
		content, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(to, content, info.Mode().Perm()))
	}
	output(t, dir, "git", "init", "-q", "-b", "main")
	output(t, dir, "git", "add", "-A")
	// The commit must depend only on the tree, so that go run can use its cache.
	const when = "2026-01-01T00:00:00Z"
	output(t, dir, "env", "GIT_AUTHOR_DATE="+when, "GIT_COMMITTER_DATE="+when,
		"git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "working tree")
	return dir
}

// needed lists the programs besides Go that commands require. make test provides all of them.
var needed = []need{
	{"scripts/rabbitmq", func() bool { return len(testkit.RabbitMQs()) > 0 && rabbits()["4.3"] != "" }},
	{"/usr/bin/python3", func() bool { return imports("pika") }},
	{"jq", func() bool { _, err := exec.LookPath("jq"); return err == nil }},
	{"curl", func() bool { _, err := exec.LookPath("curl"); return err == nil }},
	{"./coverart", func() bool { return exec.Command("../../scripts/postgres", "installed").Run() == nil }},
}

// libraries reports, for each page of a language, whether this machine has the libraries that the programs of the page need.
var libraries = map[string]func() bool{
	"docs/languages/python.md": func() bool { return imports("pika, pytest") },
	"docs/languages/node.md":   func() bool { return exists("../interop/node/node_modules/amqplib") },
	"docs/languages/php.md":    func() bool { return exists("/usr/share/php/PhpAmqpLib/autoload.php", "/usr/bin/phpunit") },
	"docs/languages/ruby.md":   func() bool { return exec.Command("ruby", "-r", "bunny", "-e", "").Run() == nil },
}

func imports(modules string) bool {
	return exec.Command("/usr/bin/python3", "-c", "import "+modules).Run() == nil
}

func exists(paths ...string) bool {
	return !slices.ContainsFunc(paths, func(path string) bool { _, err := os.Stat(path); return err != nil })
}

// possible removes commands that require a missing program, and logs them.
func possible(t *testing.T, document string, all []step) []step {
	t.Helper()
	var kept []step
	for _, s := range all {
		if i := slices.IndexFunc(needed, func(n need) bool { return strings.Contains(s.text, n.in) && !n.there() }); i >= 0 {
			t.Logf("%s: line %d is not run, because %s is missing (make test provides it): %s", document, s.line, needed[i].in, s.text)
			if n := len(kept) - 1; n >= 0 && kept[n].block == s.block {
				kept[n].output = append(kept[n].output, s.output...)
			}
			continue
		}
		kept = append(kept, s)
	}
	return kept
}

// need is a string in commands that use a program, with a function that reports whether the machine has the program.
type need struct {
	in    string
	there func() bool
}
