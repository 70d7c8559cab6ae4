package failed

import (
	"math"
	"slices"
)

// maxLooked is how many messages a page looks at, and Count.
const maxLooked = 5_000

// probe is how many messages PostgreSQL looks at, before a search asks its index.
const probe = 200

// page returns the positions of the next messages that are selected, from before
// downwards: at most size, and fewer if it has looked at maxLooked. The next page is
// from next downwards, unless this is the end.
func (t *tx) page(s *selection, before int64, size int) (found []int64, next int64, end bool, err error) {
	probing := len(s.terms) > 0 && t.cfg.Dialect == PostgreSQL
	// Few first: mostly, most of what is looked at is selected.
	limit := min(4*(size+1), maxLooked)
	if probing {
		limit = probe
	}
	next = before
	for looked := 0; !end && len(found) <= size && looked < maxLooked; limit = min(4*limit, maxLooked) {
		n, hits := 0, 0
		for row, err := range t.rows(s.look(next, limit), s.args...) {
			if err != nil {
				return nil, 0, false, err
			}
			var at int
			if err := row.Scan(&next, &at); err != nil {
				return nil, 0, false, err
			}
			n++
			if at >= lookedFound {
				hits++
			}
			if at == lookedSelected {
				found = append(found, next)
			}
			if len(found) > size {
				break
			}
		}
		looked += n
		end = n < limit && len(found) <= size
		if probing && !end && len(found) <= size && hits*10 < n {
			few, all, err := t.few(s, next)
			if err != nil {
				return nil, 0, false, err
			}
			if all {
				more, err := t.among(s, few, size+1-len(found))
				if err != nil {
					return nil, 0, false, err
				}
				found, end = append(found, more...), true
			}
		}
		probing = false
	}
	if len(found) > size { // the one too many says that there are more
		return found[:size], found[size-1], false, nil
	}
	return found, next, end, nil
}

// few returns all that a search finds, the latest first, unless it is more than a page
// looks at.
func (t *tx) few(s *selection, before int64) (at []int64, all bool, err error) {
	if err := t.plan(t.cfg.Dialect.bitmaps()); err != nil {
		return nil, false, err
	}
	for row, err := range t.rows(s.matches(before, maxLooked+1)) {
		if err != nil {
			return nil, false, err
		}
		var pos int64
		if err := row.Scan(&pos); err != nil {
			return nil, false, err
		}
		at = append(at, pos)
	}
	slices.Sort(at)
	slices.Reverse(at)
	return at, len(at) <= maxLooked, t.plan(t.cfg.Dialect.indexes())
}

// among returns the first n of positions whose messages are selected.
func (t *tx) among(s *selection, at []int64, n int) (found []int64, err error) {
	size := 4 * n
	for len(at) > 0 && len(found) < n {
		part := at[:min(size, len(at))]
		at, size = at[len(part):], 4*size
		for row, err := range t.rows(s.among(len(s.args)+1), slices.Concat(s.args, []any{list(t.cfg.Dialect, part)})...) {
			if err != nil {
				return nil, err
			}
			var pos int64
			var is int
			if err := row.Scan(&pos, &is); err != nil {
				return nil, err
			}
			if is == lookedSelected && len(found) < n {
				found = append(found, pos)
			}
		}
	}
	return found, nil
}

// fromTheTop is above all positions.
const fromTheTop = math.MaxInt64
