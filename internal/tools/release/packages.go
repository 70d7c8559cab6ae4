package main

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packageFiles contains the package description and the files that are only in packages.
//
//go:embed package
var packageFiles embed.FS

// packPackages writes the packages of an architecture for Debian, for distributions with RPM, and for Alpine.
func (r *release) packPackages(program []byte, arch string, docs documents) error {
	dir, err := os.MkdirTemp("", "reprise-package")
	if err != nil {
		return fmt.Errorf("cannot create directory: %w", err)
	}
	defer os.RemoveAll(dir)
	files := append(documents{{name: "reprise", mode: 0o755, content: program}}, docs...)
	entries, err := packageFiles.ReadDir("package")
	if err != nil {
		return fmt.Errorf("cannot list files of the package: %w", err)
	}
	values := strings.NewReplacer("${ARCH}", arch, "${VERSION}", r.number(), "${DATE}", r.time.Format(time.RFC1123Z), "${DIR}", dir)
	for _, e := range entries {
		content, err := packageFiles.ReadFile("package/" + e.Name())
		if err != nil {
			return fmt.Errorf("cannot read file of the package: %w", err)
		}
		files = append(files, file{name: e.Name(), content: []byte(values.Replace(string(content)))})
	}
	for _, name := range []string{"reprise.1", "changelog"} {
		compressed, err := gzipped(files.content(name))
		if err != nil {
			return err
		}
		files = append(files, file{name: name + ".gz", content: compressed})
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
	config, err := nfpm.Parse(bytes.NewReader(files.content("nfpm.yaml")))
	if err != nil {
		return fmt.Errorf("cannot read description of the package: %w", err)
	}
	for _, format := range []string{"deb", "rpm", "apk"} {
		if err := r.packPackage(config, format); err != nil {
			return fmt.Errorf("cannot build package for %s: %w", format, err)
		}
	}
	return nil
}

func (r *release) packPackage(config nfpm.Config, format string) error {
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	info.MTime = r.time
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	name := packager.ConventionalFileName(info)
	var content bytes.Buffer
	if err := packager.Package(info, &content); err != nil {
		return err
	}
	return r.write(name, content.Bytes())
}
