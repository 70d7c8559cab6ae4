package config

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
)

// handler reads the handler of w. Exactly one is required.
func (f *fields) handler(w *Worker) {
	first := ""
	for _, name := range []string{"http", "exec", "process"} {
		x, found := f.get(name)
		switch {
		case !found:
		case first != "":
			f.failAt(x.keyAt, "%s has two handlers, %s and %s: keep one", f.owner, first, name)
		case name == "http":
			w.HTTP = x.http()
		case name == "exec":
			w.Exec = x.exec()
		default:
			w.Process = x.process()
		}
		if found {
			first = name
		}
	}
	if first == "" {
		f.missing(f.owner+" has no handler: add http: http://host:port/path, exec: [PROGRAM, ARGUMENT] or process: [PROGRAM, ARGUMENT]", "http", "exec", "process", "preset")
	}
	f.refuse("belongs to http; write http: {url: http://host:port/path, headers: …}", "headers")
	f.refuse("belongs to the program; write exec: {command: [PROGRAM, ARGUMENT], env: …}, or process: {command: …, env: …}", "env")
	f.refuse("belongs to process; write process: {command: [PROGRAM, ARGUMENT], processes: …}", "processes", "max_messages", "max_memory")
	f.refuse("belongs to the handler; write http: {url: …, timeout: …}, or exec: {command: …, timeout: …}", "timeout")
}

// http reads a URL, or a mapping with a URL.
func (v value) http() *HTTP {
	h := &HTTP{At: v.at}
	if k := v.kind(); k != "a string" && k != "a mapping" {
		v.wrong("a URL or {url: …, timeout: …, headers: …, retry_after: …}")
		return h
	}
	var secrets []string // from headers
	v.short("http", "url", "http://host:port/path", func(x value) { h.URL, h.Secrets, _ = x.service() }, func(f *fields) {
		read(f, "timeout", &h.Timeout, duration(time.Millisecond))
		f.with("headers", func(x value) { h.Headers, secrets = x.headers() })
		f.certificates(&h.At, &h.CACertFile, &h.CertFile, &h.KeyFile)
		read(f, "retry_after", &h.Pause, choose(is("message", false), is("queue", true)))
	})
	h.Secrets = append(h.Secrets, secrets...)
	if h.CACertFile+h.CertFile+h.KeyFile != "" && h.URL != "" && !strings.HasPrefix(h.URL, "https:") {
		v.failAt(h.At, "cacertfile, certfile and keyfile require a URL that begins with https://")
	}
	return h
}

// certificates reads the PEM files of a TLS client. at is the position of the last file.
func (f *fields) certificates(at *Position, ca, cert, key *string) {
	for _, file := range []struct {
		key  string
		path *string
	}{{"cacertfile", ca}, {"certfile", cert}, {"keyfile", key}} {
		f.with(file.key, func(x value) {
			*at = x.at
			*file.path, _ = path("cert.pem")(x)
		})
	}
	if (*cert == "") != (*key == "") {
		f.failAt(*at, "%s needs certfile and keyfile together: add the other one", f.owner)
	}
}

// headers reads HTTP request headers. It also returns the values of variables in the headers.
func (v value) headers() (all []Pair, secrets []string) {
	return v.pairs(func(p field, text string) bool {
		switch {
		case !isToken(p.key):
			return p.failAt(p.keyAt, "%s is not a name of an HTTP header: use letters, digits and -", brief.Quoted(shownKey(p.key)))
		case strings.EqualFold(p.key, "Content-Length") || strings.EqualFold(p.key, "Transfer-Encoding") ||
			strings.EqualFold(p.key, "Connection"):
			return p.failAt(p.keyAt, "%s is set by the HTTP client: remove it", p.key)
		case len(p.key) > 8 && strings.EqualFold(p.key[:8], "Reprise-"):
			return p.failAt(p.keyAt, "%s is reserved for properties of the message: use another name", p.key)
		case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return p.fail("%s contains a line break or another control character: remove it", p.name)
		}
		return true
	})
}

