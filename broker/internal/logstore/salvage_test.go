package logstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// mixed returns a disk with a data directory that contains all kinds of files, with 100 messages in each of two segments.
func mixed(t *testing.T) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewCrashableMem()
	d := openOn(t, disk)
	d.SetDocument("name", []byte("value"))
	for i := range uint64(200) {
		body := fmt.Sprint("message ", i, strings.Repeat("x", int(i%2)*2000))
		d.Put(entry(keyOf(1+i%2, 0, i+1), body))
		if err := d.sync(); err != nil {
			t.Fatal(err)
		}
		if i == 99 {
			if err := d.ask(d.writer.rollNow); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	return disk
}

// Check finds the damage and counts the messages. Salvage keeps the readable data and reports the missing data.
func TestSalvage(t *testing.T) {
	template := mixed(t)
	for name, test := range map[string]struct {
		like string
		harm func(content []byte) []byte // if nil, the file is removed
		keep int                         // minimum number of kept messages
	}{
		"all files are intact":             {"", nil, 200},
		"the records of syncs are missing": {"/SYNCED", nil, 200},
		"the first segment is missing":     {"2" + segmentSuffix, nil, 100},
		"the second segment is missing":    {"3" + segmentSuffix, nil, 100},
		"the newest segment is missing":    {"4" + segmentSuffix, nil, 200},
		"a segment has a changed bit":      {"2" + segmentSuffix, func(c []byte) []byte { c[len(c)/2] ^= 1; return c }, 199},
		"a summary has a changed bit":      {"2" + segmentSuffix, func(c []byte) []byte { c[len(c)-20] ^= 1; return c }, 200},
		"a segment is cut in half":         {"2" + segmentSuffix, func(c []byte) []byte { return c[:len(c)/2] }, 145},
		"a segment is zeroed":              {"2" + segmentSuffix, func(c []byte) []byte { clear(c[len(c)/4 : len(c)/2]); return c }, 170},
	} {
		t.Run(name, func(t *testing.T) {
			disk := template.CrashClone(vfs.CrashCloneCfg{})
			harmed := 0
			if test.like != "" {
				for _, file := range files(t, disk, test.like) {
					harmed++
					if test.harm == nil {
						if err := disk.Remove(file); err != nil {
							t.Fatal(err)
						}
						continue
					}
					write(t, disk, file, string(test.harm([]byte(read(t, disk, file)))))
				}
				if harmed == 0 {
					t.Fatalf("file %s not found", test.like)
				}
			}
			options := Options{Dir: dataDir, Log: discard, FS: disk}
			checked, err := Check(options)
			if err != nil || (len(checked.Damage) > 0) != (harmed > 0) {
				t.Fatalf("Check: got %+v, %v, want damage: %v", checked, err, harmed > 0)
			}
			if harmed == 0 && !slices.Equal(checked.Queues, []Contents{{1, 100, 100}, {2, 100, 100}}) {
				t.Errorf("Check: got queues %+v, want two queues with 100 messages", checked.Queues)
			}
			salvaged, err := Salvage(options, nil)
			if err != nil {
				t.Fatal(err)
			}
			found, expected := 0, 0
			for _, q := range salvaged.Queues {
				found += q.Found
				expected += max(q.Expected, q.Found)
			}
			if found < test.keep || test.keep == 200 && expected != 200 {
				t.Errorf("Salvage: got queues %+v, want at least %d messages", salvaged.Queues, test.keep)
			}
			d := openOn(t, disk)
			defer d.Close(true)
			content, err := d.read(3, 1)
			if err != nil || len(content.messages) != found {
				t.Errorf("messages after Salvage: got %d, want %d: %v", len(content.messages), found, err)
			}
			if test.keep == 200 && content.documents["name"] != "value" {
				t.Errorf("unexpected documents: %v", content.documents)
			}
			if !d.Unclean() {
				t.Error("salvaged directory is not marked as unclean")
			}
			if names, err := disk.List(salvaged.Aside + "/" + logDirName); err != nil || len(names) == 0 {
				t.Errorf("old files: got %v, %v, want at least one file", names, err)
			}
		})
	}
}

// Check rejects a directory that is in use or is not a data directory.
func TestCheckRejectsDirectoryInUse(t *testing.T) {
	disk := vfs.NewMem()
	d := openOn(t, disk)
	defer d.Close(true)
	if _, err := Check(Options{Dir: dataDir, FS: disk}); !errors.Is(err, ErrInUse) {
		t.Errorf("Check of a directory in use: got %v, want ErrInUse", err)
	}
	if _, err := Check(Options{Dir: "elsewhere", FS: disk}); err == nil {
		t.Error("Check of a missing directory returned no error")
	}
}
