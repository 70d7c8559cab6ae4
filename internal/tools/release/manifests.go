package main

import (
	"bytes"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"
	"text/template"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// manifests contains the Homebrew formula and the Scoop manifest.
//
//go:embed manifests
var manifests embed.FS

// writeManifests writes the files of other package managers, which refer to the archives.
func (r *release) writeManifests() error {
	archive := func(system, arch string) string {
		if system == "windows" {
			return r.base(system, arch) + ".zip"
		}
		return r.base(system, arch) + ".tar.gz"
	}
	all, err := template.New("").Funcs(template.FuncMap{
		"version": r.number,
		"base":    r.base,
		"sum":     func(system, arch string) string { return r.sums[archive(system, arch)] },
		"url": func(system, arch string) string {
			return fmt.Sprintf("%s/releases/download/%s/%s", source, r.version, archive(system, arch))
		},
	}).ParseFS(manifests, "manifests/*")
	if err != nil {
		return fmt.Errorf("cannot read templates of manifests: %w", err)
	}
	for _, t := range all.Templates() {
		var b bytes.Buffer
		if err := t.Execute(&b, nil); err != nil {
			return fmt.Errorf("cannot write manifest: %w", err)
		}
		if err := r.write(t.Name(), b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// writeSBOM writes the list of the modules of a program, in the format of CycloneDX.
func (r *release) writeSBOM(info *debug.BuildInfo, system, arch string) error {
	component := func(kind cyclonedx.ComponentType, path, version string) cyclonedx.Component {
		url := fmt.Sprintf("pkg:golang/%s@%s", path, version)
		return cyclonedx.Component{Type: kind, BOMRef: url, Name: path, Version: version, PackageURL: url}
	}
	main := component(cyclonedx.ComponentTypeApplication, info.Main.Path, r.version)
	modules := []cyclonedx.Component{component(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		c := component(cyclonedx.ComponentTypeLibrary, d.Path, d.Version)
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(d.Sum, "h1:")); err == nil && len(sum) > 0 {
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
		}
		modules = append(modules, c)
	}
	refs := make([]string, len(modules))
	for i, m := range modules {
		refs[i] = m.BOMRef
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &main}
	bom.Components = &modules
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var b bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return fmt.Errorf("cannot encode SBOM: %w", err)
	}
	return r.write(r.base(system, arch)+".cdx.json", b.Bytes())
}
