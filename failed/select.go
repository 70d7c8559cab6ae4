package failed

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// selection is a Filter in SQL, in two parts. indexed conditions are those that an
// index finds; the others are looked at message by message, and so a page looks at
// no more than maxLooked.
//
// Numbers are written into the statement: PostgreSQL plans a large group in another way
// than a small one, which it cannot for an argument that may be either.
type selection struct {
	d       Dialect
	args    []any
	search  string   // condition on {search} AS s, "" if there is none
	indexed []string // conditions on {message} AS m
	others  []string
	states  []int // if not nil: those alone
	from    int64 // pos
	until   int64 // pos, not included
}

// arg adds an argument and returns how it is written.
func (s *selection) arg(v any) string {
	s.args = append(s.args, v)
	return fmt.Sprintf("$%d", len(s.args))
}

// selection of a filter. The work queue's number is asked for by the caller: 0 if
// there is no such.
func (f Filter) selection(d Dialect, queue int64) *selection {
	s := &selection{d: d, until: math.MaxInt64}
	if f.States != nil {
		s.states = []int{}
		for _, state := range States() {
			if slices.Contains(f.States, state) {
				s.states = append(s.states, codes[state])
			}
		}
	}
	s.between(f)
	if f.IDs != nil {
		s.indexed = append(s.indexed, d.in("m.id", s.arg(list(d, f.IDs))))
	}
	if f.Replay != 0 {
		s.indexed = append(s.indexed, fmt.Sprintf(`m.back > 0 AND m.back = %d`, f.Replay))
	}
	if terms := f.terms(); len(terms) > 0 {
		if f.Queue != "" {
			terms = append(terms, queueTerm(queue))
		}
		if f.Group != 0 {
			terms = append(terms, groupTerm(f.Group))
		}
		s.search = d.found(terms)
	} else {
		if f.Queue != "" {
			s.indexed = append(s.indexed, fmt.Sprintf(`m.queue = %d`, queue))
		}
		if f.Group != 0 {
			s.indexed = append(s.indexed, fmt.Sprintf(`m.grp = %d`, f.Group))
		}
	}
	if f.MinAttempts > 0 {
		s.others = append(s.others, `m.attempts >= `+s.arg(f.MinAttempts))
	}
	if f.MaxAttempts > 0 {
		s.others = append(s.others, `m.attempts <= `+s.arg(f.MaxAttempts))
	}
	if f.Error != "" {
		// Only what is as long as {message} has it is longer in {content}.
		part := s.arg(bytesOf(f.Error))
		s.others = append(s.others, `(`+d.part("m.error", part)+fmt.Sprintf(` OR length(m.error) > %d AND EXISTS
			(SELECT 1 FROM {content} c WHERE c.message = m.id AND c.error IS NOT NULL AND `, maxErrorShown-utf8.UTFMax)+d.part("c.error", part)+`))`)
	}
	return s
}

// between bounds the time of the last failure: by the second, which is part of the
// position, and where that is not exact, by the millisecond.
func (s *selection) between(f Filter) {
	exact := func(t time.Time) bool { return t.Nanosecond() == 0 && t.Unix() >= 0 && t.Unix() <= math.MaxUint32 }
	if !f.Since.IsZero() {
		s.from = positionOf(f.Since)
		if !exact(f.Since) {
			s.others = append(s.others, `m.last_failed >= `+s.arg(ceil(f.Since)))
		}
	}
	if f.Until.IsZero() {
		return
	}
	if exact(f.Until) {
		s.until = positionOf(f.Until)
		return
	}
	if f.Until.Unix() < math.MaxUint32 {
		s.until = positionOf(f.Until) + 1<<idBits
	}
	s.others = append(s.others, `m.last_failed < `+s.arg(ceil(f.Until)))
}

