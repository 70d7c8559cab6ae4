package diskstore

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Open accepts damage in the part of a log that the inventory does not cover yet, and logs what it dropped.
func TestOpenLogsDroppedEndOfLog(t *testing.T) {
	synctest.Test(t, testOpenLogsDroppedEndOfLog) // so that the commits take less time than until the next inventory
}

func testOpenLogsDroppedEndOfLog(t *testing.T) {
	power := vfs.NewCrashableMem()
	d := openOn(t, power)
	defer d.Close(true)
	for i := range uint64(100) { // one commit each
		d.Put(entry(keyOf(1, 0, i+1), "body"))
		if err := d.sync(); err != nil {
			t.Fatal(err)
		}
	}
	logs := files(t, power, ".log")
	slices.Sort(logs)
	name := logs[len(logs)-1]
	whole := strings.TrimRight(read(t, power, name), "\x00")
	for test, c := range map[string]struct {
		damaged  string
		readable bool // messages after the damage
		warns    bool
	}{
		"intact":                {whole, false, false},
		"bit near the end":      {flipped(whole, len(whole)-500), true, true},
		"bit in the last bytes": {flipped(whole, len(whole)-1), false, true},
		"cut within a commit":   {whole[:len(whole)-3], false, true},
	} {
		fs := power.CrashClone(vfs.CrashCloneCfg{})
		write(t, fs, name, c.damaged)
		var out bytes.Buffer
		s, err := Open(Options{Dir: dataDir, Log: slog.New(slog.NewJSONHandler(&out, nil)), FS: fs})
		if err != nil {
			t.Errorf("%s: %v", test, err)
			continue
		}
		found, err := s.(*disk).read(2, 1)
		if err != nil {
			t.Errorf("%s: %v", test, err)
		}
		if err := s.Close(true); err != nil {
			t.Errorf("%s: %v", test, err)
		}
		var record struct {
			Level, File, Written    string
			Bytes, Offset, Messages int
			Readable                int `json:"readable_messages"`
		}
		if out.Len() > 0 {
			if err := json.Unmarshal(out.Bytes(), &record); err != nil {
				t.Fatalf("%s: %v: %s", test, err, out.String())
			}
		}
		missing := 100 - len(found.messages)
		switch {
		case c.warns != (record.Level == "WARN"), c.warns != (missing > 0):
			t.Errorf("%s: %d messages are missing, log: %s", test, missing, out.String())
		case c.warns && (!strings.HasSuffix(name, record.File) && record.File != name || record.Offset+record.Bytes != len(c.damaged) || record.Written == ""):
			t.Errorf("%s: got %s, want the file %s, its end at %d, and a time", test, out.String(), name, len(c.damaged))
		case c.readable && (record.Readable < 1 || record.Readable >= missing), !c.readable && record.Readable != 0:
			t.Errorf("%s: got %d readable messages of %d missing messages", test, record.Readable, missing)
		}
	}
}

// flipped returns text with one bit changed.
func flipped(text string, at int) string {
	b := []byte(text)
	b[at] ^= 0x10
	return string(b)
}
