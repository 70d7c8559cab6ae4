package management

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// fields is a JSON object: values by RabbitMQ's names.
type fields map[string]any

// with adds fields.
func (f fields) with(more fields) fields {
	maps.Copy(f, more)
	return f
}

// list is an answer that the query can sort and reduce to columns.
type list []fields

// pages is a list that is paged if the query asks for a page. RabbitMQ does not page the other lists.
type pages []fields

// whole returns the list of an endpoint for an endpoint that is not paged.
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

// shape applies the query to an answer: page, page_size, name, use_regex, sort, sort_reverse, columns.
func (c *call) shape(value any) (any, error) {
	query := c.URL.Query()
	columns := query.Get("columns")
	var items list
	var paged bool
	switch value := value.(type) {
	case fields:
		if c.Method == http.MethodGet {
			return value.only(columns), nil
		}
		return value, nil
	case list:
		items = value
	case pages:
		items, paged = list(value), query.Has("page")
	default:
		return value, nil
	}
	if items == nil {
		items = list{} // which is not null in JSON
	}
	if by := query.Get("sort"); by != "" {
		items.sort(by, query.Get("sort_reverse") == "true")
	}
	var page fields
	if paged {
		var err error
		if items, page, err = paginate(items, query); err != nil {
			return nil, err
		}
	}
	for i, item := range items {
		items[i] = item.only(columns)
	}
	if paged {
		return page.with(fields{"items": items}), nil
	}
	return items, nil
}

// paginate returns the items of the page that the query asks for, and where the page lies.
func paginate(items list, query url.Values) (list, fields, error) {
	number, err := strconv.Atoi(query.Get("page"))
	if err != nil || number < 1 {
		return nil, nil, badPage
	}
	size := defaultPageSize
	if text := query.Get("page_size"); text != "" {
		if size, err = strconv.Atoi(text); err != nil {
			return nil, nil, badPage
		}
	}
	if size < 1 || size > maxPageSize {
		return nil, nil, &failure{http.StatusBadRequest, "invalid_pagination_parameters", fmt.Sprintf(
			"Invalid pagination parameters: page number %d, page size %d", number, size)}
	}
	total := len(items)
	if items, err = items.named(query.Get("name"), query.Get("use_regex") == "true"); err != nil {
		return nil, nil, err
	}
	count := (len(items) + size - 1) / size
	if number > max(1, count) {
		return nil, nil, &failure{
			http.StatusBadRequest, "page_out_of_range",
			fmt.Sprintf("Page out of range, page: %d page size: %d, len: %d", number, size, len(items)),
		}
	}
	page := fields{
		"page": number, "page_size": size, "page_count": count, "total_count": total, "filtered_count": len(items),
	}
	items = items[(number-1)*size : min(number*size, len(items))]
	page["item_count"] = len(items)
	return items, page, nil
}

// named keeps the items with a text in the name, or with a name that matches.
func (l list) named(text string, isRegex bool) (list, error) {
	if text == "" {
		return l, nil
	}
	match := func(name string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(text)) }
	if isRegex {
		re, err := regexp.Compile("(?i)" + text)
		if err != nil {
			return nil, badRequest("name is not a regular expression: " + err.Error())
		}
		match = re.MatchString
	}
	return slices.DeleteFunc(l, func(item fields) bool {
		name, ok := item["name"].(string)
		return !ok || !match(name)
	}), nil
}

// at returns a value by a name such as message_stats.publish_details.rate.
func (f fields) at(path string) (any, bool) {
	name, rest, deeper := strings.Cut(path, ".")
	value, found := f[name]
	if !found || !deeper {
		return value, found
	}
	return newFields(value).at(rest)
}

// newFields returns the fields of a value. A value that is not an object has none.
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

// only returns the fields of a list of names with commas, or all fields if the list is empty.
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

// set is the reverse of at.
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

func (l list) sort(by string, reverse bool) {
	slices.SortStableFunc(l, func(a, b fields) int {
		if reverse {
			a, b = b, a
		}
		x, _ := a.at(by)
		y, _ := b.at(by)
		return compare(x, y)
	})
}

// compare orders values of one type by value, and values of several types by type. A missing value is the least.
func compare(a, b any) int {
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return cmp.Compare(x, y)
		}
	}
	switch x := a.(type) {
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
	return cmp.Compare(reflect.ValueOf(a).Kind(), reflect.ValueOf(b).Kind())
}

// number returns a value that is a number in JSON.
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
