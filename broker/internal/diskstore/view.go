package diskstore

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// view is a file system that replaces the contents of some files, hides some files, and adds empty files.
type view struct {
	vfs.FS
	other  map[string][]byte // by path
	hidden func(name string) bool
	added  []string // names of empty files
}

func newView(fs vfs.FS) *view { return &view{FS: fs, other: make(map[string][]byte)} }

// Open implements [vfs.FS].
func (v *view) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if content, ok := v.other[name]; ok {
		return vfs.NewMemFile(content), nil
	}
	return v.FS.Open(name, options...)
}

// List implements [vfs.FS].
func (v *view) List(dir string) ([]string, error) {
	names, err := v.FS.List(dir)
	if v.hidden != nil {
		names = slices.DeleteFunc(names, v.hidden)
	}
	return append(names, v.added...), err
}

// Lock implements [vfs.FS]. It has no effect, because the data directory is already locked, and Salvage opens the
// database twice at the same time.
func (*view) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// readView opens a database read-only, calls the function do, and closes the database.
func (d *disk) readView(v *view, database string, do func(*pebble.DB) error) error {
	options := d.options()
	options.FS, options.ReadOnly, options.ErrorIfNotExists = v, true, true
	options.DisableConsistencyCheck = true // ignore missing files
	db, err := pebble.Open(database, options)
	if err != nil {
		return unreadable(err)
	}
	return errors.Join(do(db), db.Close())
}

// repair makes v provide readable versions of the files that Pebble needs to open a database.
func (v *view) repair(database string, wrong []Damage) error {
	names, err := v.FS.List(database)
	if err != nil {
		return err
	}
	broken := func(name string) bool {
		return slices.ContainsFunc(wrong, func(d Damage) bool { return d.File == v.PathJoin(database, name) })
	}
	manifest, content, err := v.manifest(database, names, broken)
	if err != nil {
		return err
	}
	v.hidden = func(name string) bool {
		return strings.HasPrefix(name, "marker.") || strings.HasPrefix(name, "OPTIONS-") || isManifest(name)
	}
	v.added = []string{
		manifest, "marker.manifest.000001." + manifest,
		"marker.format-version.000001." + pebble.FormatValueSeparation.String(),
	}
	v.other[v.PathJoin(database, manifest)] = content
	for _, d := range wrong { // Pebble requires that all tables and value files exist
		if name := v.PathBase(d.File); isBulk(name) && !slices.Contains(names, name) {
			v.added = append(v.added, name)
		}
	}
	for _, name := range names {
		if !isLog(name) {
			continue
		}
		path := v.PathJoin(database, name)
		text, err := readFile(v.FS, path)
		if err != nil {
			return err
		}
		number, ok := logNumber(name)
		if !ok {
			continue
		}
		if v.other[path], err = repairLog(text, number); err != nil {
			return err
		}
	}
	return nil
}

// manifest returns the name and the content of the newest MANIFEST. If the MANIFEST is damaged, the content is from its
// copy. If both are damaged, the content is the longer of their readable parts.
func (v *view) manifest(database string, names []string, broken func(string) bool) (name string, content []byte, err error) {
	for _, n := range append(slices.Clone(names), wrongNames(names)...) {
		if base := strings.TrimPrefix(n, manifestCopy); isManifest(base) && base > name {
			name = base
		}
	}
	for _, n := range []string{name, manifestCopy + name} {
		text, err := readFile(v.FS, v.PathJoin(database, n))
		if err != nil || name == "" {
			continue
		}
		if !broken(n) && wholeRecords(text) > 0 {
			return name, text, nil
		}
		if whole := wholeRecords(text); whole > len(content) {
			content = text[:whole]
		}
	}
	if content == nil {
		return "", nil, fmt.Errorf("%s: cannot read the MANIFEST or its copy (restore a backup)", database)
	}
	return name, content, nil
}

// wrongNames returns the names of the manifests that markers refer to, even if the manifests are missing.
func wrongNames(names []string) (all []string) {
	for _, name := range names {
		if i := strings.Index(name, "MANIFEST-"); isMarker(name) && i >= 0 {
			all = append(all, name[i:])
		}
	}
	return all
}
