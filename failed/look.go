package failed

import (
	"fmt"
	"strings"
)

// What is looked at is said by a number.
const (
	lookedAt       = iota
	lookedFound    // the search finds it
	lookedSelected // that, and all else holds
)

// judge is the number for a message, by conditions on {message} AS m. For one that the
// search finds anyway, found is "".
func judge(found string, others []string) string {
	selected := strings.Join(append([]string{"1 = 1"}, others...), " AND ")
	if found == "" {
		return fmt.Sprintf(`CASE WHEN %s THEN %d ELSE %d END`, selected, lookedSelected, lookedFound)
	}
	return fmt.Sprintf(`CASE WHEN NOT (%s) THEN %d WHEN %s THEN %d ELSE %d END`, found, lookedAt, selected, lookedSelected, lookedFound)
}

// look is the query of a part of a page: the next messages to look at, from before
// downwards, pos of each and its number.
func (s *selection) look(before int64, limit int) string {
	before = min(before, s.until)
	if len(s.terms) == 0 {
		return s.along("", before, limit)
	}
	if s.d == SQLite {
		return s.through(before, limit)
	}
	return s.along(`COALESCE((SELECT `+s.d.found(s.terms)+` FROM {search} s WHERE s.pos = m.pos), FALSE)`, before, limit)
}

// through goes through what the search finds. FTS5 finds the latest first, and no more
// than is asked for.
func (s *selection) through(before int64, limit int) string {
	pos := s.d.pos()
	return fmt.Sprintf(`SELECT m.pos, %s FROM
		(SELECT %s AS pos FROM {search} s WHERE %s AND %[2]s < %[4]d AND %[2]s >= %[5]d ORDER BY %[2]s DESC LIMIT %[6]d) f
		JOIN {message} m ON m.pos = f.pos ORDER BY m.pos DESC`,
		judge("", s.conditions()), pos, s.search(), before, s.from, limit)
}

// along goes along the index that bounds most.
func (s *selection) along(found string, before int64, limit int) string {
	if s.ids != "" {
		return s.list(found, nil, nil, before, limit, append([]string{s.ids}, s.bounds()...), s.others)
	}
	switch {
	case s.back != 0:
		return s.list(found, []string{"m.back"}, []int64{s.back}, before, limit, []string{"m.back > 0"}, s.conditions())
	case s.group != 0:
		var others []string
		if s.queue != 0 { // a group is of one queue, but it may be another
			others = append(others, fmt.Sprintf(`m.queue = %d`, s.queue))
		}
		return s.byState(found, []string{"m.grp"}, []int64{s.group}, before, limit, append(others, s.others...))
	case s.queue != 0:
		return s.byState(found, []string{"m.queue"}, []int64{s.queue}, before, limit, s.others)
	case s.states != nil || s.attempts: // the indexes with states have the attempts, too
		return s.byState(found, nil, nil, before, limit, s.others)
	}
	return s.list(found, nil, nil, before, limit, nil, s.others)
}

// bounds are conditions that no index needs to be named for.
func (s *selection) bounds() (list []string) {
	without := *s
	without.ids, without.others = "", nil
	return without.conditions()
}

// byState merges the lists of the states. Each index has the state before the position,
// so that each state is a list of its own.
func (s *selection) byState(found string, columns []string, values []int64, before int64, limit int, others []string) string {
	states := s.states
	if states == nil {
		states = []int{0, 1, 2, 3}
	}
	var lists []string
	for _, state := range states {
		one := s.list(found, append(columns[:len(columns):len(columns)], "m.state"), append(values[:len(values):len(values)], int64(state)), before, limit, nil, others)
		lists = append(lists, `SELECT * FROM (`+one+`) s`+fmt.Sprint(state))
	}
	if len(lists) == 0 {
		return s.list(found, nil, nil, before, limit, []string{`1 = 0`}, others)
	}
	return strings.Join(lists, ` UNION ALL `) + fmt.Sprintf(` ORDER BY 1 DESC LIMIT %d`, limit)
}

// list is one list along the index of the columns and the position.
func (s *selection) list(found string, columns []string, values []int64, before int64, limit int, conditions, others []string) string {
	where, order := s.d.along(columns, values, s.from, before)
	return fmt.Sprintf(`SELECT m.pos AS pos, %s AS ok FROM {message} m WHERE %s ORDER BY %s LIMIT %d`,
		judge(found, others), strings.Join(append(conditions, where), " AND "), order, limit)
}

// among looks at messages whose positions are an argument, numbered arg: those that the
// search has found.
func (s *selection) among(arg int) string {
	return fmt.Sprintf(`SELECT m.pos, %s FROM {message} m WHERE %s ORDER BY m.pos DESC`,
		judge("", s.conditions()), s.d.in("m.pos", fmt.Sprintf("$%d", arg)))
}

// matches is the query of what the search finds, in whatever order.
func (s *selection) matches(before int64, limit int) string {
	pos := s.d.pos()
	return fmt.Sprintf(`SELECT %s FROM {search} s WHERE %s AND %[1]s < %[3]d AND %[1]s >= %[4]d LIMIT %[5]d`,
		pos, s.search(), min(before, s.until), s.from, limit)
}
