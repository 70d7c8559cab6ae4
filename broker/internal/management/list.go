package management

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/pcre"
)

// fields is a JSON object with RabbitMQ's field names.
type fields map[string]any

// with adds the fields in more to f, and returns f.
func (f fields) with(more fields) fields {
	maps.Copy(f, more)
	return f
}

// element is a function that builds an element of a list. Elements are built one by one while the list is written, so
// that a list of a hundred thousand queues does not have to fit in memory.
type element func() fields

// list is a response that query parameters can sort and reduce to some columns.
type list iter.Seq[element]

// pages is a list that the client can also request page by page. As in RabbitMQ, other lists are not paged.
type pages iter.Seq[element]

// stream is a list to which the query parameters have been applied.
type stream iter.Seq[fields]

// listOf returns a list of elements that are already built.
func listOf(all []fields) list {
	return func(yield func(element) bool) {
		for _, f := range all {
			if !yield(func() fields { return f }) {
				return
			}
		}
	}
}

// without returns the list without the given field in each element.
func (l list) without(name string) list {
	return func(yield func(element) bool) {
		for build := range l {
			lacking := func() fields {
				f := build()
				delete(f, name)
				return f
			}
			if !yield(lacking) {
				return
			}
		}
	}
}

// whole returns an endpoint whose list is not paged.
func whole(answer endpoint) endpoint {
	return func(c *call) (any, error) {
		value, err := answer(c)
		if all, ok := value.(pages); ok {
			value = list(all)
		}
		return value, err
	}
}

const (
	defaultPageSize = 100
	maxPageSize     = 500
)

var badPage = badRequest("Pagination parameters are invalid")

// shape applies the query parameters to a response: page, page_size, name, use_regex, sort, sort_reverse, columns.
func (c *call) shape(value any) (any, error) {
	query := c.URL.Query()
	columns := query.Get("columns")
	switch value := value.(type) {
	case fields:
		if c.Method == http.MethodGet {
			return value.only(columns), nil
		}
		return value, nil
	case []fields:
		return c.shape(listOf(value))
	case list:
		s := selection{order: newOrder(query)}
		return s.of(iter.Seq[element](value)).stream(columns), nil
	case pages:
		if !query.Has("page") {
			return c.shape(list(value))
		}
		return paginate(iter.Seq[element](value), query, filterSteps)
	}
	return value, nil
}

// stream returns the elements of a list, reduced to the given columns.
func (l list) stream(columns string) stream {
	return func(yield func(fields) bool) {
		for build := range l {
			if !yield(build().only(columns)) {
				return
			}
		}
	}
}

// paginate returns the requested page. A regular expression may use the given number of steps.
func paginate(all iter.Seq[element], query url.Values, steps int) (fields, error) {
	number, err := strconv.Atoi(query.Get("page"))
	if err != nil || number < 1 {
		return nil, badPage
	}
	size := defaultPageSize
	if text := query.Get("page_size"); text != "" {
		if size, err = strconv.Atoi(text); err != nil {
			return nil, badPage
		}
	}
	if size < 1 || size > maxPageSize {
		return nil, &failure{http.StatusBadRequest, "invalid_pagination_parameters", fmt.Sprintf(
			"Invalid pagination parameters: page number %d, page size %d", number, size)}
	}
	s := selection{order: newOrder(query), first: min(number-1, math.MaxInt/size) * size, size: size}
	s.named = named(query.Get("name"), query.Get("use_regex") == "true", &steps)
	items := s.of(all)
	if steps == 0 {
		return nil, badRequest("regular expression needs too many steps for this list")
	}
	count := (s.found + size - 1) / size
	if number > max(1, count) {
		return nil, &failure{
			http.StatusBadRequest, "page_out_of_range",
			fmt.Sprintf("Page out of range, page: %d page size: %d, len: %d", number, size, s.found),
		}
	}
	return fields{
		"page": number, "page_size": size, "page_count": count, "total_count": s.total, "filtered_count": s.found,
		"item_count": s.selected, "items": items.stream(query.Get("columns")),
	}, nil
}

// filterSteps limits the work to filter a list to some 10 s.
const filterSteps = 200 * pcre.MaxSteps

// named returns a function that reports whether the name of an element contains the given string or, if isRegex is set,
// matches it as a regular expression, ignoring case. An invalid expression matches no name. If the string is empty, named
// returns nil. The matches use up the steps of a regular expression.
func named(text string, isRegex bool, steps *int) func(fields) bool {
	if text == "" {
		return nil
	}
	match := func(name string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(text)) }
	if isRegex {
		re, err := pcre.Compile(text, true)
		match = func(name string) bool { return err == nil && re.MatchWithin(steps, name) }
	}
	return func(item fields) bool {
		name, ok := item["name"].(string)
		return ok && match(name)
	}
}

