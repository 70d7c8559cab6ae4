package store

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// selection is a Filter as SQL. It separates the conditions that an index supports from the other conditions, which the
// query checks message by message, so that a page can stop after a limited number of messages.
//
// Terms, positions, states, and the IDs of queues, groups and replays are literals in the statements, so that the
// database plans each statement for its values.
type selection struct {
	d     dialect
	args  []any
	terms []string // search terms

	ids       string         // condition on m.id, or ""
	outcome   failed.Outcome // outcome for sentBy; "": any outcome
	overdue   bool           // VerifyTime of sentBy has passed
	by        int64          // the replay that refused the messages; 0 in this field and the next four: no condition
	sentBy    int64
	back      int64
	group     int64
	regrouped bool // the search index may name another group for messages of the group
	queue     int64
	states    []int // nil: all states
	from      int64 // lowest position
	until     int64 // upper bound of the position, exclusive

	also string // a condition that replaces all others, or ""

	others   []string // conditions on {message} AS m
	attempts bool     // others contains only bounds of the number of attempts
}

// arg adds an argument and returns its placeholder.
func (s *selection) arg(v any) string {
	s.args = append(s.args, v)
	return fmt.Sprintf("$%d", len(s.args))
}

// selectionOf returns the selection of a filter. queue is the ID of the work queue, or 0 if the filter does not specify a
// queue.
func selectionOf(f failed.Filter, d dialect, queue int64) *selection {
	s := &selection{d: d, until: math.MaxInt64, terms: filterTerms(f), by: int64(f.RefusedBy), sentBy: int64(f.SentBy), outcome: f.Outcome, back: int64(f.Replay), group: int64(f.Group), queue: queue}
	if f.States != nil {
		s.states = []int{}
		for _, state := range failed.States() {
			if slices.Contains(f.States, state) {
				s.states = append(s.states, codes[state])
			}
		}
	}
	if f.IDs != nil {
		s.ids = d.in("m.id", s.arg(list(d, f.IDs)))
	}
	if f.Act != 0 {
		acted := fmt.Sprintf(`m.id IN (SELECT t.message FROM {acted} t WHERE t.act = %d AND NOT EXISTS (SELECT 1 FROM {acted} l WHERE l.message = t.message AND l.act > t.act))`, f.Act)
		if s.ids != "" {
			acted += ` AND ` + s.ids
		}
		s.ids = acted
	}
	if f.MinAttempts > 0 {
		s.others = append(s.others, `m.attempts >= `+s.arg(f.MinAttempts))
	}
	if f.MaxAttempts > 0 {
		s.others = append(s.others, `m.attempts <= `+s.arg(f.MaxAttempts))
	}
	attempts := len(s.others)
	if f.Through > 0 {
		s.others = append(s.others, fmt.Sprintf(`m.id <= %d`, f.Through))
	}
	s.between(f)
	if f.Error != "" {
		// {message} has a truncated copy of a long error. Only an error whose copy has almost the maximum length can be
		// longer in {content}. With EXISTS, PostgreSQL would read all of {content} first.
		part := s.arg([]byte(f.Error))
		s.others = append(s.others, `(`+d.part("m.error", part)+fmt.Sprintf(` OR length(m.error) > %d AND
			(SELECT %s FROM {content} c WHERE c.message = m.id))`, maxErrorShown-utf8.UTFMax, d.part("c.error", part)))
	}
	if f.Refused {
		s.others = append(s.others, `m.refused IS NOT NULL`)
	}
	s.attempts = attempts > 0 && attempts == len(s.others)
	return s
}

