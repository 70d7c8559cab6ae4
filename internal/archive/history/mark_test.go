package history

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/params"
)

func TestMarks(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		h := db.history(t)
		one := must(h.AddMark(t.Context(), Mark{Text: " v2.4 ", By: "ann"}))(t)
		two := must(h.AddMark(t.Context(), Mark{Text: "config <b>", Queue: "mails", At: noon.Add(-time.Hour), By: "bob"}))(t)
		if one != (Mark{1, noon, "v2.4", "", "ann"}) || two.ID != 2 {
			t.Fatalf("AddMark: got %+v and %+v, want v2.4 with ID 1, and ID 2", one, two)
		}
		all := must(h.Marks(t.Context(), time.Time{}))(t)
		if len(all) != 2 || all[0] != one || all[1] != two {
			t.Fatalf("Marks: got %+v, want %+v and %+v", all, one, two)
		}
		if some := must(h.Marks(t.Context(), noon.Add(-time.Minute)))(t); len(some) != 1 {
			t.Errorf("Marks of the last minute: got %+v, want 1 mark", some)
		}
		for queue, want := range map[string]int{"mails": 2, "orders": 1} {
			if within := Day.empty(queue, noon).Marks(all); len(within) != want || within[len(within)-1] != one {
				t.Errorf("queue %s: got marks %+v, want %d, the last %+v", queue, within, want, one)
			}
		}
		if removed := must(h.RemoveMark(t.Context(), 2))(t); removed != two {
			t.Errorf("RemoveMark: got %+v, want %+v", removed, two)
		}
		if _, err := h.RemoveMark(t.Context(), 2); !errors.Is(err, ErrNoMark) {
			t.Errorf("second RemoveMark: got error %v, want ErrNoMark", err)
		}
		if three := must(h.AddMark(t.Context(), Mark{Text: "v2.5", By: "ann"}))(t); three.ID != 3 { // the audit log refers to 2
			t.Errorf("AddMark: got %+v, want ID 3", three)
		}
		for _, m := range []Mark{
			{Text: " ", By: "ann"},
			{Text: strings.Repeat("x", 201), By: "ann"},
			{Text: "two\nlines", By: "ann"},
			{Text: "\xff", By: "ann"},
			{Text: "x"},
			{Text: "x", By: "ann", At: noon.Add(time.Hour)},
			{Text: "x", By: "ann", At: time.Unix(1, 0)},
			{Text: "x", By: "ann", Queue: params.Text(strings.Repeat("x", 256))},
		} {
			if _, err := h.AddMark(t.Context(), m); !errors.Is(err, ErrInvalid) {
				t.Errorf("mark %+v: got error %v, want ErrInvalid", m, err)
			}
		}
	})
}

func TestMarksAreLimited(t *testing.T) {
	db := openSQLite(t)
	h := db.history(t)
	for i := range MaxMarks + 10 {
		must(h.AddMark(t.Context(), Mark{Text: fmt.Sprint(i), By: "ann"}))(t)
	}
	if all := must(h.Marks(t.Context(), time.Time{}))(t); len(all) != MaxMarks || all[0].Text != fmt.Sprint(MaxMarks+9) {
		t.Errorf("marks: got %d, the newest %+v, want %d, the newest with text %d", len(all), all[0], MaxMarks, MaxMarks+9)
	}
}
