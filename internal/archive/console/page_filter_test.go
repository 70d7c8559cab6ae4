package console

import (
	"reflect"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/console/internal/pages"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// filters returns filters with one condition each, by the name of the Filter field.
func filters() map[string]failed.Filter {
	return map[string]failed.Filter{
		"All": {All: true}, "Queue": {Queue: "orders & more"}, "States": {States: []failed.State{failed.Replayed}}, "Group": {Group: 1},
		"Since": {Since: noon}, "Until": {Until: noon}, "Text": {Text: "a=b&c"}, "Error": {Error: "100% \"lost\""},
		"Headers": {Headers: map[string]string{"x:y": " 50%"}}, "MinAttempts": {MinAttempts: 2}, "MaxAttempts": {MaxAttempts: 9},
		"IDs": {IDs: []failed.ID{1, 2}}, "Replay": {Replay: 1}, "Refused": {Refused: true}, "RefusedBy": {RefusedBy: 1},
		"SentBy": {SentBy: 1}, "Outcome": {SentBy: 1, Outcome: failed.OutcomeFailedAgain}, "AtMost": {AtMost: 5}, "Through": {Through: 7}, "Act": {Act: 1},
	}
}

// The description of a filter contains every condition, so that users see all conditions before they confirm an action.
func TestDescribeFilterIncludesAllConditions(t *testing.T) {
	all := filters()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[failed.Filter]()) {
		f, ok := all[field.Name]
		if !ok {
			t.Errorf("Filter.%s is not tested", field.Name)
			continue
		}
		words := pages.DescribeFilter(f)
		if isAll := field.Name == "All" || field.Name == "AtMost" || field.Name == "Through"; isAll != (words == "all messages") {
			t.Errorf("description of Filter.%s: got %q", field.Name, words)
		}
	}
}
