package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestProjectFollowsRules(t *testing.T) {
	packages := listPackages(t)
	shape, err := checkShape(root, packages)
	if err != nil {
		t.Fatal(err)
	}
	unused := slices.Clone(Exceptions)
	for _, v := range slices.Concat(readLayers(Layers).check(packages), checkModules(packages), checkLight(Light, packages), shape) {
		if i := slices.Index(unused, v.What); i >= 0 {
			unused = slices.Delete(unused, i, i+1)
		} else if !slices.Contains(Exceptions, v.What) {
			t.Error(v)
		}
	}
	for _, what := range unused {
		t.Errorf("obsolete exception (remove it from internal/archtest/exceptions.go): %s", what)
	}
}

// With an empty list of packages, TestProjectFollowsRules would pass.
func TestListPackagesFindsProject(t *testing.T) {
	packages := listPackages(t)
	for _, want := range []string{Module, Module + "/broker", Module + "/internal/tools/site", "slices", amqpClient} {
		if !slices.ContainsFunc(packages, func(p Package) bool { return p.ImportPath == want && len(p.GoFiles) > 0 && len(p.Imports) > 0 }) {
			t.Errorf("package %s not found in the output of go list", want)
		}
	}
}

// Each rule finds exactly the imports that break it.
func TestLayersFindViolations(t *testing.T) {
	l := readLayers("top\nmiddle/... | other\nlow, lower | another\n---\nbase")
	all := "top: middle/a other\nmiddle/a: low middle/b base\nmiddle/b:\nlow: base\nlower:\nother: another base\nanother:\nbase: strings\n"
	for name, tt := range map[string]struct{ imports, want string }{
		"no violation":              {"internal/tools/x: top other\nbroker/internal/chaos: middle/a", ""},
		"up":                        {"low: middle/a", "low → middle/a"},
		"same line":                 {"low: lower", "low → lower"},
		"up from the base":          {"base: low", "base → low"},
		"to the other side":         {"middle/b: another", "middle/b → another"},
		"from the other side":       {"other: low", "other → low"},
		"a package for tests":       {"low: internal/testkit\ninternal/testkit:", "low → internal/testkit"},
		"a package without a place": {"new: base", "place of new"},
		"a package with the prefix of another name": {"lowest: base", "place of lowest"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, l.check(parse(all+tt.imports)), tt.want) })
	}
	expect(t, l.check(parse(strings.Replace(all, "lower:\n", "", 1))), "place lower")
}

func TestCheckModulesFindsViolations(t *testing.T) {
	for imports, want := range map[string]string{
		"internal/amqpconn: strings " + amqpClient: "",
		"broker: " + amqpClient:                    "broker → " + amqpClient,
		"breaker: github.com/sony/gobreaker/v2":    "",
		"broker: testing/fstest":                   "broker → testing/fstest",
		"internal/testkit: testing example.com/x":  "",
	} {
		expect(t, checkModules(parse(imports)), want)
	}
}

func TestCheckLightFindsChains(t *testing.T) {
	light := []string{".", "broker"}
	for imports, want := range map[string]string{
		".: internal/amqpconn\ninternal/amqpconn: strings " + amqpClient: "",
		"breaker: example.com/x": "",
		"broker: internal/a internal/b\ninternal/a: internal/b\ninternal/b: example.com/x": "broker → internal/b → example.com/x",
		".: broker\nbroker: example.com/x":                                                 ". → broker → example.com/x, broker → example.com/x",
	} {
		expect(t, checkLight(light, parse(imports)), want)
	}
}

func expect(t *testing.T, found []Violation, want string) {
	t.Helper()
	var what []string
	for _, v := range found {
		what = append(what, v.What)
		if len(v.Why) < 20 {
			t.Errorf("%s: reason too short: %q", v.What, v.Why)
		}
	}
	slices.Sort(what)
	if got := strings.Join(what, ", "); got != want {
		t.Errorf("violations: got %q, want %q", got, want)
	}
}

// parse converts lines such as "a: b c" to packages. The packages that have a line, and all packages under internal,
// belong to the project.
func parse(imports string) (packages []Package) {
	lines := strings.Split(strings.TrimSpace(imports), "\n")
	full := func(name string) string {
		own := func(line string) bool { return strings.HasPrefix(line, name+":") }
		switch {
		case name == ".":
			return Module
		case strings.HasPrefix(name, "internal/"), slices.ContainsFunc(lines, own):
			return Module + "/" + name
		}
		return name
	}
	for _, line := range lines {
		name, list, _ := strings.Cut(line, ":")
		p := Package{ImportPath: full(name)}
		for imported := range strings.FieldsSeq(list) {
			p.Imports = append(p.Imports, full(imported))
		}
		packages = append(packages, p)
	}
	return packages
}

var listPackages = func(t *testing.T) []Package {
	t.Helper()
	packages, err := list()
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// list returns the packages of the project's module with their dependencies, and the packages of the module internal/tools.
var list = sync.OnceValues(func() ([]Package, error) {
	packages, err := goList(root, "-deps=true")
	if err != nil {
		return nil, err
	}
	tools, err := goList(root+"/internal/tools", "-deps=false")
	return append(packages, tools...), err
})

func goList(dir, deps string) (packages []Package, _ error) {
	cmd := exec.Command("go", "list", deps, "-json=ImportPath,Name,Imports,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = dir
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(complaints.String()))
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p Package
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}
