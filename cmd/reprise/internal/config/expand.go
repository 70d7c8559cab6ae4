package config

import (
	"cmp"
	"regexp"
	"strings"
)

var (
	variable  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	reference = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)
)

// expanded reads a text and expands environment variables. It also returns the values of the variables.
func (v value) expanded(example string) (text string, values []string, ok bool) {
	s, ok := v.text(example)
	if !ok {
		return "", nil, false
	}
	return v.expand(s)
}

// expand replaces ${NAME} with environment variables. It also returns the values of the variables.
func (v value) expand(s string) (text string, values []string, ok bool) {
	wrong := ""
	text = reference.ReplaceAllStringFunc(s, func(ref string) string {
		if ref == "$${" {
			return "${"
		}
		name, closed := strings.CutSuffix(ref[len("${"):], "}")
		value, set := v.lookup(name)
		switch {
		case !closed:
			wrong = cmp.Or(wrong, "has ${ without }; write ${NAME}, or $${ for the characters ${")
		case !variable.MatchString(name):
			wrong = cmp.Or(wrong, "has ${…} without the name of an environment variable; write ${NAME}, or $${ for the characters ${")
		case !set:
			wrong = cmp.Or(wrong, "needs the environment variable "+name+", which is not set: set it, or write the value in the file")
		}
		values = append(values, value)
		return value
	})
	if wrong != "" {
		return "", nil, v.fail("%s %s", v.name, wrong)
	}
	return text, values, true
}
