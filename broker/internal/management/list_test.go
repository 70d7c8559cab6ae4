package management

import (
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// All matches of a regular expression in a list share a limit.
func TestPaginateLimitsRegularExpression(t *testing.T) {
	var queues []fields
	for range 100 {
		queues = append(queues, fields{"name": strings.Repeat("a", 20)})
	}
	for expression, found := range map[string]any{"^a*$": 100, "(a+)+b": nil} {
		query := url.Values{"page": {"1"}, "use_regex": {"true"}, "name": {expression}}
		page, err := paginate(iter.Seq[element](listOf(queues)), query, 100_000)
		if page["filtered_count"] != found {
			t.Errorf("%s: got %v queues, want %v", expression, page["filtered_count"], found)
		}
		refused, ok := errors.AsType[*failure](err)
		if (found == nil) != (ok && refused.status == http.StatusBadRequest) {
			t.Errorf("%s: got error %v, want 400 if no queue is found", expression, err)
		}
	}
}

// A filter that begins with .* stays within the limit for many queues with long names that do not match.
func TestPaginateMatchesLongNamesOfManyQueues(t *testing.T) {
	var queues []fields
	for range 2000 {
		queues = append(queues, fields{"name": strings.Repeat("orders.", 36)})
	}
	for expression, found := range map[string]int{".*foo.*": 0, ".*?foo": 0, ".*orders.*": 2000, "foo": 0, "^.*foo": 0} {
		query := url.Values{"page": {"1"}, "use_regex": {"true"}, "name": {expression}}
		if page, err := paginate(iter.Seq[element](listOf(queues)), query, filterSteps); err != nil || page["filtered_count"] != found {
			t.Errorf("%s: got %v queues and error %v, want %d", expression, page["filtered_count"], err, found)
		}
	}
}
