package pcre

import (
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Classes with a short name have only ASCII members, except for white space.
func isDigit(r rune) bool  { return r >= '0' && r <= '9' }
func isWord(r rune) bool   { return r == '_' || isDigit(r) || isLetter(r) }
func isLetter(r rune) bool { return isLower(r) || isUpper(r) }
func isLower(r rune) bool  { return r >= 'a' && r <= 'z' }
func isUpper(r rune) bool  { return r >= 'A' && r <= 'Z' }
func isSpace(r rune) bool  { return r == ' ' || r >= '\t' && r <= '\r' }
func isVertical(r rune) bool {
	return r >= '\n' && r <= '\r' || r == 0x85 || r == 0x2028 || r == 0x2029
}

func isHorizontal(r rune) bool {
	return r == '\t' || r == 0x180e || unicode.Is(unicode.Zs, r)
}
func anySymbol(rune) bool    { return true }
func notNewline(r rune) bool { return r != '\n' }
func isGraph(r rune) bool    { return r > ' ' && r <= '~' }

func not(c class) class { return func(r rune) bool { return !c(r) } }

func wordEdge(m *matcher, at int) bool {
	return (at > 0 && isWord(m.text[at-1])) != (at < len(m.text) && isWord(m.text[at]))
}

// posix are the classes with names such as [:alpha:].
var posix = map[string]class{
	"alpha": isLetter, "lower": isLower, "upper": isUpper, "digit": isDigit, "space": isSpace, "word": isWord, "graph": isGraph,
	"alnum":  func(r rune) bool { return isLetter(r) || isDigit(r) },
	"ascii":  func(r rune) bool { return r <= unicode.MaxASCII },
	"blank":  func(r rune) bool { return r == ' ' || r == '\t' },
	"cntrl":  func(r rune) bool { return r < ' ' || r == 0x7f },
	"print":  func(r rune) bool { return r == ' ' || isGraph(r) },
	"punct":  func(r rune) bool { return isGraph(r) && !isLetter(r) && !isDigit(r) },
	"xdigit": func(r rune) bool { return isDigit(r) || r >= 'a' && r <= 'f' || r >= 'A' && r <= 'F' },
}

var escapes = map[rune]class{'d': isDigit, 'w': isWord, 's': isSpace, 'h': isHorizontal, 'v': isVertical}

// classEscape parses the rest of an escape sequence for a class, such as \d.
func (p *parser) classEscape() (c class, ok bool) {
	if p.at == len(p.text) {
		return nil, false
	}
	letter := p.text[p.at]
	negated := unicode.IsUpper(letter)
	switch c, ok = escapes[unicode.ToLower(letter)]; {
	case ok:
		p.at++
	case letter == 'p' || letter == 'P':
		p.at++
		c, ok = p.property(), true
	}
	if ok && negated {
		c = not(c)
	}
	return c, ok
}

// property parses the name of a Unicode property after \p.
func (p *parser) property() class {
	name := ""
	if p.take("{") {
		name = p.while(func(r rune) bool { return r != '}' })
		p.want("}", `malformed \P or \p sequence`)
	} else if p.at < len(p.text) {
		p.at++
		name = string(p.text[p.at-1])
	}
	name, negated := strings.CutPrefix(strings.TrimSpace(name), "^")
	name = loose(name)
	found := propertyNamed(name)
	if p.fold && slices.Contains([]string{"lu", "ll", "lt"}, name) {
		found = special["l&"]
	}
	if found == nil {
		p.fail(`unknown property after \P or \p`)
	}
	if negated {
		return not(found)
	}
	return found
}

var special = map[string]class{
	"any": anySymbol,
	"l&":  func(r rune) bool { return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt) },
	"xan": func(r rune) bool { return unicode.In(r, unicode.L, unicode.N) },
	"xsp": func(r rune) bool { return unicode.Is(unicode.Z, r) || isSpace(r) || isVertical(r) },
	"xps": func(r rune) bool { return unicode.Is(unicode.Z, r) || isSpace(r) || isVertical(r) },
	"xwd": func(r rune) bool { return unicode.In(r, unicode.L, unicode.N, unicode.Mn, unicode.Pc) },
	"xuc": func(r rune) bool { return strings.ContainsRune("$@`", r) || r >= 0xa0 },
}

// loose returns a name of a property without case and separators.
func loose(name string) string {
	return strings.NewReplacer(" ", "", "_", "", "-", "").Replace(strings.ToLower(name))
}

