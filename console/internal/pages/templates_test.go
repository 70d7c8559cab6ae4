package pages

import (
	"regexp"
	"strings"
	"testing"
)

// A URL in a template begins with the prefix of the console. If a template writes a query around a value, html/template
// escapes the value as one parameter, which breaks a filter. Therefore Go code builds the queries.
func TestTemplateAddresses(t *testing.T) {
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
				t.Errorf("%s has an address without the prefix: %s", f.Name(), m[0])
			}
			_, query, _ := strings.Cut(m[1], "?")
			if strings.Contains(query, "{{") {
				t.Errorf("%s writes a query: %s", f.Name(), m[0])
			}
		}
	}
	if n < 50 {
		t.Errorf("%d addresses were found, want 50 or more", n)
	}
}
