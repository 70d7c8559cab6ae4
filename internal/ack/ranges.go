package ack

// ranges is a set of tags that takes as much room as it has gaps: as many as
// there are deliveries under way, and not one for each message that went past
// a handler which never ends.
type ranges struct {
	end   map[uint64]uint64 // of the range that starts there
	start map[uint64]uint64 // of the range that ends there
}

func newRanges() ranges {
	return ranges{end: map[uint64]uint64{}, start: map[uint64]uint64{}}
}

// add adds a tag that is not in the set.
func (r ranges) add(tag uint64) {
	start, end := tag, tag
	if s, found := r.start[tag-1]; found {
		start = s
		delete(r.start, tag-1)
	}
	if e, found := r.end[tag+1]; found {
		end = e
		delete(r.end, tag+1)
	}
	r.end[start], r.start[end] = end, start
}

// take removes the range that starts at a tag, if there is one, and returns
// where it ends.
func (r ranges) take(start uint64) (end uint64, found bool) {
	end, found = r.end[start]
	if found {
		delete(r.end, start)
		delete(r.start, end)
	}
	return end, found
}
