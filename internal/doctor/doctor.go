// Package doctor finds declarations and states of a broker that lose, block or repeat messages, or that a newer RabbitMQ
// refuses. It reads the management API ([Read]) or a file of definitions ([Parse]), and changes nothing.
//
// Each [Rule] looks at a [Broker] and returns findings. A rule that needs a list which the user may not read, or which
// definitions do not contain, is in [Report.Skipped].
package doctor

import (
	"cmp"
	"slices"
)

// Severity is the importance of a finding.
type Severity string

// The severities.
const (
	Loss    Severity = "loss"    // messages can be lost
	Stuck   Severity = "stuck"   // messages can wait or return without end
	Upgrade Severity = "upgrade" // a current or later version of RabbitMQ refuses or ignores it
	Advice  Severity = "advice"  // it works, but costs or surprises
)

var order = []Severity{Loss, Stuck, Upgrade, Advice}

// Finding is a problem of one object.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	VHost    string   `json:"vhost,omitempty"`
	Object   string   `json:"object"`   // such as "queue orders"
	Evidence string   `json:"evidence"` // what the broker shows
	Why      string   `json:"why"`      // what will happen
	Fix      string   `json:"fix"`      // what to do, if possible as a command
}

// Skipped is a rule that could not be checked.
type Skipped struct {
	Rule    string `json:"rule"`
	Missing string `json:"missing"` // list that the rule needs, or Live
}

// Report is the result of all rules.
type Report struct {
	Version  string    `json:"version"` // of the broker; "" if it is unknown
	Rules    int       `json:"rules"`   // number of checked rules
	Queues   int       `json:"queues"`
	Findings []Finding `json:"findings"` // the most important first
	Skipped  []Skipped `json:"skipped"`
}

// Group contains the findings of one rule.
type Group struct {
	Finding // the first one
	Shown   []Finding
	More    int // number of further findings
}

// ByRule returns the findings by rule, each with at most limit of them.
func (r Report) ByRule(limit int) (groups []Group) {
	for _, f := range r.Findings {
		if len(groups) == 0 || groups[len(groups)-1].Rule != f.Rule {
			groups = append(groups, Group{Finding: f})
		}
		g := &groups[len(groups)-1]
		if len(g.Shown) == limit {
			g.More++
			continue
		}
		g.Shown = append(g.Shown, f)
	}
	return groups
}

// Rule is a check.
type Rule struct {
	Name     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Why      string   `json:"why"`
	needs    []string // lists; a rule without needs reads only exchanges, queues, bindings and policies
	check    func(b *Broker, found func(Finding))
}

// Check applies the rules to a broker, except the ignored ones.
func Check(b *Broker, ignore ...string) Report {
	r := Report{Version: b.Version, Queues: len(b.Queues), Findings: []Finding{}, Skipped: []Skipped{}}
	for _, rule := range Rules {
		if slices.Contains(ignore, rule.Name) {
			continue
		}
		if i := slices.IndexFunc(rule.needs, func(list string) bool { return !b.has[list] }); i >= 0 {
			r.Skipped = append(r.Skipped, Skipped{rule.Name, rule.needs[i]})
			continue
		}
		r.Rules++
		rule.check(b, func(f Finding) {
			f.Rule, f.Severity, f.Why = rule.Name, rule.Severity, rule.Why
			r.Findings = append(r.Findings, f)
		})
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity)),
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.Object, b.Object),
		)
	})
	return r
}
