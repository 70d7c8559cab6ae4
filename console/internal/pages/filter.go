package pages

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/console/internal/show"
	"github.com/reprisemq/reprise/failed"
)

// pair is a field of a form that is hidden in another.
type pair struct{ Name, Value string }

// pairs are the values of a form, sorted by name.
func pairs(v url.Values) []pair {
	var all []pair
	for _, name := range slices.Sorted(maps.Keys(v)) {
		for _, value := range v[name] {
			all = append(all, pair{name, value})
		}
	}
	return all
}

// DescribeFilter returns what a filter selects, in words, and of a group also its name.
func DescribeFilter(f failed.Filter, groupName ...string) string {
	words := show.Visible(f.String())
	for _, name := range groupName {
		group := fmt.Sprintf("group %d", f.Group)
		words = strings.Replace(words, group, group+" (“"+name+"”)", 1)
	}
	return words
}
