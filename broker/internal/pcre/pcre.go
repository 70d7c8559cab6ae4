// Package pcre implements the regular expressions of RabbitMQ's permissions and list filters: the syntax and the meaning
// of PCRE2, applied to bytes.
//
// The standard library cannot be used, because it has neither assertions nor back-references, and would refuse
// expressions such as "^(?!amq\.).*". Ports of other engines would have to be a dependency of every program that embeds
// a broker, and the engine of .NET, the best of them, has no possessive quantifiers, recursion and bytes, and limits a match
// by a clock, which must not happen in virtual time.
//
// The matcher backtracks, with a limit on the number of steps. A match that exceeds the limit fails, as in RabbitMQ, and
// then grants no permission.
//
// Compile refuses callouts, script runs, non-atomic assertions, [[:<:]], the condition VERSION, newline conventions, (*UCP),
// derived properties such as \p{Alphabetic}, and all verbs except (*FAIL).
package pcre

import "slices"

// maxSteps limits the work for a match to some 50 ms, and maxDepth limits its stack to some 10 MB.
const (
	maxSteps = 250_000
	maxDepth = 10_000
)

// Regexp is a compiled regular expression. It is safe for concurrent use.
type Regexp struct {
	groups []*group // by number; element 0 is the whole expression
	utf    bool     // the expression matches characters instead of bytes
}

// MatchString reports whether s contains a match. It returns false if the match needs too many steps.
func (r *Regexp) MatchString(s string) bool {
	m := &matcher{Regexp: r, text: r.symbols(s)}
	for start := 0; start <= len(m.text) && !m.exhausted; start++ {
		m.captured = slices.Repeat([]span{unset}, len(r.groups))
		if r.groups[0].body.match(m, start, func(int) bool { return true }) {
			return true
		}
	}
	return false
}

// symbols returns the bytes or the characters of s.
func (r *Regexp) symbols(s string) []rune {
	if r.utf {
		return []rune(s)
	}
	all := make([]rune, len(s))
	for i := range len(s) {
		all[i] = rune(s[i])
	}
	return all
}

// matcher is the state of a match.
type matcher struct {
	*Regexp
	text      []rune
	captured  []span // by number of the group
	called    []int  // numbers of the groups that are being called, the innermost last
	steps     int
	depth     int
	exhausted bool // a limit is exceeded
}

// span is the part of the text that a group has matched.
type span struct{ start, end int }

var unset = span{-1, -1}

// enter counts a step, and returns false if a limit is exceeded. The caller must decrement depth if the step is done.
func (m *matcher) enter() bool {
	m.steps++
	m.depth++
	m.exhausted = m.exhausted || m.steps > maxSteps || m.depth > maxDepth
	return !m.exhausted
}

// node is a part of an expression. The method match calls next with the end of each possible match at the position at,
// until next returns true. It returns the last result of next, and false if there is no match.
type node interface {
	match(m *matcher, at int, next func(int) bool) bool
}

// matches reports whether n matches at a position.
func (m *matcher) matches(n node, at int) bool { return n.match(m, at, func(int) bool { return true }) }

// class matches one symbol.
type class func(rune) bool

func (c class) match(m *matcher, at int, next func(int) bool) bool {
	return at < len(m.text) && c(m.text[at]) && next(at+1)
}

// assertion is a condition on a position, such as ^.
type assertion func(m *matcher, at int) bool

func (a assertion) match(m *matcher, at int, next func(int) bool) bool { return a(m, at) && next(at) }

type sequence []node

func (s sequence) match(m *matcher, at int, next func(int) bool) bool {
	switch len(s) {
	case 0:
		return next(at)
	case 1:
		return s[0].match(m, at, next)
	}
	return s[0].match(m, at, func(end int) bool { return s[1:].match(m, end, next) })
}

// alternatives matches one of several sequences.
type alternatives []sequence

func (a alternatives) match(m *matcher, at int, next func(int) bool) bool {
	for _, one := range a {
		ok := m.enter() && one.match(m, at, next)
		m.depth--
		if ok || m.exhausted {
			return ok
		}
	}
	return false
}