func isToken(s string) bool {
	for _, r := range s {
		if r > 0x7e || r <= ' ' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) {
			return false
		}
	}
	return s != ""
}

// exec reads a command, or a mapping with a command.
func (v value) exec() *Exec {
	e := &Exec{Dir: v.dir}
	v.program("exec", e, func(*fields) {})
	return e
}

// process reads a command, or a mapping with a command, for a program that keeps running.
func (v value) process() *Process {
	p := &Process{Exec: Exec{Dir: v.dir}}
	v.program("process", &p.Exec, func(f *fields) {
		read(f, "processes", &p.Processes, integer(1, maxConcurrency))
		read(f, "max_messages", &p.MaxMessages, integer(1, math.MaxInt32))
		read(f, "max_memory", &p.MaxMemory, value.size)
		read(f, "retry_after", &p.Pause, choose(is("message", false), is("queue", true)))
	})
	return p
}

// program reads the command and the settings of a handler that is a program.
func (v value) program(key string, e *Exec, more func(*fields)) {
	switch v.kind() {
	case "a list", "a mapping":
	case "a string":
		s, advice := v.plain(), ""
		if !looksSecret(s) {
			advice = yamlList(strings.Fields(s)) + ", or for a shell: " + key + ": [sh, -c, " + strconv.Quote(s) + "]"
		}
		v.fail("%s must be a list of a program and its arguments; write %[1]s: %s", key, cmp.Or(advice, "[./program, --flag]"))
		return
	default:
		v.wrong("a list such as [./program, --flag] or {command: [./program], dir: …, env: …, timeout: …}")
		return
	}
	v.short(key, "command", "[./program, --flag]", func(x value) { x.command(e) }, func(f *fields) {
		read(f, "dir", &e.Dir, path("/srv/work"))
		f.with("env", func(x value) { e.Env = x.environment() })
		read(f, "timeout", &e.Timeout, duration(time.Millisecond))
		more(f)
	})
}

func (v value) command(e *Exec) {
	for i, item := range v.items("a list of the program and its arguments, such as [./program, --flag]") {
		word, ok := item.word()
		switch {
		case !ok:
		case i == 0 && word == "":
			item.fail("program name must not be empty; write [./program, --flag]")
		case strings.ContainsRune(word, 0):
			item.fail("%s contains a NUL character, which programs cannot receive: remove it", item.name)
		}
		if i == 0 {
			e.At = item.at
		}
		e.Command = append(e.Command, word)
	}
}

// environment reads the environment variables of a program.
func (v value) environment() []Pair {
	all, _ := v.pairs(func(p field, text string) bool {
		switch {
		case !variable.MatchString(p.key):
			return p.failAt(p.keyAt, "%s is not a name of an environment variable: use letters, digits and _", brief.Quoted(shownKey(p.key)))
		case strings.HasPrefix(p.key, "REPRISE_"):
			return p.failAt(p.keyAt, "%s is reserved for properties of the message: use another name", p.key)
		case strings.ContainsRune(text, 0):
			return p.fail("%s contains a NUL character, which programs cannot receive: remove it", p.name)
		}
		return true
	})
	return all
}

// pairs reads a mapping from arbitrary names to texts. It omits the pairs for which check reports a problem. It also
// returns the values of variables.
func (v value) pairs(check func(p field, text string) bool) (all []Pair, variables []string) {
	f, ok := v.fields(v.name)
	if !ok {
		return nil, nil
	}
	for _, p := range f.pairs {
		p.value = p.expanded()
		if text, ok := p.word(); ok && check(p, text) {
			all = append(all, Pair{p.key, text})
			variables = append(variables, p.secrets...)
		}
	}
	return all, variables
}

// yamlList formats words as a YAML list.
func yamlList(words []string) string {
	for i, w := range words {
		w = strings.Trim(w, `"'`)
		words[i] = w
		if w == "" || strings.ContainsAny(w, `,[]{}#&*!|>'"%@:`+"`") {
			words[i] = strconv.Quote(w)
		}
	}
	return "[" + strings.Join(words, ", ") + "]"
}
