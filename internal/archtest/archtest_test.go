package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestImports(t *testing.T) {
	packages := listPackages(t)
	for _, v := range Check(Rules, packages) {
		t.Errorf("an import that internal/archtest/rules.go forbids:\n\t%s", v)
	}
}

// The list is of the right thing: were it empty, no rule could ever be broken.
func TestImportsSeesTheProject(t *testing.T) {
	packages := listPackages(t)
	for _, want := range []Package{
		{ImportPath: Module + "/internal/archtest"},
		{ImportPath: "slices", Standard: true},
	} {
		if !slices.ContainsFunc(packages, func(p Package) bool {
			return p.ImportPath == want.ImportPath && p.Standard == want.Standard && len(p.Imports) > 0
		}) {
			t.Errorf("go list does not name %s (standard: %v)", want.ImportPath, want.Standard)
		}
	}
}

func listPackages(t *testing.T) []Package {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Standard,Imports", "./...")
	cmd.Dir = "../.."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var packages []Package
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p Package
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// Each rule is broken once by a made-up import, and the chain is named.
func TestCheck(t *testing.T) {
	tests := []struct {
		name    string
		imports string // "a: b c" a line; names within the project, or of outside packages with a dot
		want    []string
	}{
		{
			name: "all is well",
			imports: `
				backoff: math time
				topology: backoff time
				topology/preset: topology
				.: topology backoff context github.com/rabbitmq/amqp091-go
				github.com/rabbitmq/amqp091-go: example.com/dependency
				broker/internal/route: strings
				broker/internal/session: broker/internal/queue broker/internal/route
				broker: broker/internal/session
				reprisetest: . broker testing
				internal/testkit: broker testing
				cmd/reprise/internal/cli: . broker example.com/flags
				example.com/flags: testing
				cmd/reprise: cmd/reprise/internal/cli
				examples/indexer: . broker
				conformance: . broker internal/testkit testing`,
		},
		{
			name:    "a pure package has a dependency",
			imports: `backoff: time example.com/rand`,
			want:    []string{"backoff → example.com/rand"},
		},
		{
			name:    "a pure package has a package of the project",
			imports: `internal/amqpwire: internal/exception`,
			want:    []string{"internal/amqpwire → internal/exception"},
		},
		{
			name: "a pure package's dependency is named, and not what that one has",
			imports: `
				broker/internal/route: internal/helper
				internal/helper: example.com/far`,
			want: []string{"broker/internal/route → internal/helper"},
		},
		{
			name:    "topology talks to a broker",
			imports: `topology: github.com/rabbitmq/amqp091-go`,
			want:    []string{"topology → github.com/rabbitmq/amqp091-go"},
		},
		{
			name:    "a preset has more than a topology",
			imports: `topology/preset: topology net/http internal/helper`,
			want:    []string{"topology/preset → internal/helper"},
		},
		{
			name: "the library has the broker",
			imports: `
				.: broker`,
			want: []string{". → broker", "., and . → broker"},
		},
		{
			name: "the library has a room of the broker, by way of topology",
			imports: `
				.: topology
				topology: broker/internal/route`,
			want: []string{". → topology → broker/internal/route", "topology → broker/internal/route"},
		},
		{
			name:    "the library has a dependency",
			imports: `.: example.com/metrics`,
			want:    []string{". → example.com/metrics"},
		},
		{
			name: "the broker has the client, far down",
			imports: `
				broker: broker/internal/session
				broker/internal/session: internal/helper
				internal/helper: github.com/rabbitmq/amqp091-go`,
			want: []string{
				"broker → broker/internal/session → internal/helper → github.com/rabbitmq/amqp091-go",
				"broker/internal/session → internal/helper → github.com/rabbitmq/amqp091-go",
			},
		},
		{
			name:    "the broker has a topology",
			imports: `broker/admin: topology`,
			want:    []string{"broker/admin → topology"},
		},
		{
			name:    "a queue has connections",
			imports: `broker/internal/queue: broker/internal/session`,
			want:    []string{"broker/internal/queue → broker/internal/session"},
		},
		{
			name: "library and broker meet in a package",
			imports: `
				metrics: internal/both
				internal/both: . broker`,
			want: []string{
				"internal/both → ., and internal/both → broker",
				"metrics → internal/both → ., and metrics → internal/both → broker",
			},
		},
		{
			name: "production has a test package",
			imports: `
				internal/demo: internal/testkit
				internal/testkit: broker`,
			want: []string{"internal/demo → internal/testkit"},
		},
		{
			name: "production has a test library",
			imports: `
				failed: testing/fstest
				metrics: github.com/google/go-cmp/cmp/cmpopts
				cmd/reprise/internal/cli: github.com/rogpeppe/go-internal/testscript`,
			want: []string{
				"cmd/reprise/internal/cli → github.com/rogpeppe/go-internal/testscript",
				"failed → testing/fstest",
				"metrics → github.com/google/go-cmp/cmp/cmpopts",
			},
		},
		{
			name:    "somebody has a command",
			imports: `reprisetest: cmd/reprise`,
			want:    []string{"reprisetest → cmd/reprise"},
		},
		{
			name:    "a name that only begins alike is another's",
			imports: `brokerage: topology`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, v := range Check(Rules, parse(t, tt.imports)) {
				chain, why, _ := strings.Cut(v.String(), "\n\twhy not: ")
				if len(why) < 20 {
					t.Errorf("%s: no reason given: %q", chain, why)
				}
				got = append(got, chain)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("violations:\n\t%s\nwant:\n\t%s",
					strings.Join(got, "\n\t"), strings.Join(tt.want, "\n\t"))
			}
		})
	}
}

// parse makes up packages. An import that has no line of its own is the
// project's if it has one of its folders' names, and the standard library's
// unless a dot in its first element says otherwise.
func parse(t *testing.T, imports string) []Package {
	t.Helper()
	own := []string{".", "topology", "backoff", "broker", "cmd", "internal"}
	full := func(name string) string {
		first, _, _ := strings.Cut(name, "/")
		switch {
		case name == ".":
			return Module
		case slices.Contains(own, first):
			return Module + "/" + name
		}
		return name
	}
	byPath := make(map[string]Package)
	for line := range strings.Lines(strings.TrimSpace(imports)) {
		name, list, found := strings.Cut(strings.TrimSpace(line), ":")
		if !found {
			t.Fatalf("not a line of imports: %q", line)
		}
		first, _, _ := strings.Cut(name, "/")
		if !strings.Contains(first, ".") {
			own = append(own, first)
		}
		p := Package{ImportPath: full(name)}
		for imported := range strings.FieldsSeq(list) {
			path := full(imported)
			p.Imports = append(p.Imports, path)
			if _, known := byPath[path]; !known {
				first, _, _ := strings.Cut(path, "/")
				byPath[path] = Package{ImportPath: path, Standard: !strings.Contains(first, ".")}
			}
		}
		byPath[p.ImportPath] = p
	}
	var packages []Package
	for _, p := range byPath {
		packages = append(packages, p)
	}
	return packages
}
