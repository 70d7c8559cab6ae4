package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
)

func TestCheckVersionRejectsOtherFormats(t *testing.T) {
	for _, valid := range []string{"v0.1.0", "v1.20.3"} {
		if err := checkVersion(valid); err != nil {
			t.Error(err)
		}
	}
	for _, invalid := range []string{"", "0.1.0", "v1", "v1.2", "v1.2.3-rc1", "v01.2.3", "v1.2.3-4-gabc", "1234abc"} {
		if err := checkVersion(invalid); err == nil {
			t.Errorf("checkVersion(%q) returned no error", invalid)
		}
	}
}

func TestCheckCleanReportsNewFiles(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		value(output(dir, nil, "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...))(t)
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "a")
	if err := checkClean(dir); err != nil {
		t.Error(err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "new"), nil, 0o600))
	if err := checkClean(dir); err == nil || !strings.Contains(err.Error(), "?? new") {
		t.Errorf("got %v, want an error with %q", err, "?? new")
	}
}

// packed builds the files of a release, with a placeholder instead of the program.
func packed(t *testing.T) (r *release, files map[string][]byte) {
	t.Helper()
	t.Chdir("../../..")
	program := filepath.Join(t.TempDir(), "reprise")
	value(output(".", nil, "go", "build", "-o", program, "./cmd/reprise"))(t)
	docs := value(readDocuments(program))(t)
	info := value(buildinfo.ReadFile(program))(t)
	build := func() *release {
		r := value(newRelease("v1.2.3", t.TempDir()))(t)
		for target := range strings.SplitSeq(allTargets, ",") {
			system, arch, _ := strings.Cut(target, "/")
			must(t, r.pack([]byte("the program"), info, system, arch, docs))
		}
		must(t, r.finish(true))
		return r
	}
	r = build()
	files = make(map[string][]byte)
	for name := range r.sums {
		files[name] = value(os.ReadFile(filepath.Join(r.out, name)))(t)
	}
	if diff := cmp.Diff(r.sums, build().sums); diff != "" {
		t.Errorf("checksums of a second build differ (-first +second):\n%s", diff)
	}
	return r, files
}

func TestReleaseFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short (builds the program)")
	}
	r, files := packed(t)
	want := []string{
		"SHA256SUMS", "reprise-1.2.3-1.aarch64.rpm", "reprise-1.2.3-1.x86_64.rpm", "reprise.json", "reprise.rb", "reprise_1.2.3.image.tar",
		"reprise_1.2.3_aarch64.apk", "reprise_1.2.3_amd64.deb", "reprise_1.2.3_arm64.deb",
		"reprise_1.2.3_darwin_amd64.cdx.json", "reprise_1.2.3_darwin_amd64.tar.gz", "reprise_1.2.3_darwin_arm64.cdx.json", "reprise_1.2.3_darwin_arm64.tar.gz",
		"reprise_1.2.3_linux_amd64.cdx.json", "reprise_1.2.3_linux_amd64.tar.gz", "reprise_1.2.3_linux_arm64.cdx.json", "reprise_1.2.3_linux_arm64.tar.gz",
		"reprise_1.2.3_windows_amd64.cdx.json", "reprise_1.2.3_windows_amd64.zip", "reprise_1.2.3_windows_arm64.cdx.json", "reprise_1.2.3_windows_arm64.zip",
		"reprise_1.2.3_x86_64.apk",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}

	t.Run("archive", func(t *testing.T) {
		content := untar(t, decompress(t, files["reprise_1.2.3_linux_arm64.tar.gz"]))
		want := []string{
			"LICENSE 644", "README.md 644", "THIRD_PARTY_LICENSES 644", "completions/_reprise 644", "completions/reprise.bash 644",
			"completions/reprise.fish 644", "reprise 755", "reprise.1 644", "reprise.example.yaml 644",
		}
		for i, name := range want {
			want[i] = "reprise_1.2.3_linux_arm64/" + name
		}
		if diff := cmp.Diff(want, content.list(0)); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		licenses := content["reprise_1.2.3_linux_arm64/THIRD_PARTY_LICENSES"].content
		for _, part := range []string{"\nGo\n", "\ngithub.com/cockroachdb/pebble/v2 ", "\nhtmx\n"} {
			if !strings.Contains(licenses, part) {
				t.Errorf("licenses do not contain %q", part)
			}
		}
		if strings.Contains(licenses, "github.com/goreleaser/nfpm") {
			t.Error("licenses contain a build tool")
		}
	})

	t.Run("debian", func(t *testing.T) {
		members := unarchive(t, files["reprise_1.2.3_arm64.deb"])
		control := untar(t, decompress(t, members["control.tar.gz"]))
		for _, line := range []string{"Package: reprise", "Version: 1.2.3", "Architecture: arm64"} {
			if !strings.Contains(control["./control"].content, line+"\n") {
				t.Errorf("control does not contain %q:\n%s", line, control["./control"].content)
			}
		}
		if f, ok := control["./conffiles"]; ok { // an upgrade prompts if a conffile was changed, which stops unattended upgrades
			t.Errorf("got conffiles %q, want none", f.content)
		}
		content := untar(t, decompress(t, members["data.tar.gz"]))
		want := []string{
			"./usr/bin/reprise 755",
			"./usr/lib/systemd/system/reprise.service 644", "./usr/lib/sysusers.d/reprise.conf 644", "./usr/share/bash-completion/completions/reprise 644",
			"./usr/share/doc/reprise/README.md 644", "./usr/share/doc/reprise/THIRD_PARTY_LICENSES 644",
			"./usr/share/doc/reprise/changelog.gz 644", "./usr/share/doc/reprise/copyright 644",
			"./usr/share/doc/reprise/reprise.example.yaml 644", "./usr/share/fish/vendor_completions.d/reprise.fish 644",
			"./usr/share/lintian/overrides/reprise 644", "./usr/share/man/man1/reprise.1.gz 644", "./usr/share/reprise/reprise.env 644", "./usr/share/reprise/reprise.yaml 644",
			"./usr/share/zsh/vendor-completions/_reprise 644",
		}
		if diff := cmp.Diff(want, content.list(0)); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		for name, f := range content {
			if !f.header.ModTime.Equal(r.time) {
				t.Errorf("time of %s: got %v, want %v (time of the commit)", name, f.header.ModTime, r.time)
			}
		}
	})

	t.Run("alpine", func(t *testing.T) {
		content := untar(t, decompress(t, files["reprise_1.2.3_aarch64.apk"])) // control files and data, in two streams
		info := content[".PKGINFO"].content
		for _, line := range []string{"pkgname = reprise", "pkgver = 1.2.3", "arch = aarch64"} {
			if !strings.Contains(info, line+"\n") {
				t.Errorf(".PKGINFO does not contain %q:\n%s", line, info)
			}
		}
		if content["usr/bin/reprise"].content != "the program" {
			t.Errorf("program not found in %q", content.list(0))
		}
	})

	t.Run("manifests", func(t *testing.T) {
		formula := string(files["reprise.rb"])
		for _, target := range []string{"darwin_arm64", "darwin_amd64", "linux_arm64", "linux_amd64"} {
			name := "reprise_1.2.3_" + target + ".tar.gz"
			part := fmt.Sprintf("url \"%s/releases/download/v1.2.3/%s\"\n      sha256 \"%s\"\n", source, name, r.sums[name])
			if !strings.Contains(formula, part) {
				t.Errorf("formula does not contain %s:\n%s", part, formula)
			}
		}
		var scoop struct {
			Version      string
			Architecture map[string]struct {
				URL, Hash  string
				ExtractDir string `json:"extract_dir"`
			}
		}
		must(t, json.Unmarshal(files["reprise.json"], &scoop))
		arm := scoop.Architecture["arm64"]
		if scoop.Version != "1.2.3" || arm.Hash != r.sums["reprise_1.2.3_windows_arm64.zip"] || arm.ExtractDir != "reprise_1.2.3_windows_arm64" || path.Base(arm.URL) != "reprise_1.2.3_windows_arm64.zip" {
			t.Errorf("Scoop manifest: got %+v", scoop)
		}
	})

	t.Run("SBOM", func(t *testing.T) {
		var bom cyclonedx.BOM
		must(t, cyclonedx.NewBOMDecoder(bytes.NewReader(files["reprise_1.2.3_linux_arm64.cdx.json"]), cyclonedx.BOMFileFormatJSON).Decode(&bom))
		if got, want := bom.Metadata.Component.PackageURL, "pkg:golang/github.com/reprisemq/reprise@v1.2.3"; got != want {
			t.Errorf("component: got %s, want %s", got, want)
		}
		i := slices.IndexFunc(*bom.Components, func(c cyclonedx.Component) bool { return c.Name == "github.com/cockroachdb/pebble/v2" })
		if i < 0 || (*bom.Components)[i].Hashes == nil {
			t.Errorf("module pebble and its checksum not found in %+v", *bom.Components)
		}
	})

	t.Run("image", func(t *testing.T) {
		layout := untar(t, files["reprise_1.2.3.image.tar"])
		var outer, index struct{ Manifests []blob }
		must(t, json.Unmarshal([]byte(layout["index.json"].content), &outer))
		must(t, json.Unmarshal(layout.blob(t, outer.Manifests[0]), &index))
		i := slices.IndexFunc(index.Manifests, func(b blob) bool { return b.Platform["architecture"] == "arm64" })
		if len(index.Manifests) != 2 || i < 0 {
			t.Fatalf("got manifests %+v, want amd64 and arm64", index.Manifests)
		}
		var manifest struct {
			Config blob
			Layers []blob
		}
		must(t, json.Unmarshal(layout.blob(t, index.Manifests[i]), &manifest))
		var image struct {
			Architecture string
			Config       struct {
				User       string
				Entrypoint []string
				Labels     map[string]string
			}
		}
		must(t, json.Unmarshal(layout.blob(t, manifest.Config), &image))
		if got := image.Config.User; got != "65532:65532" {
			t.Errorf("user: got %q, want 65532:65532", got)
		}
		if got := image.Config.Entrypoint; !slices.Equal(got, []string{"/usr/bin/reprise"}) {
			t.Errorf("entrypoint: got %q, want /usr/bin/reprise", got)
		}
		labels := image.Config.Labels
		if labels["org.opencontainers.image.version"] != "1.2.3" || labels["org.opencontainers.image.revision"] != r.commit || image.Architecture != "arm64" {
			t.Errorf("got architecture %q, labels %q, want arm64 and the version and commit", image.Architecture, labels)
		}
		root := untar(t, decompress(t, layout.blob(t, manifest.Layers[0])))
		if got := root["usr/bin/reprise"].content; got != "the program" {
			t.Errorf("program: got %q, want \"the program\"", got)
		}
		if !strings.Contains(root["etc/ssl/certs/ca-certificates.crt"].content, "BEGIN CERTIFICATE") {
			t.Error("certificates not found in the image")
		}
		if got, want := root.list(65532), []string{"var/lib/reprise/ 700"}; !slices.Equal(got, want) {
			t.Errorf("files of the user: got %q, want %q", got, want)
		}
	})
}

