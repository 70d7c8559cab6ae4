package diskstore

import (
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// inventoryDelay is the time for which the tracker collects changes before it writes the inventory.
const inventoryDelay = 500 * time.Millisecond

// slotBytes is the reserved size of an inventory file, which is enough for more than a thousand files.
const slotBytes = 64 << 10

// tracker maintains the inventory of an open database. [guard] reports all writes to the tracker. The tracker deletes an
// obsolete file only when the inventory on disk no longer lists the file.
type tracker struct {
	fs  vfs.FS // without the guard
	dir string // directory of the database

	writing sync.Mutex // held while the inventory is being written; locked before mu
	slots   [2]vfs.File
	number  uint64 // number of the inventory that was last written

	mu       sync.Mutex
	files    map[string]*trackedFile
	obsolete map[string]bool // names of files to be removed
	pending  *time.Timer     // timer of the next write; nil if no write is scheduled
	ended    bool

	update func() // calls refresh in the goroutine of the timer
}

// trackedFile is a file of the database.
type trackedFile struct {
	written extent // changed only by the goroutine that writes the file; others read it only after the file is closed
	synced  extent
	named   bool // the directory entry is durable
}

// durable reports whether the inventory must list the file. It must not list a table or a value file that Pebble is
// still writing, because Open requires their exact lengths. Pebble syncs such a file once, when it is complete, and
// does not refer to it earlier.
func (f *trackedFile) durable(name string) bool {
	return f.named && (f.synced.length > 0 || !isBulk(name))
}

func newTracker(fs vfs.FS, dir string, v inventory) (*tracker, error) {
	t := &tracker{fs: fs, dir: dir, number: v.number, files: make(map[string]*trackedFile), obsolete: make(map[string]bool)}
	for name, e := range v.files {
		t.files[name] = &trackedFile{written: e, synced: e, named: true}
	}
	for i, name := range inventoryFiles {
		f, err := fs.OpenReadWrite(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.closeSlots()
			return nil, err
		}
		_ = f.Preallocate(0, slotBytes) // an update on a full disk then does not need space
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

// changed schedules a write of the inventory. The caller must hold mu.
func (t *tracker) changed() {
	if t.pending == nil && !t.ended {
		t.pending = time.AfterFunc(inventoryDelay, t.update)
	}
}

// stop cancels scheduled writes. It does not wait for a write in progress.
func (t *tracker) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.pending != nil {
		t.pending.Stop()
		t.pending = nil
	}
}

// end calls stop, waits for a write in progress, and closes the inventory files.
func (t *tracker) end() {
	t.stop()
	t.writing.Lock()
	defer t.writing.Unlock()
	t.closeSlots()
	t.slots = [2]vfs.File{}
}

// created registers a new file with the given name.
func (t *tracker) created(name string) *trackedFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &trackedFile{}
	t.files[name] = f
	delete(t.obsolete, name)
	return f
}

// renamed registers the new name of a file.
func (t *tracker) renamed(from, to string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.files[from]; f != nil {
		f.named = false
		t.files[to] = f
		delete(t.files, from)
	}
}

// remove removes a file from the inventory, and later from the disk, when the inventory on disk no longer lists the file.
func (t *tracker) remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.files, name)
	t.obsolete[name] = true
	t.changed()
}

// unlist removes a file from the inventory, but not from the disk.
func (t *tracker) unlist(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.files, name)
}

// synced records that the extent e of a file is durable. The caller read e before it synced the file.
func (t *tracker) synced(f *trackedFile, e extent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.synced != e {
		f.synced = e
		t.changed()
	}
}

// unnamed returns the files whose directory entries are not yet durable.
func (t *tracker) unnamed() (all []*trackedFile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.files {
		if !f.named {
			all = append(all, f)
		}
	}
	return all
}

// named records that the directory entries of files are durable.
func (t *tracker) named(all []*trackedFile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range all {
		f.named = true
	}
	if len(all) > 0 {
		t.changed()
	}
}

// extents returns the durable extent of each file.
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

// write writes the inventory, and then deletes the obsolete files, which the inventory no longer lists. After an error,
// the caller can call write again.
func (t *tracker) write(sealed bool) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.writeNext(sealed)
}

// refresh is like write, but does nothing if the tracker was stopped. The timer calls it.
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

// writeNext is like write. The caller must hold writing.
func (t *tracker) writeNext(sealed bool) error {
	t.mu.Lock()
	if t.pending != nil {
		t.pending.Stop()
		t.pending = nil
	}
	v := inventory{number: t.number + 1, sealed: sealed, files: make(map[string]extent, len(t.files))}
	for name, f := range t.files {
		if f.durable(name) {
			v.files[name] = f.synced
		}
	}
	obsolete := t.obsolete
	t.obsolete = make(map[string]bool)
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
		for name := range obsolete {
			if t.files[name] == nil {
				t.obsolete[name] = true
			}
		}
		return err
	}
	t.number = v.number
	for name := range obsolete {
		_ = t.fs.Remove(t.fs.PathJoin(t.dir, name)) // the next Open removes files that remain
	}
	return nil
}

// seal writes the final inventory of a closed database. It waits for a running update, and later updates do nothing.
func (t *tracker) seal() error {
	t.stop()
	t.writing.Lock()
	err := t.syncAll()
	t.writing.Unlock()
	if err != nil {
		return err
	}
	// Write an unsealed inventory first to remove obsolete files, because a sealed inventory must list exactly the
	// existing files.
	if err := errors.Join(t.syncNames(), t.write(false), t.syncNames()); err != nil {
		return err
	}
	return errors.Join(t.write(true), t.write(true))
}

// syncAll syncs closed files that have unsynced data. The caller must hold writing.
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

// scheduleRetry schedules another write of the inventory after a failed write.
func (t *tracker) scheduleRetry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed()
}

// inventory writes the inventory before an action that relies on it. If the disk is full, it retries (see shouldRetry);
// any other failed write makes the store fail.
func (g *guard) inventory() {
	for again := true; again; {
		again = g.shouldRetry(g.tracker.write(false))
	}
}

func syncFile(fs vfs.FS, name string) error {
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// isMarker reports whether a file is a MANIFEST marker. The name of the marker contains the name of the current MANIFEST.
func isMarker(name string) bool { return strings.HasPrefix(name, "marker.manifest.") }

// manifestCopy is the name prefix of the copy of a MANIFEST. The guard writes the copy because only the MANIFEST
// records which files belong to the database.
const manifestCopy = "COPY-"

func isManifest(name string) bool { return strings.HasPrefix(name, "MANIFEST-") }

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// isBulk reports whether a file is a table or a value file. There can be any number of these files. They contain the
// messages that are no longer in the log.
func isBulk(name string) bool { return isTable(name) || isBlob(name) }

func isTable(name string) bool { return strings.HasSuffix(name, ".sst") }

func isBlob(name string) bool { return strings.HasSuffix(name, ".blob") }
