// Release builds the files of a release into a directory.
//
//	make release VERSION=v1.2.3
//	make release VERSION=v1.2.3 ARGS='-targets linux/amd64'
//
// For each target, the command writes an archive with the program, its manual page and completions, and an SBOM. For
// each Linux target, it also writes packages. It writes one OCI image for the Linux targets, and a Homebrew formula and
// a Scoop manifest if it builds all targets. SHA256SUMS contains the checksums of all files. Builds of the same commit
// and version with the same Go version have the same checksums. The working tree must not have uncommitted changes or
// untracked files.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

const allTargets = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

func main() {
	version := flag.String("version", "", "version of the release, `vX.Y.Z`")
	targets := flag.String("targets", allTargets, "comma-separated `list` of operating systems and architectures")
	out := flag.String("out", "dist", "`directory` for the files; its content is removed")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "release: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(*version, strings.Split(*targets, ","), *out); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(version string, targets []string, out string) error {
	if err := checkVersion(version); err != nil {
		return err
	}
	if err := checkTargets(targets); err != nil {
		return err
	}
	if err := checkClean("."); err != nil {
		return err
	}
	r, err := newRelease(version, out)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("cannot remove the files of an earlier build: %w", err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("cannot create directory: %w", err)
	}
	work, err := os.MkdirTemp("", "reprise-release")
	if err != nil {
		return fmt.Errorf("cannot create directory: %w", err)
	}
	defer os.RemoveAll(work)
	host := filepath.Join(work, "host")
	if err := r.compile(host, "", ""); err != nil {
		return err
	}
	docs, err := readDocuments(host)
	if err != nil {
		return err
	}
	for _, t := range targets {
		system, arch, _ := strings.Cut(t, "/")
		path := filepath.Join(work, system+"-"+arch)
		if err := r.compile(path, system, arch); err != nil {
			return err
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return fmt.Errorf("cannot read modules of program: %w", err)
		}
		program, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("cannot read program: %w", err)
		}
		if err := r.pack(program, info, system, arch, docs); err != nil {
			return err
		}
	}
	return r.finish(len(targets) == len(strings.Split(allTargets, ",")))
}

var releaseVersion = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`)

func checkVersion(version string) error {
	if !releaseVersion.MatchString(version) {
		return fmt.Errorf("version must be vX.Y.Z: got %q (make release VERSION=v0.1.0)", version)
	}
	return nil
}

func checkTargets(targets []string) error {
	for _, t := range targets {
		if !slices.Contains(strings.Split(allTargets, ","), t) {
			return fmt.Errorf("target must be one of %s: got %q", allTargets, t)
		}
	}
	return nil
}

// checkClean returns an error if a working tree has uncommitted changes or untracked files.
func checkClean(dir string) error {
	changes, err := output(dir, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("working tree must not have uncommitted changes: got\n%s", changes)
	}
	return nil
}

// release is a build of a version.
type release struct {
	version string // vX.Y.Z
	commit  string
	time    time.Time // time of the commit; modification time of all files
	out     string
	sums    map[string]string // checksums of the files written to out
	image   image
}

func newRelease(version, out string) (*release, error) {
	line, err := output(".", nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	commit, seconds, _ := strings.Cut(line, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("commit time %q is not an integer", seconds)
	}
	return &release{version: version, commit: commit, time: time.Unix(unix, 0).UTC(), out: out, sums: make(map[string]string)}, nil
}

// number returns the version without its prefix "v".
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// base returns the name of the files of a target, without extension.
func (r *release) base(system, arch string) string {
	return fmt.Sprintf("reprise_%s_%s_%s", r.number(), system, arch)
}

// compile builds the program for a target, or for this machine if system is empty.
func (r *release) compile(program, system, arch string) error {
	env := []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=", "GOARM64=", "GOOS=" + system, "GOARCH=" + arch}
	_, err := output(".", env, "go", "build", "-trimpath", "-buildvcs=false", "-o", program,
		"-ldflags", "-s -w -X github.com/reprisemq/reprise/cmd/reprise/internal/version.version="+r.version, "./cmd/reprise")
	return err
}

// pack writes the files of a target, and adds it to the image.
func (r *release) pack(program []byte, info *debug.BuildInfo, system, arch string, docs documents) error {
	licenses, err := readLicenses(system, arch)
	if err != nil {
		return err
	}
	docs = append(slices.Clone(docs), file{name: "THIRD_PARTY_LICENSES", content: licenses})
	if err := r.packArchive(program, system, arch, docs); err != nil {
		return err
	}
	if err := r.writeSBOM(info, system, arch); err != nil {
		return err
	}
	if system != "linux" {
		return nil
	}
	if err := r.packPackages(program, arch, docs); err != nil {
		return err
	}
	return r.packImage(program, arch, docs)
}

// finish writes the files that depend on all targets.
func (r *release) finish(all bool) error {
	if len(r.image.manifests) > 0 {
		if err := r.writeImage(); err != nil {
			return err
		}
	}
	if all {
		if err := r.writeManifests(); err != nil {
			return err
		}
	}
	var sums strings.Builder // in the format of sha256sum
	for _, name := range slices.Sorted(maps.Keys(r.sums)) {
		fmt.Fprintf(&sums, "%s  %s\n", r.sums[name], name)
	}
	return r.write("SHA256SUMS", []byte(sums.String()))
}

// write writes a file of the release and records its checksum.
func (r *release) write(name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(r.out, name), content, 0o644); err != nil {
		return fmt.Errorf("cannot write file: %w", err)
	}
	r.sums[name] = fmt.Sprintf("%x", sha256.Sum256(content))
	return nil
}

// output runs a command in a directory and returns its output without surrounding white space.
func output(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		var stderr []byte
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			stderr = exit.Stderr
		}
		return "", fmt.Errorf("cannot run %s %s: %w\n%s", name, strings.Join(args, " "), err, stderr)
	}
	return strings.TrimSpace(string(out)), nil
}