// between limits the time of the last failure. The position contains the second. If a bound is not a whole second, a
// condition also compares the milliseconds.
func (s *selection) between(f failed.Filter) {
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

// ceil returns the first millisecond that is not before t.
func ceil(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// terms returns the search terms of a filter.
func filterTerms(f failed.Filter) []string {
	var t terms
	t.text(f.Text)
	for name, value := range f.Headers {
		t.add(headerTerm(name, value))
	}
	for _, w := range errorWords(f) {
		t.add(w)
	}
	return t.list
}

// errorWords returns words that occur in every error that contains Filter.Error. Filter.Error may begin and end inside
// a word, so only the inner words are complete. The three longest words suffice, because the query checks each match.
// Short words are frequent, and cost more than they save.
func errorWords(f failed.Filter) []string {
	e := f.Error
	if len(e) >= maxErrorShown {
		return nil
	}
	start, end := strings.IndexFunc(e, notWord), strings.LastIndexFunc(e, notWord)
	if start < 0 || start == end {
		return nil
	}
	all := slices.Collect(failed.Words(e[start:end]))
	slices.SortStableFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all[:min(len(all), 3)]
}

func notWord(r rune) bool { return !failed.IsWord(r) }

// search returns the condition on {search} AS s.
func (s *selection) search() string { return s.d.found(s.allTerms()) }

// allTerms returns the terms of the search, the queue and the group.
func (s *selection) allTerms() []string {
	terms := slices.Clone(s.terms)
	if s.queue != 0 {
		terms = append(terms, queueTerm(s.queue))
	}
	if s.group != 0 && !s.regrouped {
		terms = append(terms, groupTerm(failed.GroupID(s.group)))
	}
	return terms
}

// column returns a column of {message} AS m for a condition. SQLite has no statistics and assumes that each state,
// queue and group is rare. If the selection has words, IDs or a replay, the unary plus prevents the use of an index
// on the column.
func (s *selection) column(name string) string {
	if s.d.Dialect == SQLite && (len(s.terms) > 0 || s.ids != "" || s.by+s.sentBy+s.back != 0) {
		return "+m." + name
	}
	return "m." + name
}

// in returns the complete selection of messages in a state as one condition on {message} AS m.
func (s *selection) in(state int) string {
	return fmt.Sprintf(`%s = %d AND %s`, s.column("state"), state, s.where())
}

// conditions returns the conditions on {message} AS m, except the search and the position.
func (s *selection) conditions() (list []string) {
	if s.ids != "" {
		list = append(list, s.ids)
	}
	if s.by != 0 {
		list = append(list, fmt.Sprintf(`m.id IN (SELECT i.message FROM {item} i WHERE i.replay = %d AND i.sent = 2)`, s.by))
	}
	if s.sentBy != 0 {
		list = append(list, fmt.Sprintf(`m.id IN (SELECT i.message FROM {item} i WHERE i.replay = %d AND i.sent = 1 AND i.outcome IN (%s))`,
			s.sentBy, failed.Join(append([]int{-1}, s.outcomes()...), ", ")))
	}
	if s.back != 0 {
		list = append(list, fmt.Sprintf(`m.back > 0 AND m.back = %d`, s.back))
	}
	if s.group != 0 {
		list = append(list, fmt.Sprintf(`%s = %d`, s.column("grp"), s.group))
	}
	if s.queue != 0 {
		list = append(list, fmt.Sprintf(`%s = %d`, s.column("queue"), s.queue))
	}
	states := s.states
	if states == nil && s.group+s.queue != 0 {
		states = everyState // the indexes begin with the state
	}
	if states != nil {
		list = append(list, s.column("state")+` IN (`+failed.Join(append([]int{-1}, states...), ", ")+`)`)
	}
	return append(list, s.others...)
}

// where returns the complete selection as one condition on {message} AS m.
func (s *selection) where() string {
	conditions := s.conditions()
	if len(s.terms) > 0 {
		conditions = append(conditions, `m.pos IN (SELECT `+s.d.pos()+` FROM {search} s WHERE `+s.search()+`)`)
	}
	conditions = append(conditions, fmt.Sprintf(`m.pos >= %d AND m.pos < %d`, s.from, s.until))
	where := strings.Join(conditions, " AND ")
	if s.also != "" {
		where = `(` + where + ` OR ` + s.also + `)`
	}
	return where
}

var everyState = []int{0, 1, 2, 3}

// Results of the check of a message.
const (
	lookedAt       = iota
	lookedFound    // matches the search
	lookedSelected // matches the search and all other conditions
)

// judge returns an SQL expression: lookedSelected if the conditions on {message} AS m are true, else lookedFound.
func judge(others []string) string {
	return fmt.Sprintf(`CASE WHEN %s THEN %d ELSE %d END`, strings.Join(append([]string{"1 = 1"}, others...), " AND "), lookedSelected, lookedFound)
}

// look returns the query for a part of a page: at most limit messages, the latest below the position before, each with
// its position and the result of the check.
func (s *selection) look(before int64, limit int) string {
	before = min(before, s.until)
	switch {
	case len(s.terms) == 0:
		return s.along(before, limit)
	case s.d.Dialect == SQLite:
		// FTS5 finds the latest messages first, and reads no further than the limit.
		return through(fmt.Sprintf(`SELECT s.rowid AS pos, 1 = 1 AS found FROM {search} s WHERE %s AND s.rowid < %d AND s.rowid >= %d ORDER BY s.rowid DESC LIMIT %d`,
			s.search(), before, s.from, limit), s.conditions())
	case s.isShort():
		return fmt.Sprintf(`SELECT l.pos, CASE WHEN (SELECT %s FROM {search} s WHERE s.pos = l.pos) THEN l.ok ELSE %d END FROM (%s) l ORDER BY l.pos DESC`,
			s.d.found(s.terms), lookedAt, s.along(before, limit))
	}
	return through(fmt.Sprintf(`SELECT s.pos AS pos, %s AS found FROM {search} s WHERE s.pos < %d AND s.pos >= %d ORDER BY s.pos DESC LIMIT %d`,
		s.search(), before, s.from, limit), s.conditions())
}

// through returns a query that checks candidates, the latest first. A candidate has a position and reports whether
// the search matches. The query forces PostgreSQL to check the messages one by one.
func through(candidates string, conditions []string) string {
	return fmt.Sprintf(`SELECT f.pos AS pos, CASE WHEN f.found THEN COALESCE((SELECT %s FROM {message} m WHERE m.pos = f.pos), %d) ELSE %[2]d END AS ok
		FROM (%s) f ORDER BY f.pos DESC`, judge(conditions), lookedAt, candidates)
}

// isShort reports whether along reads a list that is usually short, because the selection has IDs, a replay, or only
// states other than failed.
func (s *selection) isShort() bool {
	return s.ids != "" || s.by != 0 || s.sentBy != 0 || s.back != 0 || s.states != nil && !slices.Contains(s.states, codes[failed.Failed])
}

// along returns a query over the index that leaves the fewest messages to check.
func (s *selection) along(before int64, limit int) string {
	if s.ids != "" {
		rest := *s
		rest.ids = ""
		return s.list([]string{s.ids}, nil, before, limit, rest.conditions())
	}
	if s.by != 0 {
		rest := *s
		rest.by = 0
		return rest.items(s.by, 2, nil, before, limit)
	}
	if s.sentBy != 0 {
		rest := *s
		rest.sentBy = 0
		outcomes := s.outcomes()
		if outcomes == nil {
			return s.list([]string{`1 = 0`}, nil, before, limit, s.others)
		}
		return rest.items(s.sentBy, 1, outcomes, before, limit)
	}
	if s.back != 0 {
		return s.list([]string{"m.back > 0"}, []equal{{"m.back", fmt.Sprint(s.back)}}, before, limit, s.conditions())
	}
	states := s.states
	if states == nil {
		if s.group == 0 && s.queue == 0 && !s.attempts { // the index with the state also contains the attempts
			return s.list(nil, nil, before, limit, s.others)
		}
		states = everyState
	}
	// Each index begins with the state. The query therefore reads one list per state, and merges the lists.
	var lists []string
	for _, state := range states {
		columns, others := []equal{{"m.state", fmt.Sprint(state)}}, s.others
		switch {
		case s.group != 0:
			columns = append(columns, equal{"m.grp", fmt.Sprint(s.group)})
			if s.queue != 0 { // the filter may name a different queue than the queue of the group
				others = append([]string{fmt.Sprintf(`m.queue = %d`, s.queue)}, others...)
			}
		case s.queue != 0:
			columns = append(columns, equal{"m.queue", fmt.Sprint(s.queue)})
		}
		lists = append(lists, fmt.Sprintf(`SELECT * FROM (%s) s%d`, s.list(nil, columns, before, limit, others), state))
	}
	if len(lists) == 0 {
		return s.list([]string{`1 = 0`}, nil, before, limit, s.others)
	}
	return merged(lists, limit)
}

// list returns a query for one list, sorted by position. columns contains the columns that precede the position in an
// index, with their values.
func (s *selection) list(conditions []string, columns []equal, before int64, limit int, others []string) string {
	where, order := s.d.along(columns, s.from, before)
	candidates := func(column string) string {
		return fmt.Sprintf(`SELECT m.pos AS pos, %s FROM {message} m WHERE %s ORDER BY %s DESC LIMIT %d`,
			column, strings.Join(append(conditions, where), ` AND `), strings.Join(order, ` DESC, `), limit)
	}
	if columns != nil && len(others) > 0 && !s.attempts {
		// Select the positions first, which the index contains. If this query selected other columns, SQLite would
		// choose another index.
		return through(candidates(`1 = 1 AS found`), others)
	}
	return candidates(judge(others) + ` AS ok`)
}

// outcomes returns the values of {item}.outcome that represent the outcome, for messages that sentBy has sent.
func (s *selection) outcomes() []int {
	switch {
	case s.outcome == "":
		return []int{codeUnknown, codePending, codeRetrying, codeSucceeded, codeFailedAgain, codeSettled}
	case s.outcome == failed.OutcomeUnknown && s.overdue:
		return []int{codeUnknown, codePending, codeRetrying}
	case s.overdue && (s.outcome == failed.OutcomePending || s.outcome == failed.OutcomeRetrying):
		return nil
	}
	return []int{slices.Index(codedOutcomes, s.outcome)}
}

// items returns a query for the messages of a replay whose {item}.sent has the given value. If outcomes is not nil, the
// query merges one list per outcome, because an index sorts the messages of each outcome.
func (s *selection) items(replay int64, sent int, outcomes []int, before int64, limit int) string {
	candidates := func(condition string) string {
		return fmt.Sprintf(`SELECT i.pos AS pos, 1 = 1 AS found FROM {item} i WHERE i.replay = %d AND i.sent = %d%s AND i.pos >= %d AND i.pos < %d ORDER BY i.pos DESC LIMIT %d`,
			replay, sent, condition, s.from, before, limit)
	}
	if outcomes == nil {
		return through(candidates(""), s.conditions())
	}
	var lists []string
	for _, code := range outcomes {
		lists = append(lists, fmt.Sprintf(`SELECT * FROM (%s) o%d`, candidates(fmt.Sprintf(` AND i.outcome = %d`, code)), code))
	}
	return through(merged(lists, limit), s.conditions())
}

// merged returns a query that merges lists.
func merged(lists []string, limit int) string {
	return strings.Join(lists, ` UNION ALL `) + fmt.Sprintf(` ORDER BY 1 DESC LIMIT %d`, limit)
}

// matches returns the query for matches of a PostgreSQL search, at any position and in any order. A bound on the
// position would remove the limit on the number of rows that PostgreSQL fetches.
func (s *selection) matches(limit int) string {
	return fmt.Sprintf(`SELECT s.pos FROM {search} s WHERE %s LIMIT %d`, s.d.foundByIndex(s.allTerms()), limit)
}

// among returns the query that checks the messages at the positions in argument number arg, which the search has found.
func (s *selection) among(arg int) string {
	return fmt.Sprintf(`SELECT m.pos, %s FROM {message} m WHERE %s ORDER BY m.pos DESC`,
		judge(s.conditions()), s.d.in("m.pos", fmt.Sprintf("$%d", arg)))
}
