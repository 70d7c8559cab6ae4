package failed

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/params"
)

// FilterNames are the parameter names of a Filter.
var FilterNames = ParamsOf(new(Filter)).Names()

// Selection specifies the messages of an act. It is the JSON form of a Filter with its limits. All is required to select
// all messages, and must not be combined with a filter.
type Selection struct {
	Filter Filter `json:"filter" openapi:"optional"`
	All    bool   `json:"all,omitempty"`
	AtMost int64  `json:"at_most,omitempty"` // refuse an act that selects more messages; 0: no limit

	// Through excludes messages that arrived after the dry run that returned this value, see Filter.
	Through ID `json:"through,omitempty"`
}

// Selected converts s to a [Filter].
func (s Selection) Selected() Filter {
	f := s.Filter
	f.All, f.AtMost, f.Through = s.All, s.AtMost, s.Through
	return f
}

// SelectionOf converts the filter of an act to a selection.
func SelectionOf(f Filter) Selection {
	s := Selection{Filter: f, All: f.IsZero(), AtMost: f.AtMost, Through: f.Through}
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

// limits are the parameters of a Selection except those of the filter.
func (s *Selection) limits() params.Params {
	return params.Params{{Name: "all", Of: &s.All}, {Name: "at_most", Of: &s.AtMost}, {Name: "through", Of: &s.Through}}
}

// SelectionNames are the parameter names of a Selection.
var SelectionNames = slices.Concat(FilterNames, new(Selection).limits().Names())

// Values returns the selection as URL parameters or form fields.
func (s Selection) Values() url.Values {
	v := s.Filter.Values()
	maps.Copy(v, s.limits().Values())
	return v
}

// ParseSelection parses a selection as strictly as ParseFilter parses a filter.
func ParseSelection(v url.Values, now time.Time) (Selection, error) {
	f, err := ParseFilter(v, now)
	s := Selection{Filter: f}
	r := params.Reader{Values: v, Now: now, Err: err}
	r.ReadAll(s.limits())
	if r.Err == nil {
		r.Err = s.Validate()
	}
	return s, r.Err
}
