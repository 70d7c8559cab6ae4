package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// unit is a package or a document.
type unit struct {
	name     string // the folder of a package or the path of a document, relative to the root
	document bool
	files    []string
	words    int
	alerts   int // in documents and comments
	strings  int // messages and template strings that break a rule
	findings []finding
}

// finding is a place that breaks a rule.
type finding struct {
	file    string
	line    int
	rule    string
	message string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: [%s] %s", f.file, f.line, f.rule, f.message)
}

// ignored lists the names of folders that find skips.
var ignored = []string{"testdata", "node_modules", "vendor", "bin", "styles"}

// find returns the packages and documents that match one of the patterns, sorted by name. A pattern is a folder, a folder
// followed by "/...", or a file. Without patterns, find returns all.
func find(root string, patterns []string) ([]*unit, error) {
	byName := make(map[string]*unit)
	matched := make([]bool, len(patterns))
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if name != "." && (slices.Contains(ignored, d.Name()) || strings.HasPrefix(d.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		owner, ok := ownerOf(name)
		if !ok || thirdParty(file) || !match(patterns, matched, name) {
			return nil
		}
		u := byName[owner]
		if u == nil {
			u = &unit{name: owner, document: path.Ext(owner) == ".md"}
			byName[owner] = u
		}
		u.files = append(u.files, file)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if i := slices.Index(matched, false); i >= 0 {
		return nil, fmt.Errorf("no Go files, documents, templates or scripts match %q", patterns[i])
	}
	units := make([]*unit, 0, len(byName))
	for _, u := range byName {
		units = append(units, u)
	}
	slices.SortFunc(units, func(a, b *unit) int { return strings.Compare(a.name, b.name) })
	return units, nil
}

// thirdParty reports whether a file is a script of another project, with its license in the same folder.
func thirdParty(file string) bool {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	_, err := os.Stat(filepath.Join(filepath.Dir(file), name+".LICENSE"))
	return path.Ext(file) == ".js" && err == nil
}

// ownerOf returns the name of the unit of a file. A template belongs to the package of the folder above its templates
// folder.
func ownerOf(file string) (string, bool) {
	switch path.Ext(file) {
	case ".md":
		return file, true
	case ".go", ".sh", ".js", ".css", ".yaml", ".yml":
		return path.Dir(file), true
	case "":
		return path.Dir(file), path.Base(file) == "Makefile" || strings.HasPrefix(file, "scripts/")
	case ".html":
		if before, _, ok := strings.Cut("/"+file, "/templates/"); ok {
			return strings.TrimPrefix(path.Clean(before), "/"), true
		}
	}
	return "", false
}

// match reports whether a pattern selects the file or there are no patterns. It sets matched for each pattern that
// selects the file.
func match(patterns []string, matched []bool, file string) bool {
	found := len(patterns) == 0
	for i, p := range patterns {
		below, recursive := strings.CutSuffix(filepath.ToSlash(p), "/...")
		p = path.Clean(below)
		owner, _ := ownerOf(file)
		if p == file || p == owner || p == path.Dir(file) || recursive && (p == "." || strings.HasPrefix(file, p+"/")) {
			matched[i], found = true, true
		}
	}
	return found
}

// measure finds units, counts their words and checks them.
func measure(o options, root string, patterns []string) ([]*unit, error) {
	units, err := find(root, patterns)
	if err != nil {
		return nil, err
	}
	sources := make(map[string]*source)
	var files []string
	for _, u := range units {
		for _, file := range u.files {
			s, err := read(file)
			if err != nil {
				return nil, err
			}
			if s.generated {
				continue
			}
			u.words += s.words
			sources[file] = s
			if ext := path.Ext(file); ext == ".go" || ext == ".md" {
				files = append(files, file)
			}
		}
	}
	alerts, err := runVale(o.vale, o.config, files)
	if err != nil {
		return nil, err
	}
	for _, u := range units {
		for _, file := range u.files {
			if s := sources[file]; s != nil {
				u.add(file, s, alerts[file])
			}
		}
	}
	return units, nil
}

// add adds the findings of a file. Vale also reads some of the messages, and add counts the alerts in a message as
// broken rules of the message.
func (u *unit) add(file string, s *source, alerts []alert) {
	found := len(u.findings)
	for _, a := range alerts {
		if s.inComment(a.Line) {
			u.alerts++
			u.findings = append(u.findings, finding{file, a.Line, strings.TrimPrefix(a.Check, "Reprise."), a.Message})
			continue
		}
		if t := s.messageAt(a.Line); t != nil {
			t.broken = append(t.broken, strings.TrimPrefix(a.Check, "Reprise."))
			t.advice = append(t.advice, a.Message)
		}
	}
	for _, t := range s.messages {
		if len(t.broken) > 0 {
			u.strings++
			u.findings = append(u.findings, finding{file, t.first, strings.Join(t.broken, ","), fmt.Sprintf("%q: %s", t.s, strings.Join(t.advice, "; "))})
		}
	}
	slices.SortStableFunc(u.findings[found:], func(a, b finding) int { return a.line - b.line })
}

func read(file string) (*source, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	switch path.Ext(file) {
	case ".go":
		return readGo(file, content)
	case ".html":
		return readTemplate(string(content)), nil
	case ".md":
		return readMarkdown(string(content)), nil
	case ".js", ".css":
		return readScript(string(content), slashComment), nil
	}
	return readScript(string(content), hashComment), nil
}
