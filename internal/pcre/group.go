package pcre

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// parenthesis parses the rest of a group, of an assertion or of a setting.
func (p *parser) parenthesis() (item node, repeatable bool) {
	if p.take("*") {
		return p.verb()
	}
	if !p.take("?") {
		if p.noCapture {
			return p.closed(p.alternatives()), true
		}
		return p.group(""), true
	}
	switch {
	case p.take(":"):
		return p.closed(p.alternatives()), true
	case p.take("|"):
		return p.closed(p.sameNumbers()), true
	case p.take(">"):
		return atomic{p.closed(p.alternatives())}, true
	case p.peek("=", "!", "<=", "<!"):
		return p.look(), true
	case p.take("P<", "<"):
		return p.group(p.groupName(">")), true
	case p.take("'"):
		return p.group(p.groupName("'")), true
	case p.take("P="):
		return p.byName(p.groupName(")")), true
	case p.take("P>", "&"):
		return p.call(p.groupName(")")), true
	case p.take("("):
		return p.conditional(), true
	case p.take("R)"):
		return p.call("0"), true
	}
	if number := p.number(); number != "" {
		p.want(")", "(?R (recursive pattern call) must be followed by a closing parenthesis")
		return p.call(number), true
	}
	if p.setOptions(); p.take(")") {
		return nil, false
	}
	p.want(":", "unrecognized character after (? or (?-")
	return p.closed(p.alternatives()), true
}

// closed returns n after the closing parenthesis.
func (p *parser) closed(n node) node {
	p.want(")", "missing closing parenthesis")
	return n
}

// group parses the rest of a capturing group.
func (p *parser) group(name string) *group {
	p.count++
	g := &group{number: p.count}
	if name != "" {
		same := p.names[name]
		if len(same) > 0 && !p.sameNames && !slices.Contains(same, g.number) {
			p.fail("two named subpatterns have the same name (PCRE2_DUPNAMES not set)")
		}
		p.names[name] = append(same, g.number)
	}
	if g.number == len(p.groups) {
		g.name = name
		p.groups = append(p.groups, g)
	} else if named := p.groups[g.number].name; name != "" && name != named {
		p.fail("different names for subpatterns of the same number are not allowed")
	}
	g.body = p.closed(p.alternatives())
	return g
}

// sameNumbers parses alternatives whose groups have the same numbers.
func (p *parser) sameNumbers() node {
	first, most := p.count, p.count
	all := p.branches(func() { most, p.count = max(most, p.count), first })
	p.count = max(most, p.count)
	return all
}

func (p *parser) groupName(end string) string {
	if p.at < len(p.text) && isDigit(p.text[p.at]) {
		p.fail("subpattern name must start with a non-digit")
	}
	name := p.while(func(r rune) bool { return isWord(r) })
	if name == "" {
		p.fail("subpattern name expected")
	}
	if len(name) > 128 {
		p.fail("subpattern name is too long (maximum 128 code units)")
	}
	p.want(end, "syntax error in subpattern name (missing terminator?)")
	return name
}

