package config

import (
	"regexp"
	"strings"
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${NAME} by environment variables.
func (v value) expand(s string) (string, bool) {
	s, _, ok := v.expanded(s)
	return s, ok
}

// expanded is expand that also returns the values of the variables.
func (v value) expanded(s string) (text string, values []string, ok bool) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "${")
		if !found {
			b.WriteString(s)
			return b.String(), values, true
		}
		if strings.HasSuffix(before, "$") {
			b.WriteString(before + "{") // $${ is a plain ${
			s = rest
			continue
		}
		b.WriteString(before)
		name, after, closed := strings.Cut(rest, "}")
		switch {
		case !closed:
			v.fail("%s has a ${ without a }: write ${NAME}, or $${ for a plain ${", v.name)
			return "", nil, false
		case !variable.MatchString(name):
			v.fail("%s has a ${…} that names no environment variable: write ${NAME}, or $${ for a plain ${", v.name)
			return "", nil, false
		}
		value, set := v.lookup(name)
		if !set {
			v.fail("%s needs the environment variable %s, which is not set: set it, or write the value here", v.name, name)
			return "", nil, false
		}
		b.WriteString(value)
		values = append(values, value)
		s = after
	}
}
