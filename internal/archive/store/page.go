package store

import (
	"context"
	"math"
	"slices"
)

// Limits on the number of messages to check. In PostgreSQL it is cheap to read a list in order and check the words of
// each message. It is expensive to fetch the matches of the word index, because they are unsorted and each match may be
// in a different page of the table.
const (
	maxLooked = 5_000  // by a page, and by Count
	maxAsked  = 10_000 // by a page of a PostgreSQL search
	maxFew    = 2_000  // matches of the word index, at any position
	maxAtOnce = 1_000  // by one query: PostgreSQL compiles a query (JIT) if it expects more work, for 10 ms and more
	probe     = 1_000  // messages to check before the query uses the word index
)

// fromTheTop is higher than all positions.
const fromTheTop = math.MaxInt64

// walk is a pass over the messages of a list, in descending order of the position.
type walk struct {
	s      *selection
	next   int64 // exclusive upper bound of the next positions
	looked int
	hits   int     // number of messages that match the search
	found  []int64 // positions of selected messages
	end    bool
}

// until continues the walk until it has found more than size messages, has checked the maximum number of messages
// (most), or has reached the end.
func (a *Archive) until(ctx context.Context, w *walk, size, limit, most int) error {
	// Start with few messages, because usually most of the checked messages are selected.
	for ; !w.end && len(w.found) <= size && w.looked < most; limit = w.more(size, limit) {
		limit = min(limit, most-w.looked, maxAtOnce)
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

// more returns the number of messages to check next, after limit. It is four times limit, or less if, at the hit rate
// so far, fewer messages are enough to fill the page. PostgreSQL computes all requested rows even if the caller stops
// reading.
func (w *walk) more(size, limit int) int {
	more := 4 * limit
	if n := len(w.found); n > 0 {
		more = min(more, (size+1-n)*w.looked/n*5/4+size)
	}
	return more
}

// page returns the positions of the next selected messages, in descending order, beginning below the position before.
// It returns at most size positions, and fewer if it reaches the end or the limit of checked messages. The next page
// starts below next, unless end is true.
func (a *Archive) page(ctx context.Context, s *selection, before int64, size int) (found []int64, next int64, end bool, err error) {
	w := &walk{s: s, next: before}
	if a.searches(s) {
		err = a.search(ctx, w, size)
	} else {
		err = a.until(ctx, w, size, 4*(size+1), maxLooked)
	}
	if len(w.found) > size { // the additional position proves that more messages follow
		return w.found[:size], w.found[size-1], false, err
	}
	return w.found, w.next, w.end, err
}

// searches reports whether the selection searches for words in a database that cannot list the matches in order. FTS5
// of SQLite can list them in order.
func (a *Archive) searches(s *selection) bool {
	return len(s.terms) > 0 && s.d.Dialect == PostgreSQL
}

// search finds a page. If the words are frequent, it checks the list. If they are rare, it uses the word index.
func (a *Archive) search(ctx context.Context, w *walk, size int) error {
	if err := a.until(ctx, w, size, 4*(size+1), probe); err != nil || w.end || len(w.found) > size {
		return err
	}
	if w.hits*maxAsked < w.looked*size { // the hit rate is too low to fill the page from the list
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
	return a.until(ctx, w, size, maxAtOnce, maxAsked)
}

// some returns the positions of selected messages, and reports whether there may be more. Usually these are the latest
// messages. If the words are rare but have more than maxFew matches, the positions may belong to arbitrary matches.
func (a *Archive) some(ctx context.Context, s *selection) (at []int64, more bool, err error) {
	w := &walk{s: s, next: fromTheTop}
	if a.searches(s) {
		err := a.until(ctx, w, maxLooked, probe, probe)
		// For more frequent words, PostgreSQL would read hundreds of thousands of matches from the index before it
		// returns the first row.
		if err == nil && !w.end && w.hits <= w.looked/10 {
			few, all, err := a.few(ctx, s, w.next)
			if err != nil {
				return nil, false, err
			}
			if all || len(few) == maxFew { // if neither holds, some of the fetched matches are outside the positions to search
				found, err := a.among(ctx, s, few, len(few))
				return append(w.found, found...), !all, err
			}
		}
		if err != nil {
			return nil, false, err
		}
	}
	err = a.until(ctx, w, maxLooked, maxAtOnce, maxLooked)
	return w.found, !w.end, err
}

// few returns the matches of a search below the position before, the latest first. If the search has more than maxFew
// matches at any position, few returns only some of them, and false.
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

// among returns the first n of the positions whose messages are selected.
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
