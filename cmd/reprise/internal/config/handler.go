package config

import (
	"cmp"
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
	if k := v.kind(); k != "a text" && k != "a mapping" {
		v.wrong("a URL or {url: …, timeout: …, headers: …, retry_after: …}")
		return h
	}
	var secrets []string // of headers
	v.short("http", "url", "http://host:port/path", func(x value) { h.URL, h.Secrets = x.endpoint() }, func(f *fields) {
		f.durationInto("timeout", &h.Timeout, time.Millisecond)
		f.read("headers", func(x value) { h.Headers, secrets = x.headers() })
		f.read("retry_after", func(x value) {
			s, _ := x.oneOf("message", "queue")
			h.Pause = s == "queue"
		})
	})
	h.Secrets = append(h.Secrets, secrets...)
	return h
}

// headers reads header fields of requests, and the values of variables in them.
func (v value) headers() (all []Pair, secrets []string) {
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
	case "a list", "a mapping":
	case "a text":
		s, _ := v.word()
		advice := ""
		if !looksSecret(s) {
			advice = list(strings.Fields(s)) + ", or for a shell: exec: [sh, -c, " + strconv.Quote(s) + "]"
		}
		v.fail("exec is a text: write a list of program and arguments: exec: %s", cmp.Or(advice, "[./program, --flag]"))
		return e
	default:
		v.wrong("a list such as [./program, --flag] or {command: [./program], dir: …, env: …, timeout: …}")
		return e
	}
	v.short("exec", "command", "[./program, --flag]", func(x value) { x.command(e) }, func(f *fields) {
		f.read("dir", func(x value) {
			if dir, ok := x.text("/srv/work"); ok {
				e.Dir = dir
				if !filepath.IsAbs(dir) {
					e.Dir = filepath.Join(v.dir, dir)
				}
			}
		})
		f.read("env", func(x value) { e.Env = x.environment() })
		f.durationInto("timeout", &e.Timeout, time.Millisecond)
	})
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
