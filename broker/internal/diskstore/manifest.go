package diskstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// checkManifest looks for damage in the file that says which others there are. Pebble reads it up to the first record that
// is not whole, as if the rest had never been written, and deletes what it has not read of. That is right when the last
// write was cut off, and a disaster when there are records behind.
func checkManifest(fs vfs.FS, database string) error {
	about, err := pebble.Peek(database, fs)
	if err != nil {
		return err
	}
	if !about.Exists {
		return pebble.ErrDBDoesNotExist
	}
	f, err := fs.Open(about.ManifestFilename)
	if err != nil {
		return err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if whole := wholeRecords(content); !cutOff(content[whole:]) {
		return fmt.Errorf("%s cannot be read from byte %d on", about.ManifestFilename, whole)
	}
	return nil
}

// wholeRecords returns how many bytes at the beginning of a manifest are in order.
func wholeRecords(content []byte) int {
	rest := record.NewReader(bytes.NewReader(content), 0)
	whole := int64(0)
	for {
		r, err := rest.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil {
			if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return len(content)
			}
			return int(min(whole, int64(len(content))))
		}
		whole = rest.Offset()
	}
}

// chunkHeader is the size of what comes before each piece of a record: checksum, length, kind.
const chunkHeader = 4 + 2 + 1

// cutOff reports whether what follows the last whole record is the beginning of one that was being written when the power
// went: the file ends in the middle of it, or the system had only made room for it.
func cutOff(rest []byte) bool {
	if len(bytes.Trim(rest, "\x00")) == 0 || len(rest) < chunkHeader {
		return true
	}
	length := int(binary.LittleEndian.Uint16(rest[4:]))
	return chunkHeader+length > len(rest) && !hasRecord(rest)
}

// hasRecord reports whether there is a piece of a record anywhere, by its checksum.
func hasRecord(content []byte) bool {
	for ; len(content) > chunkHeader; content = content[1:] {
		end := chunkHeader + int(binary.LittleEndian.Uint16(content[4:]))
		if end == chunkHeader || end > len(content) {
			continue
		}
		if sumMatches(content[:end]) {
			return true
		}
	}
	return false
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
