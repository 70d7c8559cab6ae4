package main

import "regexp"

// rule matches strings that violate docs/style.md.
type rule struct {
	name   string
	match  *regexp.Regexp
	advice string
}

// rules apply to all strings that a user reads.
var rules = []rule{
	{"no-noun", regexp.MustCompile(`(?i)\b(?:is|are) (?:no|neither) [a-z]|\bis not an? .* but\b`), `negate the verb: "%q is not an integer"`},
	{"opener", regexp.MustCompile(`^(?:[a-z%]+: )?(?i:what|whoever|whatever|where is|nobody|somebody|nothing|there is no|it is|one of|of \w+|so |who )\b`), `start with the subject: "queue %q not found", "Max must be …", "cannot …"`},
	{"person", regexp.MustCompile(`(?i)\b(?:nobody|somebody|anybody|everybody|whoever|person)\b`), "name the actor"},
	{"what", regexp.MustCompile(`(?i)\b(?:what|how (?:many|long|often|much)) (?:is|was|has|the|a|it|they|came|waits|goes)\b`), "use a noun"},
	{"says", regexp.MustCompile(`(?i)\b(?:says?|said|tells?|told|wants|asks?|heeds?|makes no sense|has to|have to)\b`), `write "reports", "requires" or "must"`},
	{"imperative", regexp.MustCompile(`(?i): (?:use|say|give|write|put|name|leave|make|let|want|set) `), "put advice in parentheses or after a semicolon"},
	{"colon", regexp.MustCompile(`: (?:it|they|those|so|nothing|that|there|its|each|one)\b`), "a colon does not join two sentences"},
	{"old", regexp.MustCompile(`(?i)\b(?:beside|anew|for ever|meanwhile|at once|any more|mend|thus|altogether|nowhere|whole numbers?|small letters|given back|sent back|comes back)\b`), "use the plain word"},
	{"state", regexp.MustCompile(`(?i)\b(?:is|was|are) (?:gone|there already|there|over|away|a third|alone|silent)\b`), `write "not found", "already exists" or "closed"`},
}

// broken returns the names of the rules that a string breaks, and the advice of each.
func broken(s string) (names, advice []string) {
	for _, r := range rules {
		if r.match.MatchString(s) {
			names, advice = append(names, r.name), append(advice, r.advice)
		}
	}
	return names, advice
}
