package pcre

import (
	"strings"
	"testing"
)

// Tests of the syntax and the meaning are in managementtest, because they also run with RabbitMQ.

// A match that needs too many steps fails, however deeply the expression recurses.
func TestMatchHasALimit(t *testing.T) {
	name := strings.Repeat("a", 255)
	for expression, text := range map[string]string{
		`^(a+)+$`:                            name + "b",
		`^(a|a)+$`:                           name + "b",
		`(a?){60}(a?){60}(a?){60}b`:          name,
		`^(?:(?R)|a)*$`:                      name,
		`(?=(?1)*)(.*(?1)|b)`:                name,
		strings.Repeat("(a|a|a)", 100) + "b": name,
	} {
		re, err := Compile(expression, false)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
		} else if re.MatchString(text) {
			t.Errorf("%s matches", expression)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(`^(?!amq\.)(?<x>[\w-]+)\k<x>{2,}(?(1)a|b)$`, "amq.gen")
	f.Fuzz(func(_ *testing.T, expression, text string) {
		if re, err := Compile(expression, len(text)%2 == 0); err == nil {
			re.MatchString(text)
		}
	})
}
