package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// documents contains the files of a release other than the program: LICENSE, README.md, reprise.1, completions/…
type documents []file

// content returns the content of the named document, or nil.
func (d documents) content(name string) []byte {
	for _, f := range d {
		if f.name == name {
			return f.content
		}
	}
	return nil
}

// readDocuments returns the documents of the repository and the documents that the program prints.
func readDocuments(program string) (documents, error) {
	var all documents
	for name, source := range map[string]string{
		"LICENSE": "LICENSE", "README.md": "README.md", "reprise.example.yaml": "docs/reprise.example.yaml",
	} {
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, fmt.Errorf("cannot read document: %w", err)
		}
		all = append(all, file{name: name, content: content})
	}
	for name, args := range map[string][]string{
		"reprise.1":                {"__man"},
		"completions/reprise.bash": {"completion", "bash"},
		"completions/_reprise":     {"completion", "zsh"},
		"completions/reprise.fish": {"completion", "fish"},
	} {
		text, err := output(".", nil, program, args...)
		if err != nil {
			return nil, err
		}
		all = append(all, file{name: name, content: []byte(text + "\n")})
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

var licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)([.-][^.]*)?(\.(md|txt|rst))?$`)

// readLicenses returns the licenses of Go, of the modules in the program, and of the embedded files.
func readLicenses(system, arch string) ([]byte, error) {
	root, err := output(".", nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	list, err := output(".", []string{"CGO_ENABLED=0", "GOOS=" + system, "GOARCH=" + arch}, "go", "list", "-deps",
		"-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}{{end}}", "./cmd/reprise")
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{"Go": root}
	for line := range strings.Lines(list) {
		if name, dir, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			dirs[name] = dir
		}
	}
	var b bytes.Buffer
	b.WriteString("The program reprise includes the following software.\n")
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		entries, err := os.ReadDir(dirs[name])
		if err != nil {
			return nil, fmt.Errorf("cannot list licenses of %s: %w", name, err)
		}
		var files []string
		for _, e := range entries {
			if e.Type().IsRegular() && licenseName.MatchString(e.Name()) {
				files = append(files, filepath.Join(dirs[name], e.Name()))
			}
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("license of %s not found in %s", name, dirs[name])
		}
		if err := appendLicenses(&b, name, files); err != nil {
			return nil, err
		}
	}
	err = appendLicenses(&b, "htmx", []string{"internal/archive/console/internal/pages/assets/htmx.LICENSE"})
	return b.Bytes(), err
}

// appendLicenses appends license files under a heading.
func appendLicenses(b *bytes.Buffer, name string, files []string) error {
	fmt.Fprintf(b, "\n%s\n%s\n", strings.Repeat("=", 80), name)
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("cannot read license of %s: %w", name, err)
		}
		fmt.Fprintf(b, "\n%s\n", bytes.TrimSpace(content))
	}
	return nil
}