// order is the sort order of a list. The zero value keeps the original order.
type order struct {
	by      string
	reverse bool
}

func newOrder(query url.Values) order {
	return order{by: query.Get("sort"), reverse: query.Get("sort_reverse") == "true"}
}

// selection selects and sorts elements of a list. In memory, it keeps only the elements of the page or, to sort, a sort
// key for each element.
type selection struct {
	order
	named func(fields) bool // filter; nil selects all elements
	first int               // first element of the page
	size  int               // size of the page; 0 selects all

	total, found, selected int // number of all elements, of matching elements, and of elements on the page
}

type keyedElement struct {
	key   sortKey
	build element
}

// of returns the selected elements.
func (s *selection) of(all iter.Seq[element]) list {
	if s.by == "" && s.size == 0 {
		return list(all)
	}
	var kept []keyedElement
	for build := range all {
		s.total++
		var item fields
		if s.named != nil || s.by != "" {
			item = build()
		}
		if s.named != nil && !s.named(item) {
			continue
		}
		s.found++
		switch {
		case s.by != "":
			kept = append(kept, keyedElement{newSortKey(item, s.by), build})
		case s.found > s.first && len(kept) < s.size:
			kept = append(kept, keyedElement{build: build})
		}
	}
	if s.by != "" {
		slices.SortStableFunc(kept, func(a, b keyedElement) int {
			if s.reverse {
				a, b = b, a
			}
			return a.key.compare(b.key)
		})
		if s.size > 0 {
			first := min(s.first, len(kept))
			kept = slices.Clone(kept[first:min(first+s.size, len(kept))])
		}
	}
	s.selected = len(kept)
	return func(yield func(element) bool) {
		for _, k := range kept {
			if !yield(k.build) {
				return
			}
		}
	}
}

// at returns the value at a path such as message_stats.publish_details.rate.
func (f fields) at(path string) (any, bool) {
	name, rest, deeper := strings.Cut(path, ".")
	value, found := f[name]
	if !found || !deeper {
		return value, found
	}
	return newFields(value).at(rest)
}

// newFields returns the fields of a value, or nil if the value is not an object.
func newFields(value any) (f fields) {
	if f, ok := value.(fields); ok {
		return f
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(encoded))
	d.UseNumber()
	_ = d.Decode(&f)
	return f
}

// only returns the fields at the paths in a comma-separated list, or all fields if the list is empty.
func (f fields) only(columns string) fields {
	if columns == "" {
		return f
	}
	kept := make(fields)
	for path := range strings.SplitSeq(columns, ",") {
		if value, found := f.at(path); found {
			kept.set(path, value)
		}
	}
	return kept
}

// set sets the value at a path, and creates missing objects along the path.
func (f fields) set(path string, value any) {
	name, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		f[name] = value
		return
	}
	inner, ok := f[name].(fields)
	if !ok {
		inner = make(fields)
		f[name] = inner
	}
	inner.set(rest, value)
}

// sortKey is the value by which an element is sorted. Values of the same type are sorted by value, and values of
// different types by type. Missing values sort first.
type sortKey struct {
	kind   reflect.Kind
	number float64
	text   string
}

func newSortKey(item fields, by string) sortKey {
	value, _ := item.at(by)
	if n, ok := number(value); ok {
		return sortKey{kind: reflect.Float64, number: n}
	}
	key := sortKey{kind: reflect.ValueOf(value).Kind()}
	switch v := value.(type) {
	case string:
		key.text = v
	case bool:
		if v {
			key.number = 1
		}
	}
	return key
}

func (k sortKey) compare(other sortKey) int {
	return cmp.Or(cmp.Compare(k.kind, other.kind), cmp.Compare(k.number, other.number), cmp.Compare(k.text, other.text))
}

// number returns the value of a JSON number, and false if v is not a number.
func number(v any) (float64, bool) {
	if n, ok := v.(json.Number); ok {
		value, err := n.Float64()
		return value, err == nil
	}
	switch r := reflect.ValueOf(v); {
	case r.CanInt():
		return float64(r.Int()), true
	case r.CanUint():
		return float64(r.Uint()), true
	case r.CanFloat():
		return r.Float(), true
	}
	return 0, false
}