// number parses the number of a group, and returns "" if there is none. A number with a sign is relative to the current
// group.
func (p *parser) number() string {
	from := p.at
	before, after := p.take("-"), p.take("+")
	digits := p.while(isDigit)
	if digits == "" {
		p.at = from
		return ""
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n > maxCount {
		p.fail("group number is too big")
	}
	switch {
	case (before || after) && n == 0, before && n > p.count:
		p.fail("reference to non-existent subpattern")
	case before:
		n = p.count + 1 - n
	case after:
		n += p.count
	}
	return strconv.Itoa(n)
}

// resolve calls use at the end with the numbers of the groups with a name or a number.
func (p *parser) resolve(which string, use func([]int)) {
	at := p.at
	p.checks = append(p.checks, func() {
		numbers := p.names[which]
		if n, err := strconv.Atoi(which); err == nil {
			numbers = []int{n}
		}
		if len(numbers) == 0 || numbers[0] >= len(p.groups) {
			p.at = at
			p.fail("reference to non-existent subpattern")
		}
		use(numbers)
	})
}

// byName returns a back-reference to the groups with a name or a number.
func (p *parser) byName(which string) node {
	r := &reference{fold: p.folding()}
	p.resolve(which, func(numbers []int) { r.numbers = numbers })
	return r
}

func (p *parser) call(which string) node {
	s := new(subroutine)
	p.resolve(which, func(numbers []int) { s.number = numbers[0] })
	return s
}

// verb parses the rest of a verb or of an assertion with a name.
func (p *parser) verb() (item node, repeatable bool) {
	switch {
	case p.take("FAIL)", "F)"):
		return alternatives{}, false
	case p.take("atomic:"):
		return atomic{p.closed(p.alternatives())}, true
	}
	for _, name := range []struct{ long, short, sign string }{
		{"positive_lookahead:", "pla:", "="},
		{"negative_lookahead:", "nla:", "!"},
		{"positive_lookbehind:", "plb:", "<="},
		{"negative_lookbehind:", "nlb:", "<!"},
	} {
		if p.take(name.long, name.short) {
			return p.assertion(name.sign), true
		}
	}
	p.fail("(*VERB) not recognized or not supported")
	return nil, false
}

func (p *parser) look() node {
	for _, sign := range []string{"=", "!", "<=", "<!"} {
		if p.take(sign) {
			return p.assertion(sign)
		}
	}
	p.fail("assertion expected after (?( or (?(?C)")
	return nil
}

func (p *parser) assertion(sign string) node {
	l := &look{behind: sign[0] == '<', not: strings.HasSuffix(sign, "!")}
	p.looking++
	body := p.alternatives()
	p.looking--
	l.body = p.closed(body)
	if l.behind {
		at := p.at
		p.behinds = append(p.behinds, func() {
			p.at, l.least = at, math.MaxInt
			for _, branch := range body {
				least, most := p.length(branch, nil)
				if least != most && most > maxBehind {
					p.fail("branch too long in variable-length lookbehind assertion")
				}
				l.least, l.most = min(l.least, least), max(l.most, most)
			}
		})
	}
	return l
}

// length returns the shortest and the greatest length of a match. The argument calls has the groups around n.
func (p *parser) length(n node, calls []int) (least, most int) {
	unlimited := func() (int, int) {
		p.fail("length of lookbehind assertion is not limited")
		return 0, 0
	}
	switch n := n.(type) {
	case class, bracket:
		return 1, 1
	case sequence:
		for _, part := range n {
			l, m := p.length(part, calls)
			least, most = p.behind(least+l), p.behind(most+m)
		}
	case alternatives:
		for i, one := range n {
			l, m := p.length(one, calls)
			if i == 0 {
				least = l
			}
			least, most = min(least, l), max(most, m)
		}
	case *group:
		return p.lengthOf(n.number, calls)
	case *repeat:
		l, m := p.length(n.body, calls)
		if n.most < 0 {
			return unlimited()
		}
		return p.behind(l * n.least), p.behind(m * n.most)
	case atomic:
		return p.length(n.body, calls)
	case *subroutine:
		if slices.Contains(calls, n.number) || n.number == 0 {
			return unlimited()
		}
		return p.lengthOf(n.number, calls)
	case *conditional:
		return p.length(alternatives{n.yes, n.no}, calls)
	case *reference:
		if len(n.numbers) > 1 || slices.Contains(calls, n.numbers[0]) {
			return unlimited()
		}
		return p.lengthOf(n.numbers[0], calls)
	}
	return least, most
}

// behind checks the length of a lookbehind. A product of two valid lengths is negative if it overflows.
func (p *parser) behind(length int) int {
	if length < 0 || length > maxCount {
		p.fail("lookbehind assertion is too long")
	}
	return length
}

// lengthOf returns the length of a group. It computes each length once, because groups can call each other many times.
func (p *parser) lengthOf(group int, calls []int) (least, most int) {
	known, ok := p.lengths[group]
	if !ok {
		known[0], known[1] = p.length(p.groups[group].body, append(calls, group))
		p.lengths[group] = known
	}
	return known[0], known[1]
}

// conditional parses the rest of (?(condition)yes|no).
func (p *parser) conditional() node {
	c := new(conditional)
	define := false
	switch {
	case p.peek("?", "*"):
		test, _ := p.parenthesis()
		l, ok := test.(*look)
		if !ok {
			p.fail("assertion expected after (?( or (?(?C)")
		}
		c.test = func(m *matcher, at int) bool { return m.matches(l, at) }
	case p.take("DEFINE)"):
		define = true
		c.test = func(*matcher, int) bool { return false }
	case p.take("R)"):
		c.test = func(m *matcher, _ int) bool { return len(m.called) > 0 }
	case p.take("R&"):
		p.isCalled(c, p.groupName(")"))
	default:
		p.isSet(c)
	}
	branches := p.alternatives()
	if len(branches) > 2 || define && len(branches) > 1 {
		p.fail("conditional subpattern contains more than two branches")
	}
	c.yes = branches[0]
	if len(branches) > 1 {
		c.no = branches[1]
	}
	return p.closed(c)
}

// isCalled sets the condition that a group is being called.
func (p *parser) isCalled(c *conditional, which string) {
	p.resolve(which, func(numbers []int) {
		c.test = func(m *matcher, _ int) bool {
			return len(m.called) > 0 && slices.Contains(numbers, m.called[len(m.called)-1])
		}
	})
}

// isSet sets the condition that a group is set.
func (p *parser) isSet(c *conditional) {
	var which string
	switch {
	case p.take("<"):
		which = p.groupName(">")
		p.want(")", "missing closing parenthesis for condition")
	case p.take("'"):
		which = p.groupName("'")
		p.want(")", "missing closing parenthesis for condition")
	default:
		if which = p.number(); which != "" {
			p.want(")", "missing closing parenthesis for condition")
			break
		}
		which = p.groupName(")")
		if digits := strings.TrimPrefix(which, "R"); digits != which && strings.Trim(digits, "0123456789") == "" && len(p.names[which]) == 0 {
			p.isCalled(c, digits)
			return
		}
	}
	if which == "0" {
		p.fail("invalid condition (?(0)")
	}
	p.resolve(which, func(numbers []int) {
		c.test = func(m *matcher, _ int) bool {
			return slices.ContainsFunc(numbers, func(n int) bool { return m.captured[n] != unset })
		}
	})
}

// setOptions parses the letters of a setting such as (?i-s).
func (p *parser) setOptions() {
	on := true
	reset := p.take("^")
	if reset {
		p.options = options{swapLazy: p.swapLazy, sameNames: p.sameNames}
	}
	for {
		switch {
		case on && !reset && p.take("-"):
			on = false
		case p.take("i"):
			p.fold = on
		case p.take("m"):
			p.multi = on
		case p.take("s"):
			p.dotAll = on
		case p.take("xx"):
			p.extended, p.extendedMore = on, on
		case p.take("x"):
			p.extended, p.extendedMore = on, false
		case p.take("n"):
			p.noCapture = on
		case p.take("U"):
			p.swapLazy = on
		case p.take("J"):
			p.sameNames = on
		case p.take("aD", "aS", "aW", "aP", "aT", "a", "r"): // the classes have only ASCII members anyway
		default:
			return
		}
	}
}
