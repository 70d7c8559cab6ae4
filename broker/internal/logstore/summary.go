package logstore

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// summary is the content of the last frame of a sealed segment.
//
//	end of the records, length of the tombstones, tombstones, messages and documents
type summary struct {
	dead, live []byte
	levels     map[level]*summarized
	last       uint32 // offset of the last message or document
}

// level identifies the messages of one queue that have the same store level (see [store.Key]).
type level struct {
	queue uint64
	level uint8
}

type summarized struct {
	number uint64
	order  uint64 // of the last message
}

func newSummary() *summary { return &summary{levels: make(map[level]*summarized)} }

func (s *summary) step(offset uint32) {
	s.live = binary.AppendUvarint(s.live, uint64(offset-s.last))
	s.last = offset
}

// message implements [visitor]: number of the level + 1, difference of the offset, difference of the order, bytes and flag.
func (s *summary) message(k Key, offset uint32, bytes int64, transient bool) {
	at := level{k.Queue, k.Level}
	l := s.levels[at]
	if l == nil {
		l = &summarized{number: uint64(len(s.levels))}
		s.levels[at] = l
		s.live = binary.AppendUvarint(s.live, l.number+1)
		s.live = append(binary.AppendUvarint(s.live, k.Queue), k.Level)
	} else {
		s.live = binary.AppendUvarint(s.live, l.number+1)
	}
	s.step(offset)
	s.live = binary.AppendVarint(s.live, int64(k.Order-l.order))
	l.order = k.Order
	flags := bytes << 1
	if transient {
		flags |= 1
	}
	s.live = binary.AppendVarint(s.live, flags)
}

// document implements [visitor]: 0, difference of the offset, length of the name, name.
func (s *summary) document(name string, offset uint32) {
	s.live = append(s.live, 0)
	s.step(offset)
	s.live = binary.AppendUvarint(s.live, uint64(len(name)))
	s.live = append(s.live, name...)
}

// tombstones implements [visitor].
func (s *summary) tombstones(segment uint32, offsets []uint32) {
	s.dead = appendTombstones(s.dead, segment, offsets)
}

func (s *summary) drop(uint32) {} // only the drops in the newest segment matter
func (s *summary) closed()     {}

// trailerSize is the size of the end of a sealed segment: offset of the summary, checksum.
const trailerSize = 8

// appendSeal appends the summary of a segment and its trailer. The summary begins at the given offset. The records end at end.
func (s *summary) appendSeal(dst []byte, segment, at, end uint32) []byte {
	from := len(dst)
	dst = beginFrame(dst)
	dst = binary.AppendUvarint(dst, uint64(end))
	dst = binary.AppendUvarint(dst, uint64(len(s.dead)))
	dst = append(append(dst, s.dead...), s.live...)
	endFrame(dst[from:], segment)
	trailer := binary.LittleEndian.AppendUint32(nil, at)
	trailer = binary.LittleEndian.AppendUint32(trailer, trailerSum(trailer, segment))
	return append(dst, trailer...)
}

func trailerSum(offset []byte, segment uint32) uint32 {
	return crc32.Update(crc32.Checksum(offset, castagnoli), castagnoli, binary.LittleEndian.AppendUint32(nil, segment))
}

// sealed is the summary of a sealed segment, as read from its file.
type sealed struct {
	end        int64 // of the records
	dead, live []byte
}

// readSealed reads the summary of a segment. If the segment is not sealed, or its end is damaged, ok is false.
func readSealed(f vfs.File, size int64, segment uint32) (s sealed, ok bool, err error) {
	if size < trailerSize {
		return s, false, nil
	}
	var trailer [trailerSize]byte
	if _, err := f.ReadAt(trailer[:], size-trailerSize); err != nil {
		return s, false, err
	}
	at := int64(binary.LittleEndian.Uint32(trailer[:]))
	if binary.LittleEndian.Uint32(trailer[4:]) != trailerSum(trailer[:4], segment) || at >= size-trailerSize {
		return s, false, nil
	}
	content := make([]byte, size-trailerSize-at)
	if _, err := f.ReadAt(content, at); err != nil {
		return s, false, err
	}
	payload, n := readFrame(content, segment)
	if n != len(content) {
		return s, false, nil
	}
	r := reader{rest: payload}
	s.end = int64(r.number())
	s.dead = r.bytes(r.number())
	s.live = r.rest
	return s, r.err == nil, nil
}

// visitDead visits the tombstones of the segment.
func (s *sealed) visitDead(visit func(segment uint32, offsets []uint32)) error {
	r := reader{rest: s.dead}
	var spare []uint32
	for len(r.rest) > 0 && r.err == nil {
		r.byte()
		var segment uint32
		if segment, spare = r.tombstones(spare); r.err == nil {
			visit(segment, spare)
		}
	}
	return r.err
}

// visitLive visits the messages and documents of the segment.
func (s *sealed) visitLive(message func(k Key, offset uint32, bytes int64, transient bool), document func(name string, offset uint32)) error {
	r := reader{rest: s.live}
	var levels []Key // with the order of the last message
	var offset uint32
	for len(r.rest) > 0 && r.err == nil {
		number := r.number()
		if number == 0 {
			offset += uint32(r.number())
			if name := r.bytes(r.number()); r.err == nil {
				document(string(name), offset)
			}
			continue
		}
		if number > uint64(len(levels)) {
			queue := r.number()
			levels = append(levels, Key{Queue: queue, Level: r.byte()})
			number = uint64(len(levels))
		}
		offset += uint32(r.number())
		k := &levels[number-1]
		k.Order += uint64(unzigzag(r.number()))
		flags := unzigzag(r.number())
		if r.err == nil {
			message(*k, offset, flags>>1, flags&1 != 0)
		}
	}
	return r.err
}

func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }
