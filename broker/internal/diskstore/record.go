package diskstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"iter"

	"github.com/cockroachdb/pebble/v2/record"
)

// wholeRecords returns the length of the intact records at the start of a manifest.
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

// chunkHeader is the size of a chunk's header: checksum, length and kind. A record consists of one or more chunks.
const chunkHeader = 4 + 2 + 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendRecord returns the intact records of a manifest, followed by an additional record.
func appendRecord(manifest, edit []byte) ([]byte, error) {
	var out bytes.Buffer
	w := record.NewWriter(&out)
	in := record.NewReader(bytes.NewReader(manifest), 0)
	for {
		r, err := in.Next()
		if err != nil {
			break // the end of the manifest, or damage
		}
		text, err := io.ReadAll(r)
		if err != nil {
			break
		}
		if _, err := w.WriteRecord(text); err != nil {
			return nil, err
		}
	}
	if _, err := w.WriteRecord(edit); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}

// repairLog returns a new log with the intact records of a log, including records after a damaged part.
func repairLog(content []byte, number uint32) ([]byte, error) {
	var out bytes.Buffer
	w := record.NewWriter(&out)
	for text := range logRecords(content, number) {
		if text == nil {
			continue
		}
		if _, err := w.WriteRecord(text); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// logRecords yields the intact records of a log, including records after a damaged part, and the offset of the first damaged
// part before the record, or -1. If only the end of the log is unreadable, it yields nil and the offset at the end. A record
// is valid only until the next record.
func logRecords(content []byte, number uint32) iter.Seq2[[]byte, int] {
	const block, longestHeader = 32 << 10, chunkHeader + 4 + 8
	return func(yield func([]byte, int) bool) {
		var text []byte
		begun, end, damage := false, 0, -1 // begun: text contains the start of a record; end: offset after the last valid chunk
		for at := 0; at+chunkHeader < len(content); {
			payload, kind, size := readChunk(content[at:], number)
			if size == 0 {
				at++
				continue
			}
			next := at == end || at%block == 0 && at-end < longestHeader // the rest of a block may be too short for a chunk
			if !next && damage < 0 {
				damage = end
			}
			switch {
			case kind == firstPiece || kind == wholePiece:
				text, begun = text[:0], true
			case !next:
				begun = false
			}
			at += size
			end = at
			text = append(text, payload...)
			if begun && len(text) > 0 && (kind == lastPiece || kind == wholePiece) && !yield(text, damage) {
				return
			}
		}
		if damage < 0 && startsChunk(content[end:], number) {
			yield(nil, end)
		}
	}
}

// startsChunk reports whether content starts with the header of a chunk of a log, whose rest may be unreadable.
func startsChunk(content []byte, number uint32) bool {
	const numbered = 5 // first encoding whose header contains the number
	return len(content) >= chunkHeader+4 && content[6] >= numbered && content[6] <= 12 && binary.LittleEndian.Uint32(content[chunkHeader:]) == number
}

// The kinds of chunks in a record.
const (
	wholePiece = 1 + iota
	firstPiece
	middlePiece
	lastPiece
)

// readChunk reads a chunk of a log. If the chunk is not valid, the size is 0. In all three formats of chunks, the
// header contains the checksum, the length and the kind. The second format adds the number of the log, and the third
// format also adds the synced offset.
func readChunk(content []byte, number uint32) (payload []byte, kind, size int) {
	length, encoding := int(binary.LittleEndian.Uint16(content[4:])), int(content[6])
	if encoding < 1 || encoding > 12 {
		return nil, 0, 0
	}
	header := [3]int{chunkHeader, chunkHeader + 4, chunkHeader + 4 + 8}[(encoding-1)/4]
	size = header + length
	if size > len(content) {
		return nil, 0, 0
	}
	if header > chunkHeader && binary.LittleEndian.Uint32(content[chunkHeader:]) != number {
		return nil, 0, 0 // the chunk belongs to an earlier log, whose file was reused
	}
	if !sumMatches(content[:size]) {
		return nil, 0, 0
	}
	return content[header:size], (encoding-1)%4 + 1, size
}

// sumMatches reports whether a chunk matches the checksum in its header.
func sumMatches(chunk []byte) bool {
	sum := crc32.Checksum(chunk[6:], castagnoli)
	return (sum>>15|sum<<17)+0xa282ead8 == binary.LittleEndian.Uint32(chunk)
}
