package pages

import (
	"regexp"
	"strings"
	"testing"
)

// A template that writes a query around a value has it escaped as one parameter, so a filter
// in it is lost. Go code writes queries: see href.
func TestTemplatesDoNotWriteQueries(t *testing.T) {
	attribute := regexp.MustCompile(`(?:href|src|action|formaction|hx-[a-z]+)="([^"]*(?:\{\{[^}]*\}\}[^"]*)*)"`)
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
