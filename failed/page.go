package failed

import (
	"context"
	"math"
	"slices"
)

// How many messages are looked at. For PostgreSQL it is cheap to go along a list and ask of
// each whether it has the words of a search, and dear to fetch what the index of words
// finds, which comes without order, each from a page of its own.
const (
	maxLooked = 5_000  // by a page, and Count
	maxAsked  = 10_000 // by a page of a search of PostgreSQL
	maxFew    = 2_000  // of what the index of words finds, wherever it is
	probe     = 1_000  // before the index of words is asked
)

// fromTheTop is above all positions.
const fromTheTop = math.MaxInt64

// walk goes along a list of messages, downwards.
type walk struct {
	s      *selection
	next   int64 // from here
	looked int
	hits   int     // that the search has found
	found  []int64 // positions of those that are selected
	end    bool
}

// until walks until it has found more than size, or looked at most.
func (a *Archive) until(ctx context.Context, w *walk, size, limit, most int) error {
	// Few first: mostly, most of what is looked at is selected.
	for ; !w.end && len(w.found) <= size && w.looked < most; limit = w.more(size, limit) {
		limit = min(limit, most-w.looked)
		n, at := 0, 0
		for err := range a.db.Rows(ctx, w.s.look(w.next, limit), w.s.args...).Scan(&w.next, &at) {
			if err != nil {
				return err
			}
			n++
			if at >= lookedFound {
				w.hits++
			}
			if at == lookedSelected {
				w.found = append(w.found, w.next)
			}
			if len(w.found) > size {
				break
			}
		}
		w.looked += n
		w.end = n < limit && len(w.found) <= size
	}
	return nil
}

// more is how many to look at next, having looked at limit: four times as many, or as
// should do by what has been found so far. PostgreSQL looks at all that it is asked for, also
// when nobody reads on.
func (w *walk) more(size, limit int) int {
	more := 4 * limit
	if n := len(w.found); n > 0 {
		more = min(more, (size+1-n)*w.looked/n*5/4+size)
	}
	return more
}

// page returns the positions of the next messages that are selected, from before
// downwards: at most size, and fewer if it has looked at enough. The next page is from
// next downwards, unless this is the end.
func (a *Archive) page(ctx context.Context, s *selection, before int64, size int) (found []int64, next int64, end bool, err error) {
	w := &walk{s: s, next: before}
	if a.searches(s) {
		err = a.search(ctx, w, size)
	} else {
		err = a.until(ctx, w, size, 4*(size+1), maxLooked)
	}
	if len(w.found) > size { // the one too many says that there are more
		return w.found[:size], w.found[size-1], false, err
	}
	return w.found, w.next, w.end, err
}

// searches reports whether words are searched for, and the database has no list of them
// in order: FTS5 has.
func (a *Archive) searches(s *selection) bool {
	return len(s.terms) > 0 && s.d.Dialect == PostgreSQL
}

// search finds a page: along the list if the words are frequent, and else by their index.
func (a *Archive) search(ctx context.Context, w *walk, size int) error {
	if err := a.until(ctx, w, size, 4*(size+1), probe); err != nil || w.end || len(w.found) > size {
		return err
	}
	if w.hits*maxAsked < w.looked*size { // going on like that does not fill the page
		few, all, err := a.few(ctx, w.s, w.next)
		if err != nil {
			return err
		}
		if all {
			more, err := a.among(ctx, w.s, few, size+1-len(w.found))
			w.found, w.end = append(w.found, more...), true
			return err
		}
	}
	return a.until(ctx, w, size, 4*probe, maxAsked)
}

// some returns the positions of what is selected, and reports whether there is more: the latest come
// first, unless they are too many and the words are rare.
func (a *Archive) some(ctx context.Context, s *selection) (at []int64, more bool, err error) {
	w := &walk{s: s, next: fromTheTop}
	if a.searches(s) {
		err := a.until(ctx, w, maxLooked, probe, probe)
		if err == nil && !w.end && w.hits <= w.looked/2 {
			few, all, err := a.few(ctx, s, w.next)
			if err != nil {
				return nil, false, err
			}
			if all || len(few) == maxFew { // if not, the others are elsewhere
				found, err := a.among(ctx, s, few, len(few))
				return append(w.found, found...), !all, err
			}
		}
		if err != nil {
			return nil, false, err
		}
	}
	err = a.until(ctx, w, maxLooked, maxLooked, maxLooked)
	return w.found, !w.end, err
}

// few returns what a search finds before a position, the latest first, or, if it finds more
// than maxFew anywhere, some of it.
func (a *Archive) few(ctx context.Context, s *selection, before int64) (at []int64, all bool, err error) {
	n, pos := 0, int64(0)
	for err := range a.db.Rows(ctx, s.matches(maxFew+1)).Scan(&pos) {
		if err != nil {
			return nil, false, err
		}
		if n++; pos >= s.from && pos < min(before, s.until) && len(at) < maxFew {
			at = append(at, pos)
		}
	}
	slices.Sort(at)
	slices.Reverse(at)
	return at, n <= maxFew, nil
}

// among returns the first n of positions whose messages are selected.
func (a *Archive) among(ctx context.Context, s *selection, at []int64, n int) (found []int64, err error) {
	for size := 4 * n; len(at) > 0 && len(found) < n; size *= 4 {
		part := at[:min(size, len(at))]
		at = at[len(part):]
		var pos int64
		var is int
		for err := range a.db.Rows(ctx, s.among(len(s.args)+1), slices.Concat(s.args, []any{list(s.d, part)})...).Scan(&pos, &is) {
			if err != nil {
				return nil, err
			}
			if is == lookedSelected && len(found) < n {
				found = append(found, pos)
			}
		}
	}
	return found, nil
}
