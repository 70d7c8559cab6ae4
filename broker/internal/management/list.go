package management

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// list marks an answer that can be sorted and paged.
type list interface{ elements() []any }

type listOf[T any] []T

func (l listOf[T]) elements() []any {
	all := make([]any, len(l))
	for i := range l {
		all[i] = l[i]
	}
	return all
}

// paged marks a list that is paged if the query asks for a page. RabbitMQ does not page the other ones.
type paged interface{ paged() }

// pagesOf is listOf for lists that are paged.
type pagesOf[T any] []T

func (l pagesOf[T]) elements() []any { return listOf[T](l).elements() }
func (l pagesOf[T]) paged()          {}

// whole returns the list of an endpoint for another one, which is not paged.
func whole(answer func(*call) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		value, err := answer(c)
		if l, ok := value.(list); ok {
			value = listOf[any](l.elements())
		}
		return value, err
	}
}

// page is a part of a list, and where it lies.
type page struct {
	FilteredCount int   `json:"filtered_count"`
	ItemCount     int   `json:"item_count"`
	Items         []any `json:"items"`
	Page          int   `json:"page"`
	PageCount     int   `json:"page_count"`
	PageSize      int   `json:"page_size"`
	TotalCount    int   `json:"total_count"`
}

const (
	defaultPageSize = 100
	maxPageSize     = 500
)

var badPage = badRequest("Pagination parameters are invalid")

// shape does with an answer what the query asks for: page, page_size, name, use_regex, sort, sort_reverse, columns.
func (c *call) shape(value any) (any, error) {
	query := c.URL.Query()
	l, isList := value.(list)
	if !isList {
		if columns := query.Get("columns"); columns != "" && c.Method == http.MethodGet {
			return newFields(value).only(strings.Split(columns, ",")), nil
		}
		return value, nil
	}
	items := l.elements()
	if by := query.Get("sort"); by != "" {
		items = sorted(items, by, query.Get("sort_reverse") == "true")
	}
	var result *page
	if _, paged := value.(paged); paged && query.Has("page") {
		var err error
		if result, err = paginate(items, query); err != nil {
			return nil, err
		}
		items = result.Items
	}
	if columns := query.Get("columns"); columns != "" {
		for i, item := range items {
			items[i] = newFields(item).only(strings.Split(columns, ","))
		}
	}
	if result != nil {
		return result, nil
	}
	return items, nil
}

func paginate(items []any, query url.Values) (*page, error) {
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
	p := &page{TotalCount: len(items), Page: number, PageSize: size}
	if items, err = named(items, query.Get("name"), query.Get("use_regex") == "true"); err != nil {
		return nil, err
	}
	p.FilteredCount = len(items)
	p.PageCount = (len(items) + size - 1) / size
	if number > max(1, p.PageCount) {
		return nil, &failure{
			http.StatusBadRequest, "page_out_of_range",
			fmt.Sprintf("Page out of range, page: %d page size: %d, len: %d", number, size, len(items)),
		}
	}
	p.Items = items[(number-1)*size : min(number*size, len(items))]
	p.ItemCount = len(p.Items)
	return p, nil
}

// named keeps what has a text in its name, or a name that matches.
func named(items []any, text string, isRegex bool) ([]any, error) {
	if text == "" {
		return items, nil
	}
	match := func(name string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(text)) }
	if isRegex {
		re, err := regexp.Compile("(?i)" + text)
		if err != nil {
			return nil, badRequest("name is not a regular expression: " + err.Error())
		}
		match = re.MatchString
	}
	found := []any{}
	for _, item := range items {
		if name, ok := newFields(item)["name"].(string); ok && match(name) {
			found = append(found, item)
		}
	}
	return slices.Clip(found), nil
}

// fields is an object as a client sees it, where its fields are asked for by name.
type fields map[string]any

func newFields(value any) fields {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	var f fields
	d := json.NewDecoder(bytes.NewReader(encoded))
	d.UseNumber()
	_ = d.Decode(&f) // what is no object has no fields
	return f
}

// at follows a name like message_stats.publish_details.rate.
func (f fields) at(path string) (any, bool) {
	name, rest, deeper := strings.Cut(path, ".")
	value, found := f[name]
	if !deeper {
		return value, found
	}
	inner, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	return fields(inner).at(rest)
}

func (f fields) only(paths []string) fields {
	kept := make(fields)
	for _, path := range paths {
		value, found := f.at(path)
		if !found {
			continue
		}
		in := kept
		for {
			name, rest, deeper := strings.Cut(path, ".")
			if !deeper {
				in[name] = value
				break
			}
			inner, ok := in[name].(fields)
			if !ok {
				inner = make(fields)
				in[name] = inner
			}
			in, path = inner, rest
		}
	}
	return kept
}

func sorted(items []any, by string, reverse bool) []any {
	type keyed struct{ item, key any }
	keys := make([]keyed, len(items))
	for i, item := range items {
		keys[i].item = item
		keys[i].key, _ = newFields(item).at(by)
	}
	slices.SortStableFunc(keys, func(a, b keyed) int {
		if reverse {
			a, b = b, a
		}
		return compare(a.key, b.key)
	})
	for i := range keys {
		items[i] = keys[i].item
	}
	return items
}

// compare orders values of one type by value, and of several by type, nothing being the least.
func compare(a, b any) int {
	switch x := a.(type) {
	case json.Number:
		if y, ok := b.(json.Number); ok {
			m, _ := x.Float64()
			n, _ := y.Float64()
			return cmp.Compare(m, n)
		}
	case string:
		if y, ok := b.(string); ok {
			return cmp.Compare(x, y)
		}
	case bool:
		if y, ok := b.(bool); ok && x != y {
			if y {
				return -1
			}
			return 1
		}
	}
	return cmp.Compare(kind(a), kind(b))
}

func kind(v any) reflect.Kind {
	if v == nil {
		return reflect.Invalid
	}
	return reflect.TypeOf(v).Kind()
}
