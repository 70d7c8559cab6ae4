package pcre

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of PCRE2.
const (
	maxCount  = 65535 // of repetitions
	maxBehind = 255   // length of a lookbehind with a variable length
	maxNested = 250   // parentheses
)

// maxPattern limits the length of a regular expression, and so the memory for its elements.
const maxPattern = 16 << 10

// Compile parses a regular expression. If caseless is set, letters match both cases.
func Compile(pattern string, caseless bool) (r *Regexp, err error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("regular expression must have at most %d bytes: got %d", maxPattern, len(pattern))
	}
	p := &parser{Regexp: new(Regexp), names: make(map[string][]int), lengths: make(map[int][2]int), options: options{fold: caseless}}
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case problem:
			r, err = nil, fmt.Errorf("%s at offset %d", cause.text, cause.at)
		default:
			panic(cause)
		}
	}()
	text := p.start(pattern)
	p.text, p.offset = p.symbols(text), len(pattern)-len(text)
	p.groups = []*group{{}}
	all := p.alternatives()
	p.groups[0].body, p.lines = all, len(all) == 1 && strings.HasPrefix(text, ".*")
	if p.at < len(p.text) {
		p.fail("unmatched closing parenthesis")
	}
	for _, check := range slices.Concat(p.checks, p.behinds) {
		check()
	}
	return p.Regexp, nil
}

// problem is an error in the expression, with which the parser panics.
type problem struct {
	text string
	at   int
}

// options are the settings that an expression can change, for example with (?i).
type options struct {
	fold, multi, dotAll, extended, extendedMore, noCapture, swapLazy, sameNames bool
}

type parser struct {
	*Regexp
	options
	text    []rune
	at      int
	offset  int // of text in the pattern
	nested  int
	looking int              // number of assertions around the current position
	literal bool             // between \Q and \E
	inClass bool             // between [ and ]
	count   int              // of capturing groups so far
	names   map[string][]int // numbers of the groups with a name
	checks  []func()         // run at the end, when all groups are known
	behinds []func()         // checks of lookbehinds, run after checks
	lengths map[int][2]int   // shortest and greatest length of groups
}

func (p *parser) fail(format string, args ...any) {
	panic(problem{fmt.Sprintf(format, args...), p.offset + p.at})
}

// start evaluates the settings at the start of a pattern, and returns the rest.
func (p *parser) start(pattern string) string {
	for {
		setting, rest, ok := strings.Cut(pattern, ")")
		if !ok {
			return pattern
		}
		switch setting {
		case "(*UTF", "(*UTF8":
			p.utf = true
		case "(*NO_AUTO_POSSESS", "(*NO_DOTSTAR_ANCHOR", "(*NO_JIT", "(*NO_START_OPT":
		default:
			return pattern
		}
		pattern = rest
	}
}

// peek reports whether the text continues with one of the prefixes, and take also skips the first one that matches.
func (p *parser) peek(prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(s string) bool { return p.prefix(s) })
}

func (p *parser) prefix(s string) bool {
	return len(p.text)-p.at >= len(s) && string(p.text[p.at:p.at+len(s)]) == s
}

func (p *parser) take(prefixes ...string) bool {
	for _, s := range prefixes {
		if p.prefix(s) {
			p.at += len(s)
			return true
		}
	}
	return false
}

func (p *parser) want(s, missing string) {
	if !p.take(s) {
		p.fail("%s", missing)
	}
}

// while skips the symbols for which ok returns true, and returns them.
func (p *parser) while(ok func(rune) bool) string {
	from := p.at
	for p.at < len(p.text) && ok(p.text[p.at]) {
		p.at++
	}
	return string(p.text[from:p.at])
}

// alternatives parses up to a closing parenthesis or the end of the text.
func (p *parser) alternatives() alternatives { return p.branches(func() {}) }

// branches calls each before each alternative.
func (p *parser) branches(each func()) (all alternatives) {
	if p.nested++; p.nested > maxNested {
		p.fail("parentheses are too deeply nested")
	}
	saved := p.options
	for {
		each()
		all = append(all, p.sequence())
		if !p.take("|") {
			break
		}
	}
	p.options = saved
	p.nested--
	return all
}

