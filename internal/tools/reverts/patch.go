package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// patchDir is the directory of the patches in the tree.
const patchDir = "broker/internal/simulation/reverts"

// patch is a change that adds an old fault to the tree.
type patch struct {
	name  string // name of the file without .patch
	about string // first paragraph of the header
	tests []string
	hunks []hunk

	survives string // reason why no test finds the fault; empty if the tests must find it
}

// hunk replaces consecutive lines, which must occur exactly once in a file. Line numbers are ignored.
type hunk struct {
	file     string
	old, new string
}

// readPatches returns the patches of a tree, sorted by name.
func readPatches(tree fs.FS) (all []patch, err error) {
	names, err := fs.Glob(tree, patchDir+"/*.patch")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no patches in %s", patchDir)
	}
	for _, name := range names {
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return nil, err
		}
		p, err := parsePatch(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p.name = strings.TrimSuffix(filepath.Base(name), ".patch")
		all = append(all, p)
	}
	return all, nil
}

// sabotageDir is the directory of the sabotages in the tree. A file contains the patches of one area, and each patch
// starts with sabotageLine and its name.
const sabotageDir, sabotageLine = "internal/tools/reverts/sabotages", "== "

// readSabotages returns the sabotages of a tree, sorted by area.
func readSabotages(tree fs.FS) (all []patch, err error) {
	files, err := fs.Glob(tree, sabotageDir+"/*.patches")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := fs.ReadFile(tree, file)
		if err != nil {
			return nil, err
		}
		area := strings.TrimSuffix(filepath.Base(file), ".patches")
		for _, text := range strings.Split("\n"+string(text), "\n"+sabotageLine)[1:] {
			name, text, _ := strings.Cut(text, "\n")
			p, err := parsePatch(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, name, err)
			}
			p.name = area + "/" + name
			all = append(all, p)
		}
	}
	return all, nil
}

const (
	testLine     = "Test: "     // prefix of a header line with the arguments of go test for a test
	survivesLine = "Survives: " // prefix of a header line with the reason why no test finds the fault
)

// parsePatch reads a header, an empty line, and the output of git diff.
func parsePatch(text string) (p patch, err error) {
	header, diff, found := strings.Cut(text, "\n\n")
	if !found {
		return p, errors.New("patch must start with a header and an empty line")
	}
	var about []string
	for line := range strings.SplitSeq(header, "\n") {
		if test, ok := strings.CutPrefix(line, testLine); ok {
			p.tests = append(p.tests, test)
		} else if reason, ok := strings.CutPrefix(line, survivesLine); ok {
			p.survives = reason
		} else {
			about = append(about, line)
		}
	}
	p.about = strings.Join(about, " ")
	var file string
	within := false // a hunk
	for line := range strings.Lines(diff) {
		if strings.HasPrefix(line, "diff ") {
			file, within = "", false
		}
		if name, ok := strings.CutPrefix(line, "+++ b/"); ok && !within {
			file = strings.TrimSpace(name)
			continue
		}
		if strings.HasPrefix(line, "@@") {
			if file == "" {
				return p, errors.New("hunk must follow the name of a file")
			}
			p.hunks, within = append(p.hunks, hunk{file: file}), true
			continue
		}
		if !within {
			continue
		}
		h := &p.hunks[len(p.hunks)-1]
		switch line[0] {
		case ' ':
			h.old += line[1:]
			h.new += line[1:]
		case '-':
			h.old += line[1:]
		case '+':
			h.new += line[1:]
		}
	}
	switch {
	case len(p.hunks) == 0:
		return p, errors.New("patch must have a hunk")
	case len(p.tests) == 0:
		return p, fmt.Errorf("header must name a test that fails (%s./package -run TestName)", testLine)
	}
	return p, nil
}

// apply returns the new content of each file that the patch changes, by file name.
func (p patch) apply(tree fs.FS) (map[string]string, error) {
	changed := make(map[string]string)
	for _, h := range p.hunks {
		content, known := changed[h.file]
		if !known {
			text, err := fs.ReadFile(tree, h.file)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			content = string(text)
		}
		if n := strings.Count("\n"+content, "\n"+h.old); n != 1 {
			return nil, fmt.Errorf("%s: %s must contain these lines once: found %d times (update the patch):\n%s", p.name, h.file, n, h.old)
		}
		changed[h.file] = strings.TrimPrefix(strings.Replace("\n"+content, "\n"+h.old, "\n"+h.new, 1), "\n")
	}
	return changed, nil
}

// ignoredDirs lists directories that copyTree omits.
var ignoredDirs = []string{".git", "bin", "node_modules", "coverage"}

// copyTree copies a tree without ignoredDirs.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case e.IsDir() && slices.Contains(ignoredDirs, e.Name()):
			return filepath.SkipDir
		case e.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		case !e.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), content, info.Mode().Perm())
	})
}
