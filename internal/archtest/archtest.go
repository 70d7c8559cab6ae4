package archtest

import (
	"slices"
	"strings"
)

// Module is the path of the project's module. Package names are relative to it: "." is its root, "broker" is
// Module/broker, and "broker/..." is broker and all packages under broker.
const Module = "github.com/reprisemq/reprise"

// A Package is a package in the output of go list.
type Package struct {
	ImportPath, Name                   string
	Imports                            []string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

func (p Package) testFiles() []string { return slices.Concat(p.TestGoFiles, p.XTestGoFiles) }

// A Violation describes a violated rule: What identifies the package, file or import, and Why states the rule.
type Violation struct{ What, Why string }

func (v Violation) String() string { return v.What + ": " + v.Why }

func ours(path string) bool { return path == Module || strings.HasPrefix(path, Module+"/") }

// short returns the name of a package relative to Module.
func short(path string) string {
	if path == Module {
		return "."
	}
	return strings.TrimPrefix(path, Module+"/")
}

// matches reports whether any of the patterns matches a package.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		base, below := strings.CutSuffix(pattern, "/...")
		return name == base || below && strings.HasPrefix(name, base+"/")
	})
}
