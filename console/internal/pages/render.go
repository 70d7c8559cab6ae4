package pages

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/reprisemq/reprise/console/internal/access"
	"github.com/reprisemq/reprise/console/internal/show"
	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/failed"
)

//go:embed templates/*.html
var templateFiles embed.FS

// pageSets are the results of templates, by the prefix.
var pageSets sync.Map

// templates returns the pages by name: each file's own blocks in the frame that all share. The prefix precedes the
// addresses in them. Most commands show no page, so they do not parse any.
func templates(prefix string) map[string]*template.Template {
	if set, ok := pageSets.Load(prefix); ok {
		return set.(map[string]*template.Template)
	}
	shared := template.New("").Funcs(functions).Funcs(template.FuncMap{"prefix": func() string { return prefix }})
	template.Must(shared.ParseFS(templateFiles, "templates/_*.html"))
	files, err := templateFiles.ReadDir("templates")
	if err != nil {
		panic(err)
	}
	all := map[string]*template.Template{}
	for _, f := range files {
		name, _ := strings.CutSuffix(f.Name(), ".html")
		if !strings.HasPrefix(name, "_") {
			t := template.Must(shared.Clone())
			all[name] = template.Must(t.ParseFS(templateFiles, path.Join("templates", f.Name())))
		}
	}
	set, _ := pageSets.LoadOrStore(prefix, all)
	return set.(map[string]*template.Template)
}

// page is what each page's frame needs, and in Data what the page itself does.
type page struct {
	Title string
	Nav   string // the entry of the menu that it belongs to
	Flash *flash // what was just done
	Data  any

	// Filled by render.
	Now        time.Time
	Who        failed.Actor
	Role       access.Role
	CanLogOut  bool
	CanOperate bool
	IsAdmin    bool
	Waiting    int64 // messages in state failed
	Running    int   // replays
}

// flash is a word about what was just done, and how to undo it.
type flash struct {
	Text   string
	Undo   []failed.ID  // to restore
	Link   template.URL // where to see more
	Linked string       // its text
}

// render writes a page, or returns an error and has written nothing.
func render(c *web.Call, status int, name string, p page, data any) error {
	p.Data = data
	p.Now = c.Clock()
	p.Who, p.Role = c.Who.Actor, c.Who.Role
	p.CanLogOut = c.Who.Session != ""
	p.CanOperate, p.IsAdmin = c.Who.Role >= access.Operate, c.Who.Role >= access.Admin
	if c.Who.Role >= access.View {
		fillFrame(c, &p)
	}
	var b bytes.Buffer
	if err := templates(c.Prefix)[name].ExecuteTemplate(&b, "frame", p); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	c.W.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.W.WriteHeader(status)
	_, _ = b.WriteTo(c.W) // to nobody, if it fails: they have gone
	return nil
}

// frame fills what the menu says. A page is shown without it rather than not at all.
func fillFrame(c *web.Call, p *page) {
	queues, err := c.Archive.Queues(c.R.Context())
	if err != nil {
		return
	}
	for _, q := range queues {
		p.Waiting += q.Counts.Failed
	}
	if running, err := c.Archive.Running(c.R.Context()); err == nil {
		p.Running = len(running)
	}
}

// functions are what templates can call.
var functions = template.FuncMap{
	"num":      func(n any) string { return show.Thousands(integer(n)) },
	"rate":     show.PerSecond,
	"size":     show.ByteSize,
	"plural":   func(n any, one string) string { return show.Plural(integer(n), one) },
	"visible":  show.Visible,
	"sentence": sentence,
	"capital":  capital,
	"line":     show.FirstLine,
	"when":     when,
	"at":       show.Exact,
	"icon":     show.Icon,
	"tag":      show.Tag,
	"total":    func(t failed.Total) string { return show.Thousands(t.N) + more(t) },
	"textual":  func(name string) string { return failed.Filter{Queue: name}.Values().Get("queue") },
	"dict":     dict,

	"parts":       nameParts,
	"groups_of":   web.HrefGroups,
	"for_message": web.HrefMessage,
}

func integer(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	case uint64:
		return int64(n)
	case failed.ID:
		return int64(n)
	}
	panic(fmt.Sprintf("%T is no number that pages have", n))
}

func more(t failed.Total) string {
	if t.More {
		return "+"
	}
	return ""
}

// when is a time as it is told: how long ago, with the exact one in a title. What it
// is made of cannot contain markup.
func when(now, t time.Time) template.HTML {
	if t.IsZero() {
		return `<span class="soft">unknown</span>`
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s" data-ago>%s</time>`,
		t.UTC().Format(time.RFC3339), show.Exact(t), show.Ago(now, t)))
}

// nameParts is a name that can break after its dots and dashes, and not in the middle of a word.
func nameParts(name string) template.HTML {
	var b strings.Builder
	b.WriteString(`<span class="name-parts">`)
	for _, part := range nameBreak.FindAllString(name, -1) {
		b.WriteString(template.HTMLEscapeString(part))
		b.WriteString("<wbr>")
	}
	b.WriteString(`</span>`)
	return template.HTML(b.String())
}

// nameBreak matches a part of a name with the separators behind it.
var nameBreak = regexp.MustCompile(`(?s)[^._:/-]*[._:/-]+|.+$`)

// percent is the part of a whole, of 100.
func percent(part, whole int64) int64 {
	if whole == 0 {
		return 100
	}
	return part * 100 / whole
}

// dict makes a map of names and values, for templates that take several.
func dict(pairs ...any) map[string]any {
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}

// capital is s with a capital letter.
func capital(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	if size == 0 || r == utf8.RuneError {
		return s
	}
	return string(unicode.ToUpper(r)) + s[size:]
}

// sentence is an error's text as one: with a capital letter and a full stop.
func sentence(s string) string {
	if s = capital(s); s == "" {
		return ""
	}
	if !strings.ContainsAny(s[len(s)-1:], ".!?") {
		s += "."
	}
	return show.Visible(s)
}
