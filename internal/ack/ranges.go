package ack

// ranges is a set of tags. Its size is the number of gaps, which is at most the number of deliveries in flight. If a handler
// never returns, the size does not grow with the number of later messages.
type ranges struct {
	end   map[uint64]uint64 // end of the range that starts at the key
	start map[uint64]uint64 // start of the range that ends at the key
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

// take removes the range that starts at the tag start, if it exists, and returns the end of the range.
func (r ranges) take(start uint64) (end uint64, found bool) {
	end, found = r.end[start]
	if found {
		delete(r.end, start)
		delete(r.start, end)
	}
	return end, found
}
