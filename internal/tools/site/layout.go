package main

import (
	"bytes"
	"embed"
	"html/template"
)

// searchIndex is the file name of the script that contains the search index.
const searchIndex = "search-index.js"

//go:embed assets
var embedded embed.FS

//go:embed layout.html
var layoutText string

var layout = template.Must(template.New("layout").Parse(layoutText))

// layout returns the HTML of a page: navigation, content, and links to the page before and after.
func (s *site) layout(p, previous, next *page) ([]byte, error) {
	var b bytes.Buffer
	err := layout.Execute(&b, struct {
		Sections          []section
		Page              *page
		Content           template.HTML
		Previous, Next    *page
		SearchIndex, Root string
		Link              func(string) string
		Source            string
	}{
		Sections: s.sections, Page: p,
		Content:  template.HTML(p.Content), // the Markdown of the project is trusted
		Previous: previous, Next: next,
		SearchIndex: searchIndex, Root: relative(p.Target, "."),
		Link:   func(target string) string { return relative(p.Target, target) },
		Source: repository + p.Source,
	})
	return b.Bytes(), err
}
