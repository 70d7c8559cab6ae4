package upgradetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the fixtures of this version anew")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value returns a function that fails the test if err is not nil, and otherwise returns v.
func value[V any](v V, err error) func(t testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		must(t, err)
		return v
	}
}

func compress(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := value(gzip.NewWriterLevel(&b, gzip.BestCompression))(t)
	_, err := w.Write(content)
	must(t, errors.Join(err, w.Close()))
	return b.Bytes()
}

func decompress(t testing.TB, name string) []byte {
	t.Helper()
	f := value(os.Open(name))(t)
	defer f.Close()
	return value(io.ReadAll(value(gzip.NewReader(f))(t)))(t)
}

// pack returns the files of a directory as a tar archive.
func pack(t testing.TB, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files(t, dir) {
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}))
		_, err := w.Write(content)
		must(t, err)
	}
	must(t, w.Close())
	return compress(t, b.Bytes())
}

// unpack unpacks an archive, and returns the directory.
func unpack(t testing.TB, name string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for r := tar.NewReader(bytes.NewReader(decompress(t, name))); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		must(t, err)
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, value(io.ReadAll(r))(t), 0o600))
	}
}

// files returns the content of the files in a directory, by their relative paths.
func files(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		all[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	}))
	return all
}

// wantUnchanged calls do, and fails the test if this changes a file in the directory.
func wantUnchanged(t testing.TB, dir string, do func()) {
	t.Helper()
	sums := func() map[string][sha256.Size]byte {
		all := make(map[string][sha256.Size]byte)
		for name, content := range files(t, dir) {
			all[name] = sha256.Sum256(content)
		}
		return all
	}
	before := sums()
	do()
	if after := sums(); !maps.Equal(before, after) {
		t.Errorf("files changed (%d before, %d after)", len(before), len(after))
	}
}

func writeFixture(t testing.TB, name string, content []byte) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.WriteFile(name, content, 0o644))
}

// matches returns the fixtures that match a pattern. It fails the test if no fixture matches.
func matches(t testing.TB, pattern string) []string {
	t.Helper()
	all := value(filepath.Glob(pattern))(t)
	if len(all) == 0 {
		t.Fatalf("fixture %s not found (create it with scripts/test ./internal/upgradetest -run TestFixtures -update)", pattern)
	}
	return all
}