// ceil is the first millisecond that is not before t.
func ceil(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// terms of the search that a filter needs.
func (f Filter) terms() []string {
	var t terms
	t.text(f.Text)
	for name, value := range f.Headers {
		t.add(headerTerm(name, value))
	}
	// The part of an error may begin and end within a word; those between are whole.
	if e := f.Error; len(e) < maxErrorShown {
		start := strings.IndexFunc(e, notWord)
		end := strings.LastIndexFunc(e, notWord)
		if start >= 0 && end > start {
			t.text(e[start:end])
		}
	}
	return t.list
}

func notWord(r rune) bool { return !isWord(r) }

// validate reports what cannot be meant.
func (f Filter) validate() error {
	for _, s := range f.States {
		if _, ok := codes[s]; !ok {
			return fmt.Errorf("%w: there is no state %q: use %q", ErrInvalid, s, States())
		}
	}
	if f.MaxAttempts > 0 && f.MinAttempts > f.MaxAttempts {
		return fmt.Errorf("%w: MinAttempts %d is more than MaxAttempts %d", ErrInvalid, f.MinAttempts, f.MaxAttempts)
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return fmt.Errorf("%w: Since %s is not before Until %s", ErrInvalid, f.Since, f.Until)
	}
	if f.Text != "" {
		var t terms
		if t.text(f.Text); len(t.list) == 0 {
			return fmt.Errorf("%w: there is no letter and no digit in the text %q to search for", ErrInvalid, f.Text)
		}
	}
	return nil
}

// where is all of the selection as one condition on {message} AS m.
func (s *selection) where() string {
	conditions := slices.Concat(s.indexed, s.others)
	if s.search != "" {
		conditions = append(conditions, `m.pos IN (SELECT `+s.d.pos()+` FROM {search} s WHERE `+s.search+`)`)
	}
	if s.states != nil {
		conditions = append(conditions, `m.state IN (`+join(s.states)+`)`)
	}
	conditions = append(conditions, fmt.Sprintf(`m.pos >= %d AND m.pos < %d`, s.from, s.until))
	return strings.Join(conditions, " AND ")
}

// look is the query of a page: pos of the next messages to look at, from before
// downwards, and whether each is selected.
func (s *selection) look(before int64, limit int) string {
	before = min(before, s.until)
	others := append([]string{"1 = 1"}, s.others...)
	if s.search != "" {
		if s.states != nil {
			others = append(others, `m.state IN (`+join(s.states)+`)`)
		}
		others = append(others, s.indexed...)
		pos := s.d.pos()
		return fmt.Sprintf(`SELECT m.pos, CASE WHEN %s THEN 1 ELSE 0 END FROM
			(SELECT %s AS pos FROM {search} s WHERE %s AND %[2]s < %[4]d AND %[2]s >= %[5]d ORDER BY %[2]s DESC LIMIT %[6]d) f
			JOIN {message} m ON m.pos = f.pos ORDER BY m.pos DESC`,
			strings.Join(others, " AND "), pos, s.search, before, s.from, limit)
	}
	one := func(state string) string {
		conditions := append([]string{fmt.Sprintf(`m.pos < %d AND m.pos >= %d`, before, s.from)}, s.indexed...)
		if state != "" {
			conditions = append(conditions, state)
		}
		return fmt.Sprintf(`SELECT m.pos AS pos, CASE WHEN %s THEN 1 ELSE 0 END AS ok FROM {message} m WHERE %s ORDER BY m.pos DESC LIMIT %d`,
			strings.Join(others, " AND "), strings.Join(conditions, " AND "), limit)
	}
	// Each index has the state before the position, so that each state is a list of
	// its own, and the lists are merged.
	states := s.states
	if states == nil {
		if len(s.indexed) == 0 {
			return one("")
		}
		states = []int{0, 1, 2, 3}
	}
	var lists []string
	for _, state := range states {
		lists = append(lists, `SELECT * FROM (`+one(fmt.Sprintf(`m.state = %d`, state))+`) s`+fmt.Sprint(state))
	}
	if len(lists) == 0 {
		return one(`1 = 0`)
	}
	return strings.Join(lists, ` UNION ALL `) + fmt.Sprintf(` ORDER BY 1 DESC LIMIT %d`, limit)
}

// join writes numbers for IN, which may not be empty in PostgreSQL.
func join(numbers []int) string {
	out := []string{"-1"}
	for _, n := range numbers {
		out = append(out, fmt.Sprint(n))
	}
	return strings.Join(out, ", ")
}
