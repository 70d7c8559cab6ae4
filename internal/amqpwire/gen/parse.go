package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

type method struct {
	class, number         int
	className, methodName string // as the specification spells them
	content               bool
	doc                   string
	fields                []field
}

type field struct {
	name string // empty if reserved
	typ  string
	doc  string
}

// goTypes maps the types of the definition to those of the struct fields.
var goTypes = map[string]string{
	"octet":    "uint8",
	"short":    "uint16",
	"long":     "uint32",
	"longlong": "uint64",
	"bit":      "bool",
	"shortstr": "string",
	"rawstr":   "string",
	"longstr":  "string",
	"table":    "Table",
}

// parse reads the format that methods.def describes in its first lines.
func parse(def []byte) ([]method, error) {
	var (
		methods   []method
		class     int
		className string
	)
	for i, line := range strings.Split(string(def), "\n") {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		var err error
		switch {
		case line == "" || line[0] == '#':
		case words[0] == "class":
			class, className, err = parseHeading(words)
		case words[0] == "method":
			m := method{class: class, className: className}
			if len(words) == 4 && words[3] == "content" {
				m.content = true
				words = words[:3]
			}
			m.number, m.methodName, err = parseHeading(words)
			methods = append(methods, m)
		case len(methods) == 0:
			err = fmt.Errorf("%q outside a method", line)
		default:
			err = methods[len(methods)-1].parseLine(line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return methods, check(methods)
}

func parseHeading(words []string) (number int, name string, err error) {
	if len(words) != 3 {
		return 0, "", fmt.Errorf("want %s NUMBER NAME", words[0])
	}
	n, err := strconv.ParseUint(words[1], 10, 16)
	return int(n), words[2], err
}

func (m *method) parseLine(line string) error {
	head, doc, _ := strings.Cut(line, ":")
	doc = strings.TrimSpace(doc)
	words := strings.Fields(head)
	if len(words) == 0 {
		m.doc = doc
		return nil
	}
	if len(words) != 2 {
		return fmt.Errorf("want FIELD TYPE, have %q", head)
	}
	f := field{name: words[0], typ: words[1], doc: doc}
	if f.name == "-" {
		f.name = ""
	}
	if goTypes[f.typ] == "" {
		return fmt.Errorf("unknown type %q", f.typ)
	}
	m.fields = append(m.fields, f)
	return nil
}

// check finds the slips that would still compile.
func check(methods []method) error {
	ids := make(map[[2]int]bool)
	for _, m := range methods {
		name := m.className + "." + m.methodName
		id := [2]int{m.class, m.number}
		if ids[id] {
			return fmt.Errorf("%s: %d.%d is taken", name, m.class, m.number)
		}
		ids[id] = true
		if m.class == 0 || m.doc == "" {
			return fmt.Errorf("%s: no class or no documentation", name)
		}
		for i, f := range m.fields {
			same := func(o field) bool { return f.name != "" && o.name == f.name }
			if slices.ContainsFunc(m.fields[:i], same) {
				return fmt.Errorf("%s: two fields %s", name, f.name)
			}
		}
	}
	return nil
}
