package pcre

import (
	"strconv"
	"strings"
	"unicode"
)

// escape parses the rest of an escape sequence outside of a class.
func (p *parser) escape() (item node, repeatable bool) {
	if c, ok := p.classEscape(); ok {
		return c, true
	}
	switch {
	case p.take("A"):
		return assertion(func(_ *matcher, at int) bool { return at == 0 }), false
	case p.take("G"):
		return assertion(func(_ *matcher, at int) bool { return at == 0 }), false
	case p.take("Z"):
		return assertion(atEnd), false
	case p.take("z"):
		return assertion(func(m *matcher, at int) bool { return at == len(m.text) }), false
	case p.take("b"):
		return assertion(wordEdge), false
	case p.take("B"):
		return assertion(func(m *matcher, at int) bool { return !wordEdge(m, at) }), false
	case p.take("K"): // it moves only the start of the match
		if p.looking > 0 {
			p.fail(`\K is not allowed in lookarounds (but see PCRE2_EXTRA_ALLOW_LOOKAROUND_BSK)`)
		}
		return sequence{}, false
	case p.take("C"):
		return class(anySymbol), true
	case p.take("N"):
		if at := p.at; p.peek("{") {
			if _, _, ok := p.quantifier(); !ok {
				p.fail(`\N{name} is not supported`)
			}
			p.at = at
		}
		return class(notNewline), true
	case p.take("R"):
		return atomic{alternatives{{p.literalText("\r\n")}, {class(isVertical)}}}, true
	case p.take("X"):
		mark := class(func(r rune) bool { return p.utf && unicode.Is(unicode.M, r) })
		return atomic{alternatives{{p.literalText("\r\n")}, {class(anySymbol), &repeat{body: mark, most: -1}}}}, true
	case p.take("g<"):
		return p.callTo(">"), true
	case p.take("g'"):
		return p.callTo("'"), true
	case p.take("g{"):
		if number := p.number(); number != "" {
			p.want("}", `\g is not followed by a braced, angle-bracketed, or quoted name/number or by a plain number`)
			return p.back(number), true
		}
		return p.byName(p.groupName("}")), true
	case p.take("g"):
		number := p.number()
		if number == "" {
			p.fail(`\g is not followed by a braced, angle-bracketed, or quoted name/number or by a plain number`)
		}
		return p.back(number), true
	case p.take("k{"):
		return p.byName(p.groupName("}")), true
	case p.take("k<"):
		return p.byName(p.groupName(">")), true
	case p.take("k'"):
		return p.byName(p.groupName("'")), true
	case p.take("k"):
		p.fail(`\k is not followed by a braced, angle-bracketed, or quoted name`)
	}
	if number := p.backReference(); number != "" {
		return p.back(number), true
	}
	return p.symbol(p.code()), true
}

func (p *parser) back(number string) node {
	if number == "0" {
		p.fail("invalid reference to group 0")
	}
	return p.byName(number)
}

func (p *parser) callTo(end string) node {
	if number := p.number(); number != "" {
		p.want(end, "syntax error in subpattern number (missing terminator?)")
		return p.call(number)
	}
	return p.call(p.groupName(end))
}

func (p *parser) literalText(text string) (all sequence) {
	for _, c := range text {
		all = append(all, class(func(r rune) bool { return r == c }))
	}
	return all
}

// backReference parses the number of a back-reference, and returns "" if the digits are an octal number: if they begin
// with 0, or are at least 10 and there are not as many groups.
func (p *parser) backReference() string {
	from := p.at
	if p.peek("0") {
		return ""
	}
	digits := p.while(isDigit)
	if n, err := strconv.Atoi(digits); err == nil && (n < 10 || digits[0] >= '8' || n <= p.count) {
		return digits
	}
	p.at = from
	return ""
}

// controls are the escape sequences for single control characters.
var controls = map[rune]rune{'a': '\a', 'e': 0x1b, 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// code parses the rest of an escape sequence for one symbol.
func (p *parser) code() rune {
	if p.at == len(p.text) {
		p.fail(`\ at end of pattern`)
	}
	c := p.text[p.at]
	p.at++
	control, ok := controls[c]
	switch {
	case ok:
		return control
	case c == 'c':
		if p.at == len(p.text) {
			p.fail(`\c at end of pattern`)
		}
		p.at++
		c = p.text[p.at-1]
		if c < ' ' || c > '~' {
			p.fail(`\c must be followed by a printable ASCII character`)
		}
		return unicode.ToUpper(c) ^ 0x40
	case c == 'o':
		p.want("{", `missing opening brace after \o`)
		return p.braced(8)
	case c == 'x' && p.take("{"):
		return p.braced(16)
	case c == 'x':
		return p.digits(16, 2)
	case c >= '0' && c <= '7':
		p.at--
		return p.digits(8, 3)
	case c < 0x80 && (isDigit(c) || unicode.IsLetter(c)):
		p.fail(`unrecognized character follows \`)
	}
	return c
}

func (p *parser) braced(base int) rune {
	p.blanks()
	c := p.digits(base, 10)
	p.blanks()
	p.want("}", "non-octal or non-hex character, or missing closing brace")
	return c
}

// digits parses at most the given number of digits.
func (p *parser) digits(base, most int) rune {
	from := p.at
	text := p.while(func(r rune) bool {
		return p.at-from < most && strings.ContainsRune("0123456789abcdef"[:base], unicode.ToLower(r))
	})
	limit := int64(0xff)
	if p.utf {
		limit = unicode.MaxRune
	}
	c, err := strconv.ParseInt(text, base, 64)
	if err != nil {
		p.fail("digits missing")
	}
	if c > limit {
		p.fail("character code point value is too large")
	}
	return rune(c)
}