// entry is a file of a tar archive.
type entry struct {
	header  *tar.Header
	content string
}

type entries map[string]entry

// list returns the files of an owner with their permissions. If the owner is root, it returns only regular files.
func (e entries) list(owner int) (all []string) {
	for name, f := range e {
		if f.header.Uid == owner && (owner != 0 || f.header.Typeflag == tar.TypeReg) {
			all = append(all, fmt.Sprintf("%s %o", name, f.header.Mode))
		}
	}
	slices.Sort(all)
	return all
}

// blob returns the content of a blob of an image.
func (e entries) blob(t *testing.T, b blob) []byte {
	t.Helper()
	f, ok := e[blobName(b)]
	if !ok || len(f.content) != b.Size {
		t.Fatalf("size of a blob: got %d bytes of %s, want %d", len(f.content), b.Digest, b.Size)
	}
	return []byte(f.content)
}

func untar(t *testing.T, content []byte) entries {
	t.Helper()
	all := make(entries)
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		all[h.Name] = entry{h, string(value(io.ReadAll(r))(t))}
	}
}

// unarchive returns the members of an ar archive.
func unarchive(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	const magic, header = "!<arch>\n", 60
	rest, ok := bytes.CutPrefix(content, []byte(magic))
	if !ok {
		t.Fatal("not an ar archive")
	}
	all := make(map[string][]byte)
	for len(rest) > 0 {
		name := strings.TrimRight(string(rest[:16]), " /")
		size := value(strconv.Atoi(strings.TrimSpace(string(rest[48:58]))))(t)
		all[name] = rest[header : header+size]
		rest = rest[header+size+size%2:]
	}
	return all
}

func decompress(t *testing.T, content []byte) []byte {
	t.Helper()
	return value(io.ReadAll(value(gzip.NewReader(bytes.NewReader(content)))(t)))(t)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value returns a function that fails the test if err is not nil, and otherwise returns v.
func value[V any](v V, err error) func(t *testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		must(t, err)
		return v
	}
}
