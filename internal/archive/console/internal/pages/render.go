package pages

import (
	"bytes"
	"crypto/rand"
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

	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
)

//go:embed templates/*.html
var templateFiles embed.FS

// pageSets maps each prefix to the result of templates.
var pageSets sync.Map

// templates returns the templates of the pages by name. A page consists of the common frame and the blocks in its file.
// The URLs in the pages begin with the prefix. The files are parsed on first use, because most commands do not show
// pages.
func templates(prefix string) (map[string]*template.Template, error) {
	if set, ok := pageSets.Load(prefix); ok {
		return set.(map[string]*template.Template), nil
	}
	shared := template.New("").Funcs(functions).Funcs(template.FuncMap{"prefix": func() string { return prefix }})
	if _, err := shared.ParseFS(templateFiles, "templates/_*.html"); err != nil {
		return nil, err
	}
	files, err := templateFiles.ReadDir("templates")
	if err != nil {
		return nil, err
	}
	all := map[string]*template.Template{}
	for _, f := range files {
		name, _ := strings.CutSuffix(f.Name(), ".html")
		if !strings.HasPrefix(name, "_") {
			t, err := shared.Clone()
			if err != nil {
				return nil, err
			}
			if all[name], err = t.ParseFS(templateFiles, path.Join("templates", f.Name())); err != nil {
				return nil, err
			}
		}
	}
	set, _ := pageSets.LoadOrStore(prefix, all)
	return set.(map[string]*template.Template), nil
}

// page contains the data of the frame and, in Data, the data of the page.
type page struct {
	Title string
	Nav   string // menu entry of the page
	Flash *flash // result of the previous request
	Data  any

	// Set by render.
	Now        time.Time
	Who        failed.Actor
	Role       access.Role
	CanLogOut  bool
	CanOperate bool
	IsAdmin    bool
	Waiting    int64 // messages in state failed
	Running    int   // number of running replays
	HasOutbox  bool
}

// flash describes the result of the previous request and offers an undo.
type flash struct {
	Text   string
	Undo   []failed.ID  // messages to restore
	Link   template.URL // page with details
	Linked string       // label of Link
}

// render writes a page. If render returns an error, it has not written anything.
func render(c *web.Call, status int, name string, p page, data any) error {
	p.Data = data
	p.Now = c.Clock()
	p.Who, p.Role = c.Who.Actor, c.Who.Role
	p.CanLogOut, p.HasOutbox = c.Who.Session != "", c.Outbox != nil
	p.CanOperate, p.IsAdmin = c.Who.Role >= access.Operate, c.Who.Role >= access.Admin
	if c.Who.Role >= access.View && !c.Unavailable {
		fillFrame(c, &p)
	}
	var b bytes.Buffer
	pages, err := templates(c.Prefix)
	if err != nil {
		return err
	}
	if err := pages[name].ExecuteTemplate(&b, "frame", p); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	c.W.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.W.WriteHeader(status)
	_, _ = b.WriteTo(c.W) // an error means that the client has disconnected
	return nil
}

// fillFrame fills in the figures in the menu. If the archive returns an error, the page does not show these figures.
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

// functions contains the functions that templates can call.
var functions = template.FuncMap{
	"num":  number(show.Thousands),
	"rate": show.PerSecond,
	"size": show.ByteSize,
	"plural": func(n any, one string) (string, error) {
		return number(func(n int64) string { return show.Plural(n, one) })(n)
	},
	"visible":  ofText(brief.Visible),
	"shell":    brief.Shell,
	"sentence": sentence,
	"capital":  capital,
	"line":     ofText(show.FirstLine),
	"when":     func(now, t time.Time) template.HTML { return relative(t, "", show.Ago(now, t)) },
	"due":      func(now, t time.Time) template.HTML { return relative(t, "due", show.Due(now, t)) },
	"at":       show.Exact,
	"icon":     show.Icon,
	"tag":      show.Tag,

	"shown_state": shownState,
	"total":       func(t store.Total) string { return show.Thousands(t.N) + more(t) },
	"textual":     ofText(func(name string) string { return params.Text(name).Encode() }),
	"dict":        dict,

	// submission returns the hidden field that claimSubmission reads.
	"submission": func() template.HTML {
		return template.HTML(`<input type="hidden" name="submission" value="` + rand.Text() + `">`)
	},

	"parts":       ofText(nameParts),
	"groups_of":   ofText(func(queue string) template.URL { return web.HrefGroups(params.Text(queue)) }),
	"for_message": web.HrefMessage,
}

// shownState returns the state of a message, or "failed again" if the message failed again after its replay.
func shownState(s failed.State, o failed.Outcome) string {
	if s == failed.Replayed && o == failed.OutcomeFailedAgain {
		return string(o)
	}
	return string(s)
}

// ofText returns a function for all types of strings in the pages.
func ofText[T any](f func(string) T) func(any) T {
	return func(text any) T { return f(fmt.Sprint(text)) }
}

// number returns format for the types of numbers in the pages.
func number(format func(int64) string) func(n any) (string, error) {
	return func(n any) (string, error) {
		switch n := n.(type) {
		case int:
			return format(int64(n)), nil
		case int64:
			return format(n), nil
		case uint64:
			return format(int64(n)), nil
		case failed.ID:
			return format(int64(n)), nil
		}
		return "", fmt.Errorf("%T is not a number type of the pages", n)
	}
}

func more(t store.Total) string {
	if t.More {
		return "+"
	}
	return ""
}

// relative returns a time element that shows text, a time relative to now, and has the exact time in a tooltip. The
// parameters must not contain markup.
func relative(t time.Time, kind, text string) template.HTML {
	if t.IsZero() {
		return `<span class="soft">unknown</span>`
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s" data-ago="%s">%s</time>`,
		t.UTC().Format(time.RFC3339), show.Exact(t), kind, text))
}

// nameParts formats a name so that lines break only after separators, such as dots and dashes.
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

// nameBreak matches a part of a name and the separators after it.
var nameBreak = regexp.MustCompile(`(?s)[^._:/-]*[._:/-]+|.+$`)

// percent returns part as a percentage of whole, or 100 if whole is 0.
func percent(part, whole int64) int64 {
	if whole == 0 {
		return 100
	}
	return part * 100 / whole
}

// dict converts alternating names and values into a map, for templates that need several arguments.
func dict(pairs ...any) map[string]any {
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}

// capital returns s with an initial capital letter.
func capital(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	if size == 0 || r == utf8.RuneError {
		return s
	}
	return string(unicode.ToUpper(r)) + s[size:]
}

// sentence formats an error as a sentence, with a capital letter and a period.
func sentence(s string) string {
	if s = capital(s); s == "" {
		return ""
	}
	if !strings.ContainsAny(s[len(s)-1:], ".!?") {
		s += "."
	}
	return brief.Visible(s)
}
