// Package pcre implements the regular expressions of RabbitMQ's permissions and list filters: the syntax and the meaning
// of PCRE2, applied to bytes. ADR 25 explains why it is not a library.
//
// The matcher backtracks, with a limit on the number of steps. A match that exceeds the limit fails, as in RabbitMQ, and
// then grants no permission.
//
// Compile refuses callouts, script runs, non-atomic assertions, [[:<:]], the condition VERSION, newline conventions, (*UCP),
// derived properties such as \p{Alphabetic}, and all verbs except (*FAIL).
package pcre

import "slices"

// MaxSteps limits the work for a match to some 50 ms, and maxDepth limits its stack to some 10 MB.
const (
	MaxSteps = 500_000
	maxDepth = 20_000
)

// Regexp is a compiled regular expression. It is safe for concurrent use.
type Regexp struct {
	groups []*group // by number; element 0 is the whole expression
	utf    bool     // the expression matches characters instead of bytes
	lines  bool     // the expression begins with .*, so a match that begins inside a line also begins with the line
}

// MatchString reports whether s contains a match. It returns false if the match needs too many steps.
func (r *Regexp) MatchString(s string) bool {
	steps := MaxSteps
	return r.MatchWithin(&steps, s)
}

// MatchWithin is like MatchString, and subtracts the steps of the match from the steps that remain for several matches.
func (r *Regexp) MatchWithin(remaining *int, s string) bool {
	m := &matcher{Regexp: r, text: r.symbols(s), limit: min(MaxSteps, *remaining)}
	found := false
	for start := 0; start <= len(m.text) && !found && !m.exhausted; start++ {
		if r.lines && start > 0 && m.text[start-1] != '\n' {
			continue
		}
		m.captured = slices.Repeat([]span{unset}, len(r.groups))
		m.steps += len(m.captured) / perStep
		found = m.matches(r.groups[0].body, start)
	}
	*remaining -= min(m.steps, *remaining)
	return found && !m.exhausted
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
	limit     int // of steps
	depth     int
	exhausted bool // a limit is exceeded, so the result does not count
}

// span is the part of the text that a group has matched.
type span struct{ start, end int }

var unset = span{-1, -1}

// perStep is the number of small operations that count as a step.
const perStep = 8

// node is a part of an expression. The method match calls next with the end of each possible match at the position at,
// until next returns true. It returns the last result of next, and false if there is no match. Call it only by
// [matcher.try].
type node interface {
	match(m *matcher, at int, next func(int) bool) bool
}

// try matches a node. It counts a step, and a level of the stack until the last call of next has returned.
func (m *matcher) try(n node, at int, next func(int) bool) bool {
	m.steps++
	m.depth++
	m.exhausted = m.exhausted || m.steps > m.limit || m.depth > maxDepth
	ok := !m.exhausted && n.match(m, at, next)
	m.depth--
	return ok
}

// matches reports whether n matches at a position.
func (m *matcher) matches(n node, at int) bool { return m.try(n, at, func(int) bool { return true }) }

// save returns a copy of the captures.
func (m *matcher) save() []span {
	m.steps += len(m.captured) / perStep
	return slices.Clone(m.captured)
}

// class matches one symbol.
type class func(rune) bool

func (c class) match(m *matcher, at int, next func(int) bool) bool {
	return at < len(m.text) && c(m.text[at]) && next(at+1)
}

// bracket is a class in brackets with a number of parts.
type bracket struct {
	class
	parts int
}

func (b bracket) match(m *matcher, at int, next func(int) bool) bool {
	m.steps += b.parts / perStep
	return b.class.match(m, at, next)
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
		return m.try(s[0], at, next)
	}
	return m.try(s[0], at, func(end int) bool { return s[1:].match(m, end, next) })
}

// alternatives matches one of several sequences.
type alternatives []sequence

func (a alternatives) match(m *matcher, at int, next func(int) bool) bool {
	for _, one := range a {
		if m.try(one, at, next) {
			return true
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
	return m.try(g.body, at, func(end int) bool {
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
	more := func() bool {
		return count != r.most && m.try(r.body, at, func(end int) bool {
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
		return next(at) || more()
	}
	return more() || next(at)
}

// atomic uses only the first match of its body.
type atomic struct{ body node }

func (a atomic) match(m *matcher, at int, next func(int) bool) bool {
	before, end := m.save(), at
	if m.try(a.body, at, func(e int) bool { end = e; return true }) && next(end) {
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
	before := m.save()
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
		found = m.try(l.body, start, func(end int) bool { return end == at })
	}
	return found != l.not
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
	m.steps += (c.end - c.start) / perStep
	return end <= len(m.text) && slices.EqualFunc(m.text[c.start:c.end], m.text[at:end], func(a, b rune) bool {
		return r.fold(a) == r.fold(b)
	}) && next(end)
}

// subroutine calls a group. Captures in the call have no effect on the caller.
type subroutine struct{ number int }

func (s *subroutine) match(m *matcher, at int, next func(int) bool) bool {
	outside, caller := m.save(), m.called
	m.steps += len(caller) / perStep
	call := append(slices.Clip(caller), s.number)
	m.called = call
	found := m.try(m.groups[s.number].body, at, func(end int) bool {
		inside := m.save()
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
		return m.try(c.yes, at, next)
	}
	return m.try(c.no, at, next)
}