func (p *parser) sequence() (all sequence) {
	for p.skip(); p.at < len(p.text) && (p.literal || !p.peek("|", ")")); p.skip() {
		item, repeatable := p.item()
		if item == nil {
			continue
		}
		p.skip()
		if least, most, ok := p.quantifier(); ok {
			if !repeatable {
				p.fail("quantifier does not follow a repeatable item")
			}
			item = p.repeated(item, least, most)
		}
		all = append(all, item)
	}
	return all
}

// skip skips \Q and \E, white space that an option permits and, outside of a class, comments.
func (p *parser) skip() {
	for {
		switch {
		case p.take(`\E`):
			p.literal = false
		case p.literal:
			return
		case p.take(`\Q`):
			p.literal = true
		case p.inClass:
			if !p.extendedMore || !p.take(" ", "\t") {
				return
			}
		case p.take("(?#"):
			p.while(func(r rune) bool { return r != ')' })
			p.want(")", "missing ) after (?# comment")
		case p.extended && p.at < len(p.text) && isSpace(p.text[p.at]):
			p.at++
		case p.extended && p.take("#"):
			p.while(func(r rune) bool { return r != '\n' })
		default:
			return
		}
	}
}

// quantifier parses *, +, ? or {n,m}. For a { that does not begin a quantifier it returns false.
func (p *parser) quantifier() (least, most int, ok bool) {
	switch {
	case p.literal:
		return 0, 0, false
	case p.take("*"):
		return 0, -1, true
	case p.take("+"):
		return 1, -1, true
	case p.take("?"):
		return 0, 1, true
	case !p.peek("{"):
		return 0, 0, false
	}
	start := p.at
	p.at++
	number := func() (int, bool) {
		p.blanks()
		digits := p.while(isDigit)
		p.blanks()
		n, err := strconv.Atoi(digits)
		if digits != "" && (err != nil || n > maxCount) {
			n = maxCount + 1
		}
		return n, digits != ""
	}
	least, from := number()
	most, to := least, from
	if p.take(",") {
		if most, to = number(); !to {
			most = -1
		}
	}
	if !p.take("}") || !from && !to {
		p.at = start
		return 0, 0, false
	}
	if max(least, most) > maxCount {
		p.fail("number too big in {} quantifier")
	}
	if to && most < least {
		p.fail("numbers out of order in {} quantifier")
	}
	return least, most, true
}

func (p *parser) blanks() { p.while(func(r rune) bool { return r == ' ' || r == '\t' }) }

func (p *parser) repeated(item node, least, most int) node {
	if l, ok := item.(*look); ok && !l.not { // an assertion holds as often as one likes
		least, most = min(least, 1), 1
	}
	lazy := p.swapLazy
	p.skip()
	switch {
	case p.literal:
	case p.take("+"):
		return atomic{&repeat{body: item, least: least, most: most}}
	case p.take("?"):
		lazy = !lazy
	}
	return &repeat{item, least, most, lazy}
}

// item parses an item without its quantifier. It returns nil for a setting such as (?i).
func (p *parser) item() (item node, repeatable bool) {
	c := p.text[p.at]
	if p.literal {
		p.at++
		return p.symbol(c), true
	}
	switch c {
	case '(':
		p.at++
		return p.parenthesis()
	case '[':
		p.at++
		return p.class(), true
	case '\\':
		p.at++
		return p.escape()
	case '.':
		p.at++
		if p.dotAll {
			return class(anySymbol), true
		}
		return class(notNewline), true
	case '^':
		p.at++
		multi := p.multi
		return assertion(func(m *matcher, at int) bool {
			return at == 0 || multi && at < len(m.text) && m.text[at-1] == '\n'
		}), false
	case '$':
		p.at++
		if p.multi {
			return assertion(func(m *matcher, at int) bool { return at == len(m.text) || m.text[at] == '\n' }), false
		}
		return assertion(atEnd), false
	}
	if _, _, ok := p.quantifier(); ok {
		p.fail("quantifier does not follow a repeatable item")
	}
	p.at++
	return p.symbol(c), true
}

// atEnd reports whether a position is at the end, or before a line feed at the end.
func atEnd(m *matcher, at int) bool {
	return at == len(m.text) || at == len(m.text)-1 && m.text[at] == '\n'
}

// symbol returns a node that matches one symbol.
func (p *parser) symbol(c rune) class {
	if !p.fold {
		return func(r rune) bool { return r == c }
	}
	return p.folded(func(r rune) bool { return r == c })
}
