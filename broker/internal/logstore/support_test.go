package logstore

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const dataDir = "data"

var discard = slog.New(slog.DiscardHandler)

func openOn(t testing.TB, fs vfs.FS) *disk {
	t.Helper()
	return openSegments(t, fs, segmentBytes)
}

// openSegments opens a store whose segments have about the given size.
func openSegments(t testing.TB, fs vfs.FS, size int) *disk {
	t.Helper()
	s, err := Open(Options{Dir: dataDir, Log: discard, FS: fs, Segment: size})
	if err != nil {
		t.Fatal(err)
	}
	return s.(*disk)
}

// text implements [Message] for a string.
type text string

func (m text) Append(dst []byte) []byte { return append(dst, m...) }

func entry(k Key, body string) Entry {
	return Entry{Key: k, State: State{Bytes: int64(len(body))}, Message: text(body)}
}

// sync waits until all earlier changes are durable.
func (d *disk) sync() error { return d.Flush(context.Background()) }

// content is the expected or actual content of a store.
type content struct {
	messages  map[Key]string
	documents map[string]string
}

func newContent() content {
	return content{messages: make(map[Key]string), documents: make(map[string]string)}
}

func (c content) equal(other content) bool {
	return maps.Equal(c.messages, other.messages) && maps.Equal(c.documents, other.documents)
}

func (c content) clone() content {
	return content{messages: maps.Clone(c.messages), documents: maps.Clone(c.documents)}
}

// read returns the content of the store. If the messages do not match the saved counts, it returns an error.
func (d *disk) read(queues, levels int) (c content, err error) {
	c = newContent()
	for q := range uint64(queues) {
		counted := make(map[uint8]Level)
		all, err := d.Levels(q)
		if err != nil {
			return c, err
		}
		for _, l := range all {
			counted[l.Level] = l
		}
		for l := range uint8(levels) {
			is := Level{Level: l}
			var after uint64
			for {
				some, err := d.Load(q, l, after, 3, 1<<20)
				if err != nil {
					return c, err
				}
				if len(some) == 0 {
					break
				}
				for _, m := range some {
					if m.Order <= after {
						return c, errors.New("messages are out of order")
					}
					c.messages[m.Key] = string(m.Message)
					is.Messages++
					is.Bytes += m.Bytes
					is.Last, after = m.Order, m.Order
				}
			}
			if was := counted[l]; is.Messages > 0 && was != is || is.Messages == 0 && was.Messages != 0 {
				return c, errors.New("messages are miscounted")
			}
		}
	}
	for doc, err := range d.Documents("") {
		if err != nil {
			return c, err
		}
		c.documents[doc.Name] = string(doc.Value)
	}
	return c, nil
}
