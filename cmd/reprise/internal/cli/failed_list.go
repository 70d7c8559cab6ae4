package cli

import (
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

// listing prints a list that the console returns in pages: as a table, or as one JSON object per line.
type listing[T any] struct {
	limit int // 0: no limit
	fetch func(api.Page) (items []T, next string, err error)

	json bool
	each func(T) error // prints an item instead of the table

	table *textTable
	cells func(T) []string
	drop  func(i int, c column) bool // omits columns to save space
	none  string                     // text for an empty list
	more  bool                       // mention items that exceed the limit
}

// pageSize is the maximum size of a page.
const pageSize = 500

func (l listing[T]) print(streams IO) error {
	if l.limit < 0 {
		return usagef("--limit must be at least 1, or 0 for all: got %d", l.limit)
	}
	if l.json {
		l.each = func(item T) error { return terminal.WriteJSON(streams.Stdout, item) }
	}
	after := ""
	for shown := 0; ; {
		size := pageSize
		if l.limit > 0 {
			size = min(size, l.limit-shown)
		}
		items, next, err := l.fetch(api.Page{After: after, Size: size})
		if err != nil {
			return err
		}
		for _, item := range items {
			if l.each == nil {
				l.table.add(l.cells(item)...)
			} else if err := l.each(item); err != nil {
				return err
			}
		}
		shown, after = shown+len(items), next
		if next == "" || l.limit > 0 && shown >= l.limit {
			break
		}
	}
	switch {
	case l.each != nil:
		return nil
	case len(l.table.rows) == 0:
		fmt.Fprintln(streams.Stderr, l.none)
		return nil
	case l.drop != nil:
		l.table = l.table.without(l.drop)
	}
	if err := l.table.write(streams.Stdout, streams.Width()); err != nil {
		return err
	}
	if after != "" && l.more {
		fmt.Fprintf(streams.Stderr, "more messages match (--limit %d shows twice as many, --limit 0 all)\n", 2*l.limit)
	}
	return nil
}

// causeLine returns the first line of a recorded error, which is the cause. The output of the handler follows.
func causeLine(text string) string {
	cause, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return cause
}
