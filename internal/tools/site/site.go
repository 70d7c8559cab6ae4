package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// repository is the base URL of files that are not on the site.
const repository = "https://github.com/reprisemq/reprise/blob/main/"

// copied lists the extensions of linked files that are copied to the site.
var copied = []string{".png", ".svg", ".json"}

// section is an entry of docs/site.yaml.
type section struct {
	Title string  `yaml:"section"`
	Boost float64 `yaml:"boost"` // factor for the rank of search results, default 1
	Files []file  `yaml:"pages"`

	Pages []*page `yaml:"-"`
}

// file is a path from the root, or a pattern such as docs/adr/*.md. In docs/site.yaml, it is a string, or a mapping
// from the path to keywords for the search.
type file struct{ pattern, keywords string }

// UnmarshalYAML reads both forms of a file.
func (f *file) UnmarshalYAML(text []byte) error {
	if yaml.Unmarshal(text, &f.pattern) == nil {
		return nil
	}
	var words map[string]string
	err := yaml.Unmarshal(text, &words)
	for f.pattern, f.keywords = range words {
	}
	return err
}

// Contains reports whether a page is in the section.
func (s section) Contains(p *page) bool { return slices.Contains(s.Pages, p) }

// page is a document of the repository.
type page struct {
	Source  string // path from the root: docs/cli.md
	Target  string // path in the site: docs/cli.html
	Title   string
	Content string // HTML
	Outline []heading

	source  []byte
	doc     ast.Node
	anchors []string
	entries []entry
}

type heading struct{ ID, Text string }

// entry is a part of a page that the search finds: the text under a heading.
type entry struct {
	ID       int     `json:"id"`
	Page     string  `json:"page"`
	Heading  string  `json:"heading"`
	URL      string  `json:"url"`
	Text     string  `json:"text"`
	Keywords string  `json:"keywords,omitempty"`
	Boost    float64 `json:"boost,omitempty"`
}

type site struct {
	sections []section
	pages    map[string]*page // by source
	files    map[string][]byte
	root     fs.FS
}

var markdown = goldmark.New(
	goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(
		html.WithUnsafe(), // keeps the anchors in the documents
		renderer.WithNodeRenderers(util.Prioritized(highlighter{}, 100))))

// accessible makes wide tables and code scrollable with the keyboard, and replaces empty header cells with data cells.
var accessible = strings.NewReplacer(
	"<pre", `<pre tabindex="0"`,
	"<table>", `<div class="scroll" tabindex="0"><table>`, "</table>", "</table></div>",
	"<th></th>", "<td></td>")

var (
	anchor  = regexp.MustCompile(`<a id="([^"]+)">`)
	comment = regexp.MustCompile(`(?s)<!--.*?-->\n?`) // directives of internal/docstest
	// yamlKey matches the name of a top-level key and the comment above it. The key can be commented out.
	yamlKey = regexp.MustCompile(`\n\n((?:#.*\n)*?(?:# )?([a-z]+):)`)
)

