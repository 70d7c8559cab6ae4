package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// small is a repository with two documents, a source file and an image.
func small(files map[string]string) fstest.MapFS {
	root := fstest.MapFS{
		"docs/site.yaml":   {Data: []byte("- section: Start\n  boost: 2\n  pages:\n    - README.md\n    - docs/a/*.md: uno, eins\n    - docs/other.yaml\n")},
		"README.md":        {Data: []byte("# Start\n\nSee [one](docs/a/one.md#part), [code](code.go) and [data](docs/a/data.json). ![picture](docs/p.png)\n")},
		"docs/a/one.md":    {Data: []byte("# One\n\nA <b> word.\n\n## Part\n\n<!-- setup -->\n```sh\nreprise up\n```\n\n[Back](../../README.md)\n")},
		"docs/a/data.json": {Data: []byte("{}")},
		"docs/p.png":       {Data: []byte("PNG")},
		"code.go":          {Data: []byte("package code")},
		"docs/other.yaml":  {Data: []byte("# All keys.\n\n# The first.\na: 1\n\n# b: 2\n")},
	}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

func TestWriteCreatesLinkedPages(t *testing.T) {
	s, err := read(small(nil))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "site")
	for range 2 { // the second call must replace the site
		if err := s.write(out); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{
		"index.html": {
			`href="docs/a/one.html#part"`, `href="` + repository + `code.go"`, `href="docs/a/data.json"`, `src="docs/p.png"`,
			`<a href="docs/a/one.html">One</a>`,
		},
		"docs/a/one.html":  {`href="../../index.html"`, `href="../../assets/site.css"`, `data-root="../.."`, "reprise up"},
		"docs/other.html":  {`<h2 id="a">`, `<span class="nt">a</span>`, `<h2 id="b">`},
		"docs/p.png":       {"PNG"},
		"docs/a/data.json": {"{}"},
		"search-index.js": {
			`"page":"One","heading":"","url":"docs/a/one.html","text":"A word.","keywords":"uno, eins","boost":2`,
			`"page":"One","heading":"Part","url":"docs/a/one.html#part","text":"reprise up Back","boost":2`,
		},
	} {
		content, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(content), w) {
				t.Errorf("%s does not contain %s:\n%s", name, w, content)
			}
		}
		if strings.Contains(string(content), "<!-- setup") {
			t.Errorf("%s contains a directive", name)
		}
	}
}

func TestReadRejectsInvalidDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"missing file":      {map[string]string{"README.md": "# A\n\n[b](b.md)\n"}, "README.md: link b.md: file b.md not found"},
		"missing heading":   {map[string]string{"README.md": "# A\n\n[b](docs/a/one.md#b)\n"}, "README.md: link docs/a/one.md#b: heading not found in docs/a/one.md"},
		"missing own":       {map[string]string{"README.md": "# A\n\n[b](#b)\n"}, "README.md: link #b: heading not found in README.md"},
		"no title":          {map[string]string{"README.md": "text\n"}, "README.md: the first heading must be a title"},
		"unlisted document": {map[string]string{"docs/more.md": "# More\n"}, "docs/site.yaml: page docs/more.md is missing"},
		"listed twice":      {map[string]string{"docs/site.yaml": "- section: A\n  pages: [README.md, README.md]\n"}, "README.md is listed twice"},
		"missing page":      {map[string]string{"docs/site.yaml": "- section: A\n  pages: [docs/none.md]\n"}, "file docs/none.md not found"},
		"same page": {
			map[string]string{"docs/other.md": "# Other\n", "docs/site.yaml": "- section: A\n  pages: [README.md, docs/a/*.md, docs/other.*]\n"},
			"docs/other.md and docs/other.yaml must not have the same page docs/other.html",
		},
		"unknown key": {map[string]string{"docs/site.yaml": "- title: A\n"}, "cannot read docs/site.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := read(small(c.files)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestWriteKeepsOtherFolders(t *testing.T) {
	out := t.TempDir()
	mine := filepath.Join(out, "mine.txt")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := read(small(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.write(out); err == nil || !strings.Contains(err.Error(), "must be empty or contain an earlier site") {
		t.Errorf("got %v, want an error about an earlier site", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}

func TestLinkTextsAreTitles(t *testing.T) {
	s, err := read(small(map[string]string{
		"README.md": "# Start\n\n[docs/a/one.md](docs/a/one.md), [one.md](docs/a/one.md#part), [`one`](docs/a/one.md), [code.go](code.go)\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := `<p><a href="docs/a/one.html">One</a>, <a href="docs/a/one.html#part">One</a>, ` +
		`<a href="docs/a/one.html"><code>one</code></a>, <a href="` + repository + `code.go">code.go</a></p>`
	if got := s.pages["README.md"].Content; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// docs/site.yaml lists all documents of the repository, and all links and anchors in the generated pages are valid.
func TestRepositoryHasValidLinks(t *testing.T) {
	s, err := read(os.DirFS("../../.."))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "site")
	if err := s.write(out); err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(` (?:href|src)="([^":]*)"`)
	for _, p := range s.all() {
		page := filepath.Join(out, p.Target)
		for _, m := range link.FindAllStringSubmatch(readFile(t, page), -1) {
			name, fragment, _ := strings.Cut(m[1], "#")
			file := page
			if name != "" {
				file = filepath.Join(filepath.Dir(page), name)
			}
			content := readFile(t, file)
			if fragment != "" && !strings.Contains(content, ` id="`+fragment+`"`) {
				t.Errorf("%s: anchor of link %s not found", p.Target, m[1])
			}
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
	}
	return string(content)
}
