package remote

import (
	"fmt"
	"io"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

// Listing prints a list that the console returns in pages: as a table, or as one JSON object per line.
type Listing[T any] struct {
	Limit int // 0: no limit
	Fetch func(api.Page) (items []T, next string, err error)

	JSON bool
	Each func(T) error // prints an item instead of the table

	Table *terminal.Table
	Cells func(T) []string
	Drop  func(i int, c terminal.Column) bool // omits columns to save space
	None  string                              // text for an empty list
	More  bool                                // mention items that exceed the limit
}

// pageSize is the maximum size of a page.
const pageSize = 500

// Print requests the pages and prints the items.
func (l Listing[T]) Print(streams terminal.IO) error {
	if l.Limit < 0 {
		return exit.Usagef("--limit must be at least 1, or 0 for all: got %d", l.Limit)
	}
	if l.JSON {
		l.Each = func(item T) error { return terminal.WriteJSON(streams.Stdout, item) }
	}
	after := ""
	for shown := 0; ; {
		size := pageSize
		if l.Limit > 0 {
			size = min(size, l.Limit-shown)
		}
		items, next, err := l.Fetch(api.Page{After: after, Size: size})
		if err != nil {
			return err
		}
		for _, item := range items {
			if l.Each == nil {
				l.Table.Add(l.Cells(item)...)
			} else if err := l.Each(item); err != nil {
				return err
			}
		}
		shown, after = shown+len(items), next
		if next == "" || l.Limit > 0 && shown >= l.Limit {
			break
		}
	}
	switch {
	case l.Each != nil:
		return nil
	case len(l.Table.Rows) == 0:
		fmt.Fprintln(streams.Stderr, l.None)
		return nil
	case l.Drop != nil:
		l.Table = l.Table.Without(l.Drop)
	}
	if _, err := io.WriteString(streams.Stdout, l.Table.Text(streams.Width())); err != nil {
		return err
	}
	if after != "" && l.More {
		fmt.Fprintf(streams.Stderr, "more messages match (--limit %d shows twice as many, --limit 0 all)\n", 2*l.Limit)
	}
	return nil
}

// CauseLine returns the first line of a recorded error, which is the cause. The output of the handler follows.
func CauseLine(text string) string {
	cause, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return cause
}
