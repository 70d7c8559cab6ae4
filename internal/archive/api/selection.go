package api

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/params"
)

// Text represents a string of arbitrary bytes.
type Text = params.Text

// FilterNames are the parameter names of a failed.Filter.
var FilterNames = filterNames()

func filterNames() (names []string) {
	for _, p := range failed.FilterParams() {
		names = append(names, p.Name)
	}
	return names
}

// Selection specifies the messages of an act. All is required to select all messages, and must not be combined with a
// filter.
type Selection struct {
	Filter failed.Filter `json:"filter"`
	All    bool          `json:"all,omitempty"`
	AtMost int64         `json:"at_most,omitempty"` // refuse an act that selects more messages; 0: no limit

	// Through excludes messages that arrived after the dry run that returned this value, see failed.Filter.
	Through int64 `json:"through,omitempty"`
}

// Selected converts s to a [failed.Filter].
func (s Selection) Selected() failed.Filter {
	f := s.Filter
	f.All, f.AtMost, f.Through = s.All, s.AtMost, failed.ID(s.Through)
	return f
}

// SelectionOf converts the filter of an act to a selection.
func SelectionOf(f failed.Filter) Selection {
	s := Selection{Filter: f, All: f.IsZero(), AtMost: f.AtMost, Through: int64(f.Through)}
	s.Filter.All, s.Filter.AtMost, s.Filter.Through = false, 0, 0
	return s
}

// Validate returns an error for an invalid selection, such as a selection of all messages without All.
func (s Selection) Validate() error {
	if err := s.Filter.Validate(); err != nil {
		return err
	}
	if s.AtMost < 0 {
		return fmt.Errorf("at_most must not be negative: got %d", s.AtMost)
	}
	if s.Through < 0 {
		return fmt.Errorf("through must not be negative: got %d", s.Through)
	}
	conditions := s.Filter
	conditions.States = nil // an act applies only to messages in one state
	switch {
	case conditions.IsZero() && !s.All:
		return errors.New("filter selects all messages (set all to true to permit this)")
	case s.All && !s.Filter.IsZero():
		return errors.New("all must not be combined with a filter")
	}
	return nil
}

// SelectionNames are the parameter names of a Selection.
var SelectionNames = append(slices.Clone(FilterNames), "all", "at_most", "through")

// Values returns the selection as URL parameters or form fields.
func (s Selection) Values() url.Values {
	v := s.Filter.Values()
	params.Write(v, "all", &s.All)
	params.Write(v, "at_most", &s.AtMost)
	params.Write(v, "through", &s.Through)
	return v
}

// ParseSelection parses a selection as strictly as failed.ParseFilter parses a filter.
func ParseSelection(v url.Values, now time.Time) (Selection, error) {
	f, err := failed.ParseFilter(v, now)
	s := Selection{Filter: f}
	r := params.Reader{Values: v, Now: now, Err: err}
	r.Read("all", &s.All)
	r.Read("at_most", &s.AtMost)
	r.Read("through", &s.Through)
	if r.Err == nil {
		r.Err = s.Validate()
	}
	return s, r.Err
}
