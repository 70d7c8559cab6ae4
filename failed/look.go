package failed

import (
	"fmt"
	"strconv"
	"strings"
)

// What has been looked at is said by a number.
const (
	lookedAt       = iota
	lookedFound    // the search finds it
	lookedSelected // that, and all else holds
)

// judge is lookedSelected if conditions on {message} AS m hold, and else lookedFound.
func judge(others []string) string {
	return fmt.Sprintf(`CASE WHEN %s THEN %d ELSE %d END`, strings.Join(append([]string{"1 = 1"}, others...), " AND "), lookedSelected, lookedFound)
}

// look is the query of a part of a page: the next messages to look at, from before
// downwards, pos of each and its number. Of those that are not selected, too, all tells
// which the search finds.
func (s *selection) look(before int64, limit int, all bool) string {
	before = min(before, s.until)
	if len(s.terms) == 0 {
		return s.along(before, limit)
	}
	if s.d.Dialect == SQLite {
		return s.through(before, limit)
	}
	found := `COALESCE((SELECT ` + s.d.found(s.terms) + ` FROM {search} s WHERE s.pos = l.pos), FALSE)`
	if !all { // it costs more than all else
		found = fmt.Sprintf(`l.ok = %d AND `, lookedSelected) + found
	}
	return fmt.Sprintf(`SELECT l.pos, CASE WHEN %s THEN l.ok ELSE %d END FROM (%s) l ORDER BY 1 DESC`, found, lookedAt, s.along(before, limit))
}

// through goes through what the search finds. FTS5 finds the latest first, and no more
// than is asked for.
func (s *selection) through(before int64, limit int) string {
	return fmt.Sprintf(`SELECT m.pos, %s FROM
		(SELECT s.rowid AS pos FROM {search} s WHERE %s AND s.rowid < %d AND s.rowid >= %d ORDER BY s.rowid DESC LIMIT %d) f
		JOIN {message} m ON m.pos = f.pos ORDER BY m.pos DESC`,
		judge(s.conditions()), s.search(), before, s.from, limit)
}

// along goes along the index that leaves the least to look at.
func (s *selection) along(before int64, limit int) string {
	if s.ids != "" {
		rest := *s
		rest.ids = ""
		return s.list([]string{s.ids}, "", 0, before, limit, rest.conditions())
	}
	if s.by != 0 {
		return s.refused(before, limit)
	}
	if s.back != 0 {
		return s.list([]string{"m.back > 0"}, "m.back", s.back, before, limit, s.conditions())
	}
	states := s.states
	if states == nil {
		if s.group == 0 && s.queue == 0 && !s.attempts { // the index with the state has the attempts, too
			return s.list(nil, "", 0, before, limit, s.others)
		}
		states = everyState
	}
	// Each index begins with the state, so that each state is a list of its own, and the
	// lists are merged.
	var lists []string
	for _, state := range states {
		var one string
		in := []string{fmt.Sprintf(`m.state = %d`, state)}
		switch {
		case s.group != 0:
			others := s.others
			if s.queue != 0 { // a group is of one queue, but it may be another
				others = append([]string{fmt.Sprintf(`m.queue = %d`, s.queue)}, others...)
			}
			one = s.list(in, "m.grp", s.group, before, limit, others)
		case s.queue != 0:
			one = s.list(in, "m.queue", s.queue, before, limit, s.others)
		default:
			one = s.list(nil, "m.state", int64(state), before, limit, s.others)
		}
		lists = append(lists, fmt.Sprintf(`SELECT * FROM (%s) s%d`, one, state))
	}
	if len(lists) == 0 {
		return s.list([]string{`1 = 0`}, "", 0, before, limit, s.others)
	}
	return strings.Join(lists, ` UNION ALL `) + fmt.Sprintf(` ORDER BY 1 DESC LIMIT %d`, limit)
}

// list is one list in order of the position: of conditions and, if column is not "", of a
// value of a column that an index has right before the position.
func (s *selection) list(conditions []string, column string, value, before int64, limit int, others []string) string {
	where, order := fmt.Sprintf(`m.pos >= %d AND m.pos < %d`, s.from, before), []string{"m.pos"}
	if column != "" {
		where, order = s.d.along(column, strconv.FormatInt(value, 10), s.from, before)
	}
	return fmt.Sprintf(`SELECT m.pos AS pos, %s AS ok FROM {message} m WHERE %s ORDER BY %s DESC LIMIT %d`,
		judge(others), strings.Join(append(conditions, where), ` AND `), strings.Join(order, ` DESC, `), limit)
}

// refused goes along what a replay could not send.
func (s *selection) refused(before int64, limit int) string {
	rest := *s
	rest.by = 0
	return fmt.Sprintf(`SELECT i.pos AS pos, %s AS ok FROM {item} i JOIN {message} m ON m.id = i.message
		WHERE i.replay = %d AND i.sent = 2 AND i.pos >= %d AND i.pos < %d ORDER BY i.pos DESC LIMIT %d`,
		judge(rest.conditions()), s.by, s.from, before, limit)
}

// matches is the query of what the search finds, wherever it is, in whatever order: to
// bound it by position would leave no bound to what is fetched.
func (s *selection) matches(limit int) string {
	return fmt.Sprintf(`SELECT %s FROM {search} s WHERE %s LIMIT %d`, s.d.pos(), s.search(), limit)
}

// among looks at messages whose positions are argument number arg: those that the search
// has found.
func (s *selection) among(arg int) string {
	return fmt.Sprintf(`SELECT m.pos, %s FROM {message} m WHERE %s ORDER BY m.pos DESC`,
		judge(s.conditions()), s.d.in("m.pos", fmt.Sprintf("$%d", arg)))
}
