package pages

import (
	"regexp"
	"strings"
	"testing"
)

// URLs in templates start with the prefix of the console, and their queries do not contain template actions. If a
// template inserted a filter into a query, html/template would escape the filter as a single parameter, so Go code
// builds the queries.
func TestTemplateURLs(t *testing.T) {
	attribute := regexp.MustCompile(`(?:href|src|action|formaction|hx-[a-z]+)="([^"]*(?:\{\{[^}]*\}\}[^"]*)*)"`)
	prefixed := regexp.MustCompile(`^(hx-(swap|sync|target|select|select-oob|trigger)|[a-z-]+="(\{\{prefix\}\}|#))`)
	files, err := templateFiles.ReadDir("templates")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		text, err := templateFiles.ReadFile("templates/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range attribute.FindAllStringSubmatch(string(text), -1) {
			n++
			if !prefixed.MatchString(m[0]) && m[1] != "{{.Trace}}" {
				t.Errorf("%s has a URL without the prefix: %s", f.Name(), m[0])
			}
			_, query, _ := strings.Cut(m[1], "?")
			if strings.Contains(query, "{{") {
				t.Errorf("%s has a URL with a query: %s", f.Name(), m[0])
			}
		}
	}
	if n < 50 {
		t.Errorf("found %d URLs, want at least 50", n)
	}
}
