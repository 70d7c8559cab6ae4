package jsonapi

import (
	"encoding/csv"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// csvColumns are the columns of a list in CSV. They have the names of the JSON fields. The bodies and headers of
// messages are not included.
var csvColumns = []struct {
	name string
	of   func(api.Summary) string
}{
	{"id", func(s api.Summary) string { return number(s.ID) }},
	{"state", func(s api.Summary) string { return s.State }},
	{"queue", func(s api.Summary) string { return csvText(s.Queue) }},
	{"error", func(s api.Summary) string { return csvText(api.Text(s.Error)) }},
	{"attempts", func(s api.Summary) string { return strconv.Itoa(s.Attempts) }},
	{"reason", func(s api.Summary) string { return csvText(api.Text(s.Reason)) }},
	{"first_failed", func(s api.Summary) string { return csvTime(s.FirstFailed) }},
	{"last_failed", func(s api.Summary) string { return csvTime(s.LastFailed) }},
	{"archived", func(s api.Summary) string { return csvTime(s.Archived) }},
	{"group", func(s api.Summary) string { return number(s.Group) }},
	{"failed_queue", func(s api.Summary) string { return csvText(s.FailedQueue) }},
	{"exchange", func(s api.Summary) string { return csvText(s.Exchange) }},
	{"routing_key", func(s api.Summary) string { return csvText(s.RoutingKey) }},
	{"message_id", func(s api.Summary) string { return csvText(s.MessageID) }},
	{"size", func(s api.Summary) string { return strconv.Itoa(s.Size) }},
	{"is_edited", func(s api.Summary) string { return strconv.FormatBool(s.IsEdited) }},
	{"replayed_by", func(s api.Summary) string { return number(s.ReplayedBy) }},
	{"outcome", func(s api.Summary) string { return s.Outcome }},
	{"back", func(s api.Summary) string { return number(s.Back) }},
	{"back_of", func(s api.Summary) string { return number(s.BackOf) }},
	{"discarded", func(s api.Summary) string { return csvText(api.Text(s.Discarded)) }},
	{"refused", func(s api.Summary) string { return csvText(api.Text(s.Refused)) }},
}

// writeCSV writes the selected messages as CSV, in descending order of the latest failure.
func writeCSV(c *web.Call, f failed.Filter, w io.Writer) error {
	out := csv.NewWriter(w)
	row := make([]string, len(csvColumns))
	for i, column := range csvColumns {
		row[i] = column.name
	}
	if err := out.Write(row); err != nil {
		return err
	}
	page := store.Page{Size: store.MaxPageSize}
	for {
		messages, next, err := c.Archive.List(c.R.Context(), f, page)
		if err != nil {
			return err
		}
		for _, m := range messages {
			s := api.SummaryOf(m)
			for i, column := range csvColumns {
				row[i] = column.of(s)
			}
			if err := out.Write(row); err != nil {
				return err
			}
		}
		if out.Flush(); out.Error() != nil || next == "" {
			return out.Error()
		}
		page.After = next
	}
}

// number formats n in decimal, and 0 as "".
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func csvTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// formulas matches the beginning of spreadsheet formulas: = + - @, or their full-width forms, at the beginning of a
// cell. A spreadsheet program that expects a separator other than the comma ignores the quotes, so a cell can also
// begin after such a separator.
var formulas = regexp.MustCompile(`(^|[;|\t\r\n])([\s\p{Z}\p{Cc}"]*)([=+\-@＝＋－＠])`)

// csvText returns t with an apostrophe before each possible formula, so that spreadsheets do not execute it.
func csvText(t api.Text) string {
	b, err := t.MarshalText()
	if err != nil {
		return fmt.Sprint(err) // MarshalText does not fail
	}
	text := string(b)
	if !strings.ContainsAny(text, "=+-@＝＋－＠") {
		return text
	}
	return formulas.ReplaceAllString(text, "$1$2'$3")
}