// group is a capturing group.
type group struct {
	number int
	name   string
	body   node
}

func (g *group) match(m *matcher, at int, next func(int) bool) bool {
	return g.body.match(m, at, func(end int) bool {
		before := m.captured[g.number]
		m.captured[g.number] = span{at, end}
		if next(end) {
			return true
		}
		m.captured[g.number] = before
		return false
	})
}

// repeat repeats a node. If most is -1, the number of repetitions is not limited.
type repeat struct {
	body        node
	least, most int
	lazy        bool
}

func (r *repeat) match(m *matcher, at int, next func(int) bool) bool { return r.after(0, m, at, next) }

// after continues after the given number of repetitions.
func (r *repeat) after(count int, m *matcher, at int, next func(int) bool) bool {
	defer func() { m.depth-- }()
	if !m.enter() {
		return false
	}
	more := func() bool {
		return count != r.most && r.body.match(m, at, func(end int) bool {
			if end == at {
				return next(end) // further repetitions could be empty, too
			}
			return r.after(count+1, m, end, next)
		})
	}
	switch {
	case count < r.least:
		return more()
	case r.lazy:
		return next(at) || !m.exhausted && more()
	}
	return more() || !m.exhausted && next(at)
}

// atomic uses only the first match of its body.
type atomic struct{ body node }

func (a atomic) match(m *matcher, at int, next func(int) bool) bool {
	before, end := slices.Clone(m.captured), at
	if a.body.match(m, at, func(e int) bool { end = e; return true }) && next(end) {
		return true
	}
	copy(m.captured, before)
	return false
}

// look is an assertion about the text after or, if behind is set, before a position.
type look struct {
	body        node
	behind, not bool
	least, most int // length of the text before the position
}

func (l *look) match(m *matcher, at int, next func(int) bool) bool {
	before := slices.Clone(m.captured)
	holds := l.holds(m, at)
	if l.not {
		copy(m.captured, before)
	}
	if holds && next(at) {
		return true
	}
	copy(m.captured, before)
	return false
}

func (l *look) holds(m *matcher, at int) bool {
	found := false
	if !l.behind {
		found = m.matches(l.body, at)
	}
	for start := at - l.least; l.behind && !found && start >= max(0, at-l.most); start-- {
		found = l.body.match(m, start, func(end int) bool { return end == at })
	}
	return found != l.not && !m.exhausted
}

// reference matches the text that the first set group of several groups has matched.
type reference struct {
	numbers []int
	fold    func(rune) rune
}

func (r *reference) match(m *matcher, at int, next func(int) bool) bool {
	i := slices.IndexFunc(r.numbers, func(number int) bool { return m.captured[number] != unset })
	if i < 0 {
		return false
	}
	c := m.captured[r.numbers[i]]
	end := at + c.end - c.start
	return end <= len(m.text) && slices.EqualFunc(m.text[c.start:c.end], m.text[at:end], func(a, b rune) bool {
		return r.fold(a) == r.fold(b)
	}) && next(end)
}

// subroutine calls a group. Captures in the call have no effect on the caller.
type subroutine struct{ number int }

func (s *subroutine) match(m *matcher, at int, next func(int) bool) bool {
	defer func() { m.depth-- }()
	if !m.enter() {
		return false
	}
	outside, caller := slices.Clone(m.captured), m.called
	call := append(slices.Clip(caller), s.number)
	m.called = call
	found := m.groups[s.number].body.match(m, at, func(end int) bool {
		inside := slices.Clone(m.captured)
		copy(m.captured, outside)
		m.called = caller
		if next(end) {
			return true
		}
		copy(m.captured, inside)
		m.called = call
		return false
	})
	m.called = caller
	if !found {
		copy(m.captured, outside)
	}
	return found
}

// conditional selects one of two sequences.
type conditional struct {
	test    assertion
	yes, no sequence
}

func (c *conditional) match(m *matcher, at int, next func(int) bool) bool {
	if c.test(m, at) {
		return c.yes.match(m, at, next)
	}
	return !m.exhausted && c.no.match(m, at, next)
}