// read parses all documents and resolves their links.
func read(root fs.FS) (*site, error) {
	s := &site{pages: map[string]*page{}, files: map[string][]byte{}, root: root}
	list, err := fs.ReadFile(root, "docs/site.yaml")
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalWithOptions(list, &s.sections, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("cannot read docs/site.yaml: %w", err)
	}
	for i := range s.sections {
		if err := s.load(&s.sections[i]); err != nil {
			return nil, err
		}
	}
	if err := s.complete(); err != nil {
		return nil, err
	}
	var faults []error
	for _, p := range s.all() {
		faults = append(faults, s.link(p))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	for _, p := range s.all() {
		if err := p.render(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// all returns the pages in the order of the navigation.
func (s *site) all() []*page {
	var all []*page
	for _, sec := range s.sections {
		all = append(all, sec.Pages...)
	}
	return all
}

func (s *site) load(sec *section) error {
	for _, f := range sec.Files {
		names, err := fs.Glob(s.root, f.pattern)
		if err != nil || len(names) == 0 {
			return fmt.Errorf("docs/site.yaml: file %s not found", f.pattern)
		}
		for _, name := range names {
			if s.pages[name] != nil {
				return fmt.Errorf("docs/site.yaml: file %s is listed twice", name)
			}
			source, err := fs.ReadFile(s.root, name)
			if err != nil {
				return err
			}
			p := &page{Source: name, Target: target(name), source: document(name, source)}
			for _, other := range s.pages {
				if other.Target == p.Target {
					return fmt.Errorf("docs/site.yaml: %s and %s must not have the same page %s", other.Source, name, p.Target)
				}
			}
			p.parse()
			if p.Title == "" {
				return fmt.Errorf("%s: the first heading must be a title", name)
			}
			for i := range p.entries {
				p.entries[i].Boost = sec.Boost
			}
			p.entries[0].Keywords = f.keywords
			s.pages[name] = p
			sec.Pages = append(sec.Pages, p)
		}
	}
	return nil
}

// document returns the Markdown of a file. A YAML file becomes a sequence of headings, one for each top-level key, each
// with a code block.
func document(name string, source []byte) []byte {
	if path.Ext(name) == ".md" {
		return source
	}
	blocks := yamlKey.ReplaceAll(source, []byte("\n```\n\n## $2\n\n```yaml\n$1"))
	return fmt.Appendf(nil, "# %s\n\n```yaml\n%s```\n", path.Base(name), blocks)
}

// target returns the path of a page in the site: docs/cli.md becomes docs/cli.html, and docs/README.md becomes
// docs/index.html.
func target(name string) string {
	if path.Base(name) == "README.md" {
		return path.Join(path.Dir(name), "index.html")
	}
	return strings.ToLower(strings.TrimSuffix(name, path.Ext(name))) + ".html"
}

// complete returns an error if docs/site.yaml does not list a document of the folder docs.
func (s *site) complete() error {
	var faults []error
	err := fs.WalkDir(s.root, "docs", func(name string, d fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".md" && s.pages[name] == nil {
			faults = append(faults, fmt.Errorf("docs/site.yaml: page %s is missing (add it to the list)", name))
		}
		return err
	})
	return errors.Join(append(faults, err)...)
}

// parse reads the title, the headings and the texts for the search.
func (p *page) parse() {
	p.doc = markdown.Parser().Parse(text.NewReader(p.source))
	for _, m := range anchor.FindAllSubmatch(p.source, -1) {
		p.anchors = append(p.anchors, string(m[1]))
	}
	current := &entry{URL: p.Target}
	flush := func() {
		current.Text = strings.Join(strings.Fields(current.Text), " ")
		p.entries = append(p.entries, *current)
	}
	for n := p.doc.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			current.Text += p.text(n) + " "
			continue
		}
		title := p.text(h)
		id, _ := h.AttributeString("id")
		fragment := string(id.([]byte))
		p.anchors = append(p.anchors, fragment)
		if p.Title == "" {
			p.Title = title
			continue
		}
		if h.Level == 2 {
			p.Outline = append(p.Outline, heading{fragment, title})
		}
		flush()
		current = &entry{Heading: title, URL: p.Target + "#" + fragment}
	}
	flush()
	for i := range p.entries {
		p.entries[i].Page = p.Title
	}
}

// text returns the words of a node without markup.
func (p *page) text(n ast.Node) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.HTMLBlock, *ast.RawHTML:
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			b.Write(n.Segment.Value(p.source))
			if n.SoftLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			b.Write(n.Lines().Value(p.source))
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(b.String())
}

// link resolves the destinations of links and images to another page, a copied file, or a file in the repository. If the
// label of a link is the file name of a document, the title of its page replaces the label.
func (s *site) link(p *page) error {
	var faults []error
	err := ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var destination *[]byte
		switch n := n.(type) {
		case *ast.Link:
			destination = &n.Destination
			name, _, _ := strings.Cut(string(n.Destination), "#")
			if to := s.pages[path.Join(path.Dir(p.Source), name)]; to != nil && path.Base(p.text(n)) == path.Base(to.Source) {
				n.RemoveChildren(n)
				n.AppendChild(n, ast.NewString([]byte(to.Title)))
			}
		case *ast.Image:
			destination = &n.Destination
		default:
			return ast.WalkContinue, nil
		}
		to, err := s.resolve(p, string(*destination))
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", p.Source, err))
		}
		*destination = []byte(to)
		return ast.WalkContinue, nil
	})
	return errors.Join(append(faults, err)...)
}

func (s *site) resolve(from *page, link string) (string, error) {
	u, err := url.Parse(link)
	if err != nil || u.IsAbs() {
		return link, err
	}
	name := from.Source
	if u.Path != "" {
		name = path.Join(path.Dir(from.Source), u.Path)
	}
	to := s.pages[name]
	if to == nil {
		info, err := fs.Stat(s.root, name)
		if err != nil {
			return "", fmt.Errorf("link %s: file %s not found", link, name)
		}
		if info.IsDir() || !slices.Contains(copied, path.Ext(name)) {
			return repository + name, nil
		}
		if s.files[name], err = fs.ReadFile(s.root, name); err != nil {
			return "", fmt.Errorf("cannot read %s: %w", name, err)
		}
		return relative(from.Target, name), nil
	}
	if u.Fragment != "" && !slices.Contains(to.anchors, u.Fragment) {
		return "", fmt.Errorf("link %s: heading not found in %s", link, name)
	}
	href := url.URL{Path: relative(from.Target, to.Target), Fragment: u.Fragment}
	if to == from {
		href.Path = ""
	}
	return href.String(), nil
}

// relative returns the relative path from a page to a file of the site.
func relative(from, to string) string {
	r, err := filepath.Rel(path.Dir(from), to)
	if err != nil {
		panic(err) // both paths are relative to the site
	}
	return filepath.ToSlash(r)
}

func (p *page) render() error {
	var b bytes.Buffer
	err := markdown.Renderer().Render(&b, p.source, p.doc)
	p.Content = accessible.Replace(comment.ReplaceAllString(b.String(), ""))
	return err
}

// write writes the site to a folder, which must be empty or contain an earlier site.
func (s *site) write(out string) error {
	if _, err := os.Stat(filepath.Join(out, searchIndex)); err != nil {
		if files, err := os.ReadDir(out); err == nil && len(files) > 0 {
			return fmt.Errorf("folder %s must be empty or contain an earlier site", out)
		}
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	files := maps.Clone(s.files)
	all := s.all()
	entries := []entry{}
	for i, p := range all {
		content, err := s.layout(p, neighbor(all, i-1), neighbor(all, i+1))
		if err != nil {
			return err
		}
		files[p.Target] = content
		for _, e := range p.entries {
			e.ID = len(entries)
			entries = append(entries, e)
		}
	}
	index, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	// The index is a script, because a page that is loaded from a file cannot fetch JSON.
	files[searchIndex] = fmt.Appendf(nil, "const entries = %s;\n", index)
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(out, "assets"), assets); err != nil {
		return err
	}
	for name, content := range files {
		name = filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func neighbor(pages []*page, i int) *page {
	if i < 0 || i >= len(pages) {
		return nil
	}
	return pages[i]
}
