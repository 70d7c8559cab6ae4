package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// workingTree counts the files in a folder and its subfolders.
func workingTree(dir string) (map[string]size, error) {
	packages := make(map[string]size)
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !counts(name) {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return add(packages, name, content)
	})
	return packages, err
}

// revision counts the files of a git revision.
func revision(name string) (map[string]size, error) {
	cmd := exec.Command("git", "archive", "--format=tar", name)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	archive, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git archive %s: %w: %s", name, err, bytes.TrimSpace(complaints.Bytes()))
	}
	packages := make(map[string]size)
	for files := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return nil, err
		}
		if err := add(packages, h.Name, content); err != nil {
			return nil, err
		}
	}
}
