package diskstore

import (
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
)

// warnDropped logs which commits Pebble will not read, because a log is damaged before them. Open accepts such damage in the
// part of a log that the inventory does not cover, because a crash can interrupt a write. A log that is shorter by whole
// commits looks like a log that was written completely.
func (d *disk) warnDropped(database string) error {
	names, err := d.fs.List(database)
	if err != nil {
		return err
	}
	for _, name := range names {
		number, ok := logNumber(name)
		if !ok {
			continue
		}
		path := d.fs.PathJoin(database, name)
		content, err := readFile(d.fs, path)
		if err != nil {
			return err
		}
		at, messages := -1, 0
		for commit, damage := range logRecords(content, number) {
			if damage >= 0 {
				at, messages = damage, messages+messagesIn(commit)
			}
		}
		if at < 0 {
			continue
		}
		about, err := d.fs.Stat(path)
		if err != nil {
			return err
		}
		d.log.Warn("end of log dropped; messages that were confirmed in the last second before the crash may be missing",
			"file", path, "offset", at, "bytes", len(content)-at, "readable_messages", messages, "written", about.ModTime())
	}
	return nil
}

// logNumber returns the number of a log of Pebble. If the file is not a log, ok is false.
func logNumber(name string) (number uint32, ok bool) {
	text, found := strings.CutSuffix(name, ".log")
	n, err := strconv.ParseUint(text, 10, 64)
	return uint32(n), found && err == nil
}

// messagesIn returns the number of messages that a commit saves.
func messagesIn(commit []byte) (n int) {
	r := batchrepr.Read(commit)
	for {
		kind, key, _, ok, err := r.Next()
		if !ok || err != nil {
			return n
		}
		if kind == pebble.InternalKeyKindSet && len(key) > 0 && key[0] == prefixMessage {
			n++
		}
	}
}
