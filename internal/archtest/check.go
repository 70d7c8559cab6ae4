package archtest

import (
	"maps"
	"slices"
	"strings"
)

// A Package is what the rules look at of one.
type Package struct {
	ImportPath string
	Standard   bool // of the standard library
	Imports    []string
}

// A Violation is what a rule forbids: a chain of imports that leads from the
// package that the rule binds to one it may not have, or two chains that lead to
// two it may not have both.
type Violation struct {
	Chains [][]string
	Why    string
}

func (v Violation) String() string {
	var chains []string
	for _, chain := range v.Chains {
		names := make([]string, len(chain))
		for i, path := range chain {
			names[i] = short(path)
		}
		chains = append(chains, strings.Join(names, " → "))
	}
	return strings.Join(chains, ", and ") + "\n\twhy not: " + v.Why
}

// Check holds packages, which are the project's and all they depend on, against
// the rules. It returns a violation for each package that breaks a rule and each
// package that it may not have.
func Check(rules []Rule, packages []Package) []Violation {
	g := make(graph, len(packages))
	for _, p := range packages {
		g[p.ImportPath] = p
	}
	var found []Violation
	for _, path := range slices.Sorted(maps.Keys(g)) {
		if !ours(path) {
			continue
		}
		for _, rule := range rules {
			if matches(rule.For, path) && !matches(rule.Except, path) {
				found = append(found, g.check(rule, path)...)
			}
		}
	}
	return found
}

type graph map[string]Package

func (g graph) check(rule Rule, path string) []Violation {
	var found []Violation
	report := func(chains ...[]string) {
		found = append(found, Violation{Chains: chains, Why: rule.Why})
	}
	var pair [2][]string
	g.walk(path, func(chain []string) (on bool) {
		last := chain[len(chain)-1]
		for i, name := range rule.NeverBoth {
			if matches([]string{name}, last) {
				pair[i] = chain
			}
		}
		switch {
		case len(chain) == 1:
			return true
		case rule.Only != nil && !g[last].Standard && !matches(rule.Only, last),
			matches(rule.Never, last),
			len(chain) == 2 && matches(rule.NeverDirectly, last):
			report(chain)
			return false // what it imports in its turn is no news
		}
		return ours(last)
	})
	if pair[0] != nil && pair[1] != nil {
		report(pair[0], pair[1])
	}
	return found
}

// walk calls visit with the shortest chain of imports from path to each package
// that path reaches, path itself first. It goes on from those where visit says so.
func (g graph) walk(path string, visit func(chain []string) (on bool)) {
	seen := map[string]bool{path: true}
	for queue := [][]string{{path}}; len(queue) > 0; queue = queue[1:] {
		chain := queue[0]
		if !visit(chain) {
			continue
		}
		for _, next := range g[chain[len(chain)-1]].Imports {
			if !seen[next] {
				seen[next] = true
				queue = append(queue, append(slices.Clip(chain), next))
			}
		}
	}
}

func ours(path string) bool {
	return path == Module || strings.HasPrefix(path, Module+"/")
}

// short is a package's name as the rules have it.
func short(path string) string {
	if path == Module {
		return "."
	}
	return strings.TrimPrefix(path, Module+"/")
}

func matches(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if pattern == "..." {
			return ours(path)
		}
		base, below := strings.CutSuffix(pattern, "/...")
		name := short(path)
		return name == base || below && strings.HasPrefix(name, base+"/")
	})
}
