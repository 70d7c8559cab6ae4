package config

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// handler reads the one handler that w needs.
func (f *fields) handler(w *Worker) {
	http, isHTTP := f.get("http")
	exec, isExec := f.get("exec")
	switch {
	case isHTTP && isExec:
		f.decoder.fail(f.keyAt("exec"), "%s has two handlers, http and exec: keep one", f.owner)
	case isHTTP:
		w.HTTP = http.http()
	case isExec:
		w.Exec = exec.exec()
	default:
		f.missing(f.owner+" has no handler: add http: http://host:port/path or exec: [PROGRAM, ARGUMENT]", "http", "exec", "preset")
	}
	f.refuse("belongs to http: write http: {url: http://host:port/path, headers: …}", "headers")
	f.refuse("belongs to exec: write exec: {command: [PROGRAM, ARGUMENT], env: …}", "env")
	f.refuse("belongs to the handler: write http: {url: …, timeout: …}, or exec: {command: …, timeout: …}", "timeout")
}

// http reads a URL or a mapping with one.
func (v value) http() *HTTP {
	h := &HTTP{}
	if v.kind() == "a text" {
		h.URL, h.Secrets = v.endpoint()
		return h
	}
	if v.kind() != "a mapping" {
		v.wrong("a URL or {url: …, timeout: …, headers: …, retry_after: …}")
		return h
	}
	f, ok := v.fields("http")
	if !ok {
		return h
	}
	defer f.finish()
	if u, ok := f.get("url"); ok {
		h.URL, h.Secrets = u.endpoint()
	} else {
		f.missing("http has no url: add url: http://host:port/path", "url")
	}
	f.durationInto("timeout", &h.Timeout, time.Millisecond)
	f.read("headers", func(x value) { h.Headers, h.Secrets = x.headers(h.Secrets) })
	if x, ok := f.get("retry_after"); ok {
		what, _ := x.oneOf("message", "queue")
		h.Pause = what == "queue"
	}
	return h
}

// headers reads header fields that are sent along with each message, and adds what
// their variables stand for to the secrets.
func (v value) headers(secrets []string) ([]Pair, []string) {
	var all []Pair
	for _, p := range v.pairs() {
		switch {
		case !isToken(p.key):
			v.decoder.fail(p.keyAt, "%s is no name of an HTTP header: letters, digits and - make one", quoted(shownKey(p.key)))
		case strings.EqualFold(p.key, "Content-Length") || strings.EqualFold(p.key, "Transfer-Encoding") ||
			strings.EqualFold(p.key, "Connection"):
			v.decoder.fail(p.keyAt, "%s is set by the HTTP connection itself: remove it", p.key)
		case len(p.key) > 8 && strings.EqualFold(p.key[:8], "Reprise-"):
			v.decoder.fail(p.keyAt, "%s is a name that describes the message: give another one", p.key)
		case strings.ContainsFunc(p.text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			p.fail("%s has a line break or another control character: remove it", p.name)
		default:
			all = append(all, Pair{p.key, p.text})
			secrets = append(secrets, p.values...)
		}
	}
	return all, secrets
}

func isToken(s string) bool {
	for _, r := range s {
		if r > 0x7e || r <= ' ' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) {
			return false
		}
	}
	return s != ""
}

// exec reads a command or a mapping with one.
func (v value) exec() *Exec {
	e := &Exec{Dir: v.dir}
	switch v.kind() {
	case "a list":
		v.command(e)
		return e
	case "a mapping":
	case "a text":
		s, _ := v.word()
		if looksSecret(s) {
			v.fail("exec is a text: write a list of program and arguments: exec: [./program, --flag]")
			return e
		}
		v.fail("%s", "exec is a text: write a list of program and arguments: exec: "+list(strings.Fields(s))+
			", or for a shell: exec: [sh, -c, "+strconv.Quote(s)+"]")
		return e
	default:
		v.wrong("a list such as [./program, --flag] or {command: [./program], dir: …, env: …, timeout: …}")
		return e
	}
	f, ok := v.fields("exec")
	if !ok {
		return e
	}
	defer f.finish()
	if c, ok := f.get("command"); ok {
		c.command(e)
	} else {
		f.missing("exec has no command: add command: [./program, --flag]", "command")
	}
	if x, ok := f.get("dir"); ok {
		if dir, ok := x.text("/srv/work"); ok && !filepath.IsAbs(dir) {
			e.Dir = filepath.Join(v.dir, dir)
		} else if ok {
			e.Dir = dir
		}
	}
	f.read("env", func(x value) { e.Env = x.environment() })
	f.durationInto("timeout", &e.Timeout, time.Millisecond)
	return e
}

func (v value) command(e *Exec) {
	items, ok := v.items("the program and its arguments: [./program, --flag]")
	if !ok {
		return
	}
	e.At = v.at
	for i, item := range items {
		word, ok := item.word()
		switch {
		case !ok:
		case i == 0 && word == "":
			item.fail("the program has an empty name: write [./program, --flag]")
		case strings.ContainsRune(word, 0):
			item.fail("%s has a NUL character in it, which no program can be given: remove it", item.name)
		}
		if i == 0 {
			e.At = item.at
		}
		e.Command = append(e.Command, word)
	}
}

// environment reads variables for a program.
func (v value) environment() []Pair {
	var all []Pair
	for _, p := range v.pairs() {
		switch {
		case !variable.MatchString(p.key):
			v.decoder.fail(p.keyAt, "%s is no name of an environment variable: letters, digits and _ make one", quoted(shownKey(p.key)))
		case strings.HasPrefix(p.key, "REPRISE_"):
			v.decoder.fail(p.keyAt, "%s is a name that describes the message: give another one", p.key)
		case strings.ContainsRune(p.text, 0):
			p.fail("%s has a NUL character in it, which no program can be given: remove it", p.name)
		default:
			all = append(all, Pair{p.key, p.text})
		}
	}
	return all
}

type pair struct {
	field
	text   string
	values []string // of the variables in it
}

// pairs reads a mapping of names that are free to choose to texts.
func (v value) pairs() []pair {
	f, ok := v.fields(v.name)
	if !ok {
		return nil
	}
	var all []pair
	for _, p := range f.pairs {
		word, ok := p.word()
		if !ok {
			continue
		}
		if word, values, ok := p.expanded(word); ok {
			all = append(all, pair{p, word, values})
		}
	}
	return all
}

// list writes words as a YAML list.
func list(words []string) string {
	for i, w := range words {
		w = strings.Trim(w, `"'`)
		words[i] = w
		if w == "" || strings.ContainsAny(w, `,[]{}#&*!|>'"%@:`+"`") {
			words[i] = strconv.Quote(w)
		}
	}
	return "[" + strings.Join(words, ", ") + "]"
}
