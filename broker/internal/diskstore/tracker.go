package diskstore

import (
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// inventoryDelay is how long changes are gathered before they are in the inventory.
const inventoryDelay = 500 * time.Millisecond

// tracker keeps the inventory of a database that is in use. It learns from [guard] what is written, and tells it when a file
// may be destroyed.
type tracker struct {
	fs  vfs.FS // below the guard
	dir string // of the database

	writing sync.Mutex // held while the inventory is written; taken before mu
	slots   [2]vfs.File
	number  uint64 // of the inventory that was written last

	mu      sync.Mutex
	files   map[string]*tracked
	doomed  map[string]bool // files to be removed, by name
	pending *time.Timer     // nil: the inventory has every change, or the tracker has ended
	ended   bool

	update func() // calls refresh, in a goroutine of the timer
}

// tracked is a file of the database.
type tracked struct {
	written extent // changed by whoever writes the file; read under its lock or when it has ended
	synced  extent
	named   bool // its name is on disk
}

func newTracker(fs vfs.FS, dir string, v inventory) (*tracker, error) {
	t := &tracker{fs: fs, dir: dir, number: v.number, files: make(map[string]*tracked), doomed: make(map[string]bool)}
	for name, e := range v.files {
		t.files[name] = &tracked{written: e, synced: e, named: true}
	}
	for i, name := range inventoryFiles {
		f, err := fs.OpenReadWrite(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.closeSlots()
			return nil, err
		}
		t.slots[i] = f
	}
	return t, nil
}

func (t *tracker) closeSlots() {
	for _, f := range t.slots {
		if f != nil {
			_ = f.Close()
		}
	}
}

// changed has the inventory written soon. The caller holds mu.
func (t *tracker) changed() {
	if t.pending == nil && !t.ended {
		t.pending = time.AfterFunc(inventoryDelay, t.update)
	}
}

// stop has nothing written by itself any more. It does not wait.
func (t *tracker) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.pending != nil {
		t.pending.Stop()
		t.pending = nil
	}
}

// end is stop, and waits for an update that has begun.
func (t *tracker) end() {
	t.stop()
	t.writing.Lock()
	defer t.writing.Unlock()
	t.closeSlots()
	t.slots = [2]vfs.File{}
}

// created begins a file that somebody is going to write.
func (t *tracker) created(name string) *tracked {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &tracked{}
	t.files[name] = f
	delete(t.doomed, name)
	return f
}

// renamed follows a file that gets another name.
func (t *tracker) renamed(from, to string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.files[from]; f != nil {
		f.named = false
		t.files[to] = f
		delete(t.files, from)
	}
}

// remove has a file removed, once the inventory does not list it any more.
func (t *tracker) remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.files, name)
	t.doomed[name] = true
	t.changed()
}

// forget takes a file out of the inventory without removing it.
func (t *tracker) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.files, name)
}

// synced notes that what a file had when it began to be synced is on disk.
func (t *tracker) synced(f *tracked, e extent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.synced != e {
		f.synced = e
		t.changed()
	}
}

// unnamed returns the files whose names are not on disk.
func (t *tracker) unnamed() (all []*tracked) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.files {
		if !f.named {
			all = append(all, f)
		}
	}
	return all
}

// named notes that the names of files are on disk.
func (t *tracker) named(all []*tracked) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range all {
		f.named = true
	}
	if len(all) > 0 {
		t.changed()
	}
}

// extents returns what is on disk of each file.
func (t *tracker) extents() map[string]extent {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]extent, len(t.files))
	for name, f := range t.files {
		all[name] = f.synced
	}
	return all
}

// syncNames syncs the directory.
func (t *tracker) syncNames() error {
	all := t.unnamed()
	if err := syncDir(t.fs, t.dir); err != nil {
		return err
	}
	t.named(all)
	return nil
}

// write brings the inventory up to date, and removes the files that it lists no longer. If it was full, the disk has room for a
// longer inventory later.
func (t *tracker) write(sealed bool) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.writeNext(sealed)
}

// refresh is write at the end of inventoryDelay, unless the tracker has been stopped.
func (t *tracker) refresh() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	if ended {
		return nil
	}
	return t.writeNext(false)
}

// writeNext is write for a caller that holds writing.
func (t *tracker) writeNext(sealed bool) error {
	t.mu.Lock()
	if t.pending != nil {
		t.pending.Stop()
		t.pending = nil
	}
	v := inventory{number: t.number + 1, sealed: sealed, files: make(map[string]extent, len(t.files))}
	for name, f := range t.files {
		if f.named {
			v.files[name] = f.synced
		}
	}
	doomed := t.doomed
	t.doomed = make(map[string]bool)
	t.mu.Unlock()

	slot := t.slots[v.number%2]
	if slot == nil {
		return os.ErrClosed
	}
	_, err := slot.WriteAt(v.encode(), 0)
	if err == nil {
		err = slot.SyncData()
	}
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		for name := range doomed {
			if t.files[name] == nil {
				t.doomed[name] = true
			}
		}
		return err
	}
	t.number = v.number
	for name := range doomed {
		_ = t.fs.Remove(t.fs.PathJoin(t.dir, name)) // what is left over goes when the store is opened again
	}
	return nil
}

// seal writes the inventory of a database that has been closed, and the last one: an update
// that is under way is waited for, and one that would begin later does nothing.
func (t *tracker) seal() error {
	t.stop()
	t.writing.Lock()
	err := t.syncAll()
	t.writing.Unlock()
	if err != nil {
		return err
	}
	// The files that nobody needs go first: a sealed inventory lists all there are.
	if err := errors.Join(t.syncNames(), t.write(false), t.syncNames()); err != nil {
		return err
	}
	return errors.Join(t.write(true), t.write(true))
}

// syncAll syncs what has not been synced of files that are closed. The caller holds writing.
func (t *tracker) syncAll() error {
	for name, f := range t.files {
		if f.written == f.synced {
			continue
		}
		if err := syncFile(t.fs, t.fs.PathJoin(t.dir, name)); err != nil {
			return err
		}
		t.synced(f, f.written)
	}
	return nil
}

// again has the inventory written once more, after it could not be.
func (t *tracker) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed()
}

// inventory brings the inventory up to date before something is done that relies on it. If that fails, so has the store.
func (g *guard) inventory() {
	for again := true; again; {
		again = g.survive(g.tracker.write(false))
	}
}

func syncFile(fs vfs.FS, name string) error {
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// isMarker reports whether a file says by its name which MANIFEST is the current one.
func isMarker(name string) bool { return strings.HasPrefix(name, "marker.manifest.") }

// manifestCopy is what the name of the copy of a MANIFEST begins with. The MANIFEST says which files have which messages, and
// nothing else does.
const manifestCopy = "COPY-"

func isManifest(name string) bool { return strings.HasPrefix(name, "MANIFEST-") }

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// isBulk reports whether a file has messages that have left the log: there may be any number of such files.
func isBulk(name string) bool { return strings.HasSuffix(name, ".sst") || isBlob(name) }

func isBlob(name string) bool { return strings.HasSuffix(name, ".blob") }