func propertyNamed(name string) class {
	if c := special[name]; c != nil {
		return c
	}
	if name == "lc" {
		return special["l&"]
	}
	for _, prefix := range []string{"sc:", "scx:", "script:", "scriptextensions:", "sc=", "scx=", "script=", "scriptextensions="} {
		name = strings.TrimPrefix(name, prefix)
	}
	for _, tables := range []map[string]*unicode.RangeTable{unicode.Categories, unicode.Scripts, unicode.Properties} {
		for long, table := range maps.All(tables) {
			if loose(long) == name {
				return func(r rune) bool { return unicode.Is(table, r) }
			}
		}
	}
	return nil
}

// class parses the rest of a class in brackets.
func (p *parser) class() bracket {
	if p.at--; p.posixName(":") != "" || p.posixName(".") != "" || p.posixName("=") != "" {
		p.fail("POSIX named classes are supported only within a class")
	}
	p.at++
	negated := p.take("^")
	p.inClass = true
	var parts []class
	for first := true; ; first = false {
		p.skip()
		if p.at == len(p.text) {
			p.fail("missing terminating ] for character class")
		}
		if !first && !p.literal && p.take("]") {
			break
		}
		parts = append(parts, p.classPart())
	}
	p.inClass = false
	c := class(func(r rune) bool {
		for _, part := range parts {
			if part(r) {
				return true
			}
		}
		return false
	})
	if p.fold {
		c = p.folded(c)
	}
	if negated {
		c = not(c)
	}
	return bracket{c, len(parts)}
}

// classPart parses a symbol, a range or a class within a class.
func (p *parser) classPart() class {
	low, named := p.classItem()
	if named != nil {
		at := p.at
		if p.skip(); !p.literal && p.take("-") {
			if p.skip(); !p.peek("]") {
				p.fail("invalid range in character class")
			}
		}
		p.at = at
		return named
	}
	high, from := low, p.at
	literal := p.literal
	if p.skip(); !p.literal && p.take("-") {
		p.skip()
		if p.at == len(p.text) || !p.literal && p.peek("]") {
			p.at, p.literal = from, literal
		} else if high, named = p.classItem(); named != nil {
			p.fail("invalid range in character class")
		}
	}
	if high < low {
		p.fail("range out of order in character class")
	}
	return func(r rune) bool { return r >= low && r <= high }
}

// classItem parses a symbol or a class within a class.
func (p *parser) classItem() (symbol rune, named class) {
	if !p.literal {
		switch {
		case p.peek("[:", "[.", "[="):
			if c := p.posixClass(); c != nil {
				return 0, c
			}
		case p.take(`\`):
			if c, ok := p.classEscape(); ok {
				return 0, c
			}
			if p.take("b") {
				return '\b', nil
			}
			if p.peek("N", "B", "R", "X") {
				p.fail("escape sequence is invalid in character class")
			}
			if p.peek("8", "9", "g", "k") { // a reference elsewhere
				break
			}
			return p.code(), nil
		}
	}
	p.at++
	return p.text[p.at-1], nil
}

// posixName returns the name with its brackets if the text continues with a name such as [:alpha:].
func (p *parser) posixName(kind string) string {
	start := p.at
	defer func() { p.at = start }()
	if !p.take("[" + kind) {
		return ""
	}
	p.while(func(r rune) bool { return !strings.ContainsRune(kind+`]\`, r) })
	if !p.take(kind + "]") {
		return ""
	}
	return string(p.text[start:p.at])
}

// posixClass parses a class such as [:alpha:]. It returns nil if the bracket is a symbol.
func (p *parser) posixClass() class {
	if p.posixName(".") != "" || p.posixName("=") != "" {
		p.fail("POSIX collating elements are not supported")
	}
	name := p.posixName(":")
	if name == "" {
		return nil
	}
	p.at += len(name)
	name, negated := strings.CutPrefix(strings.Trim(name, "[:]"), "^")
	c := posix[name]
	if c == nil {
		p.fail("unknown POSIX class name")
	}
	if p.fold && (name == "upper" || name == "lower") {
		c = isLetter
	}
	if negated {
		c = not(c)
	}
	return c
}

// folding returns the function that maps the symbols that match each other to the same symbol.
func (p *parser) folding() func(rune) rune {
	switch {
	case !p.fold:
		return func(r rune) rune { return r }
	case p.utf:
		return func(r rune) rune { // the smallest of the equal symbols
			least := r
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				least = min(least, f)
			}
			return least
		}
	}
	return func(r rune) rune {
		if isUpper(r) {
			return r + 'a' - 'A'
		}
		return r
	}
}

// folded returns a class that also matches the other case of the members of c.
func (p *parser) folded(c class) class {
	if p.utf {
		return func(r rune) bool {
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				if c(f) {
					return true
				}
			}
			return c(r)
		}
	}
	return func(r rune) bool { return c(r) || isLetter(r) && c(r^0x20) }
}
