package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// debian contains the package description and the files that are only in the Debian package.
//
//go:embed debian
var debian embed.FS

// packDebian writes the Debian package of an architecture.
func (r *release) packDebian(program []byte, arch string, docs documents) error {
	dir, err := os.MkdirTemp("", "reprise-deb")
	if err != nil {
		return fmt.Errorf("cannot create directory: %w", err)
	}
	defer os.RemoveAll(dir)
	page, err := gzipped(docs.content("reprise.1"))
	if err != nil {
		return err
	}
	files := append([]file{
		{name: "reprise", mode: 0o755, content: program},
		{name: "reprise.1.gz", content: page},
	}, docs...)
	entries, err := debian.ReadDir("debian")
	if err != nil {
		return fmt.Errorf("cannot list files of the package: %w", err)
	}
	for _, e := range entries {
		content, err := debian.ReadFile("debian/" + e.Name())
		if err != nil {
			return fmt.Errorf("cannot read file of the package: %w", err)
		}
		content = []byte(strings.NewReplacer("${ARCH}", arch, "${VERSION}", r.number()).Replace(string(content)))
		files = append(files, file{name: e.Name(), content: content})
	}
	for _, f := range files {
		name := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("cannot create directory: %w", err)
		}
		if err := os.WriteFile(name, f.content, f.permissions()); err != nil {
			return fmt.Errorf("cannot write file of the package: %w", err)
		}
	}
	nfpm, err := output("internal/tools", nil, "go", "tool", "-n", "nfpm")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("reprise_%s_%s.deb", r.number(), arch)
	epoch := fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix())
	if _, err := output(dir, []string{epoch}, nfpm, "package", "--config", "nfpm.yaml", "--packager", "deb", "--target", name); err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("cannot read package: %w", err)
	}
	return r.write(name, content)
}
