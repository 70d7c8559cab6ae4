package archive

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Browser simulates an operator who uses a console. It follows links and submits forms exactly as the pages contain them.
type Browser struct {
	Console http.Handler
	Actor   string

	Slow func(request string, took time.Duration) // called for each request that exceeds the time limit; may be nil

	cookies []*http.Cookie
}

// slow is the time limit for a page. It is long, because a page sends several queries to a database.
const slow = time.Minute

// Page is a page that a browser has loaded.
type Page struct {
	Status int
	URL    *url.URL
	Text   string // visible content of the main part of the page

	root *html.Node
	main *html.Node
}

// Get opens the page at an address.
func (b *Browser) Get(address string) (*Page, error) { return b.do(http.MethodGet, address, nil) }

// do sends a request and follows redirects.
func (b *Browser) do(method, address string, form url.Values) (*Page, error) {
	for range 5 {
		var r *http.Request
		if method == http.MethodPost {
			r = httptest.NewRequest(method, address, strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		} else {
			r = httptest.NewRequest(method, address, nil)
		}
		r.Host, r.RemoteAddr = "127.0.0.1", "127.0.0.1:40000"
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if b.Actor != "" {
			r.Header.Set("Reprise-Actor", b.Actor)
		}
		for _, c := range b.cookies {
			r.AddCookie(c)
		}
		w, begun := httptest.NewRecorder(), time.Now()
		b.Console.ServeHTTP(w, r)
		if took := time.Since(begun); b.Slow != nil && took > slow {
			b.Slow(method+" "+address, took)
		}
		b.cookies = append(b.cookies, w.Result().Cookies()...)
		if w.Code == http.StatusSeeOther {
			method, address, form = http.MethodGet, w.Header().Get("Location"), nil
			continue
		}
		return read(w, r.URL)
	}
	return nil, fmt.Errorf("%s redirects endlessly", address)
}

func read(w *httptest.ResponseRecorder, at *url.URL) (*Page, error) {
	root, err := html.Parse(w.Body)
	if err != nil {
		return nil, err
	}
	p := &Page{Status: w.Code, URL: at, root: root, main: root}
	if main := find(root, func(n *html.Node) bool { return n.DataAtom == atom.Main }); len(main) == 1 {
		p.main = main[0]
	}
	p.Text = text(p.main)
	return p, nil
}

// Heading returns the heading of the page.
func (p *Page) Heading() string { return p.first(atom.H1, "") }

// Subtitle returns the line below the heading.
func (p *Page) Subtitle() string { return p.first(atom.P, "sub") }

// Alert returns the warning on the page, or "".
func (p *Page) Alert() string {
	for _, n := range find(p.main, func(n *html.Node) bool { return attr(n, "role") == "alert" }) {
		return text(n)
	}
	return ""
}

// Notice returns the result message of the page, such as "3 messages discarded."
func (p *Page) Notice() string {
	for _, n := range find(p.main, func(n *html.Node) bool { return attr(n, "role") == "status" && hasClass(n, "good") }) {
		return text(n)
	}
	return ""
}

func (p *Page) first(a atom.Atom, class string) string {
	for _, n := range find(p.main, func(n *html.Node) bool { return n.DataAtom == a && (class == "" || hasClass(n, class)) }) {
		return text(n)
	}
	return ""
}

// Link is a link on a page.
type Link struct{ Text, Address string }

// Links returns the links in the main part of the page.
func (p *Page) Links() (all []Link) {
	for _, n := range find(p.main, func(n *html.Node) bool { return n.DataAtom == atom.A && attr(n, "href") != "" }) {
		all = append(all, Link{text(n), attr(n, "href")})
	}
	return all
}

// Link returns the link with the given label. The result ok is false unless the page has exactly one such link.
func (p *Page) Link(label string) (l Link, ok bool) {
	for _, found := range p.Links() {
		if found.Text == label {
			if ok {
				return l, false
			}
			l, ok = found, true
		}
	}
	return l, ok
}

// LinksTo returns the links to paths directly below a prefix.
func (p *Page) LinksTo(prefix string) (all []Link) {
	for _, l := range p.Links() {
		if rest, ok := strings.CutPrefix(l.Address, prefix); ok && rest != "" && !strings.ContainsAny(rest, "/?") {
			all = append(all, l)
		}
	}
	return all
}

// Follow opens a link.
func (b *Browser) Follow(p *Page, l Link) (*Page, error) {
	to, err := p.URL.Parse(l.Address)
	if err != nil {
		return nil, err
	}
	return b.Get(to.RequestURI())
}

// Form is a form on a page, with its current values.
type Form struct {
	Action, Method string
	Values         url.Values
	Buttons        []Button

	page *Page
	node *html.Node
}

// Button is a button that submits a form.
type Button struct {
	Text                string
	Name, Value, Action string
}

// Forms returns the forms in the main part of the page.
func (p *Page) Forms() (all []*Form) {
	for _, n := range find(p.main, func(n *html.Node) bool { return n.DataAtom == atom.Form }) {
		f := &Form{Action: attr(n, "action"), Method: strings.ToUpper(attr(n, "method")), Values: url.Values{}, page: p, node: n}
		for _, field := range find(n, func(*html.Node) bool { return true }) {
			f.add(field)
		}
		all = append(all, f)
	}
	return all
}

func (f *Form) add(n *html.Node) {
	name := attr(n, "name")
	switch n.DataAtom {
	case atom.Button:
		if !has(n, "disabled") && attr(n, "type") != "button" {
			f.Buttons = append(f.Buttons, Button{text(n), name, attr(n, "value"), attr(n, "formaction")})
		}
	case atom.Input:
		kind := attr(n, "type")
		if name != "" && (kind != "checkbox" && kind != "radio" || has(n, "checked")) {
			f.Values.Add(name, attr(n, "value"))
		}
	case atom.Textarea:
		f.Values.Add(name, strings.ReplaceAll(rawText(n), "\n", "\r\n"))
	case atom.Select:
		f.Values.Add(name, selectedOption(n))
	}
}

func selectedOption(n *html.Node) string {
	options := find(n, func(n *html.Node) bool { return n.DataAtom == atom.Option })
	i := max(0, slices.IndexFunc(options, func(o *html.Node) bool { return has(o, "selected") }))
	if len(options) == 0 {
		return ""
	}
	if has(options[i], "value") {
		return attr(options[i], "value")
	}
	return text(options[i])
}

// Options returns the possible values of a field.
func (f *Form) Options(name string) (values []string) {
	for _, n := range find(f.node, func(n *html.Node) bool { return attr(n, "name") == name }) {
		switch n.DataAtom {
		case atom.Select:
			for _, o := range find(n, func(n *html.Node) bool { return n.DataAtom == atom.Option }) {
				values = append(values, attr(o, "value"))
			}
		case atom.Input:
			values = append(values, attr(n, "value"))
		}
	}
	return values
}

// FormTo returns the form with the given action. The result ok is false unless the page has exactly one such form.
func (p *Page) FormTo(action string) (f *Form, ok bool) {
	for _, found := range p.Forms() {
		if found.Action == action {
			if ok {
				return f, false
			}
			f, ok = found, true
		}
	}
	return f, ok
}

// Button returns the button with the given label.
func (f *Form) Button(label string) (Button, bool) {
	i := slices.IndexFunc(f.Buttons, func(b Button) bool { return b.Text == label })
	if i < 0 {
		return Button{}, false
	}
	return f.Buttons[i], true
}

// Submit submits a form as if the operator had clicked a button.
func (b *Browser) Submit(f *Form, with Button) (*Page, error) {
	values := url.Values{}
	for name, v := range f.Values {
		values[name] = slices.Clone(v)
	}
	if with.Name != "" {
		values.Add(with.Name, with.Value)
	}
	action := f.Action
	if with.Action != "" {
		action = with.Action
	}
	to, err := f.page.URL.Parse(action)
	if err != nil {
		return nil, err
	}
	if f.Method == http.MethodPost {
		return b.do(http.MethodPost, to.RequestURI(), values)
	}
	to.RawQuery = values.Encode() // replaces the query of the action
	return b.Get(to.RequestURI())
}

func find(n *html.Node, good func(*html.Node) bool) (all []*html.Node) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && good(d) {
			all = append(all, d)
		}
	}
	return all
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func hasClass(n *html.Node, class string) bool {
	return slices.Contains(strings.Fields(attr(n, "class")), class)
}

func rawText(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// text returns the visible content of a part of a page.
func text(n *html.Node) string { return strings.Join(strings.Fields(rawText(n)), " ") }
