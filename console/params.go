package console

import (
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// Parameters beside those of filters.
var (
	pageNames  = []string{"after", "size"}
	afterName  = []string{"after"}
	pickedName = []string{"id"}
	dryRunName = []string{"dry_run"}
	flashNames = []string{"did", "n", "undo"} // see call.flash

	planNames = []string{"options", "to", "exchange", "key", "rate", "ramp", "same", "canary"}
	editNames = append([]string{"base", "revision", "body", "header_name", "header_kind", "header_value", "do"}, propertyNames()...)
)

// didWords are the values of did.
var didWords = []string{"discarded", "restored", "edited", "reverted"}

// anyParams is the query of routes that ignore it.
var anyParams = []string{"*"}

// repeatable are the parameters and fields that may have several values.
var repeatable = []string{"state", "id", "header", "undo", "header_name", "header_kind", "header_value"}

// readParams sets params to the query of the request, which must have no parameter but those
// of its route: a mistyped or damaged one would select other messages than meant.
func (c *call) readParams() error {
	if slices.Equal(c.route.query, anyParams) {
		return nil
	}
	v, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return badRequest("the query cannot be read: "+err.Error(), "write special characters of a parameter as %XX")
	}
	if err := checkNames(v, c.route.query, "parameter"); err != nil {
		return err
	}
	if c.route.blanks {
		maps.DeleteFunc(v, func(_ string, values []string) bool { return strings.Join(values, "") == "" })
	}
	for name, values := range v {
		if slices.Contains(values, "") {
			return badRequest("parameter "+strconv.Quote(name)+" is empty", "give it a value, or leave it out")
		}
	}
	for _, n := range slices.Concat(v["n"], v["undo"]) {
		if _, err := strconv.ParseUint(n, 10, 63); err != nil {
			return badRequest("n and undo must be numbers", "leave them out")
		}
	}
	if did := v.Get("did"); did != "" && !slices.Contains(didWords, did) {
		return badRequest("did "+strconv.Quote(clip(did, 80))+" cannot be", "leave it out")
	}
	c.params = v
	return nil
}

// checkNames reports names that are not known, or repeated.
func checkNames(v url.Values, known []string, what string) error {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if !slices.Contains(known, name) {
			advice := "leave it out: none are allowed here"
			if len(known) > 0 {
				advice = "use " + strings.Join(known, ", ")
			}
			return badRequest("unknown "+what+" "+strconv.Quote(clip(name, 80)), advice)
		}
		if len(v[name]) > 1 && !slices.Contains(repeatable, name) {
			return badRequest(what+" "+strconv.Quote(name)+" is given "+strconv.Itoa(len(v[name]))+" times", "give it once")
		}
	}
	return nil
}

// form returns the fields of a form, which must be those of the route.
func (c *call) form() (url.Values, error) {
	if err := c.r.ParseForm(); err != nil {
		return nil, badRequest("the form cannot be read: "+err.Error(), "send it as the page does")
	}
	return c.r.PostForm, checkNames(c.r.PostForm, c.route.form, "field")
}

// only returns the values of some names.
func only(v url.Values, names []string) url.Values {
	some := url.Values{}
	for _, name := range names {
		if v.Has(name) {
			some[name] = slices.Clone(v[name])
		}
	}
	return some
}

// filter reads the filter of the query, and checks that what it names exists. Without the
// parameter state it is for the states given; without those, for any.
func (c *call) filter(defaultState ...failed.State) (failed.Filter, error) {
	v := only(c.params, api.FilterNames)
	for _, s := range defaultState {
		if !v.Has("state") {
			v.Add("state", string(s))
		}
	}
	f, err := api.ParseFilter(v, c.cfg.Clock())
	if err != nil {
		return failed.Filter{}, badRequest(err.Error(), "correct the parameter")
	}
	return f.Filter(), c.cfg.Archive.Check(c.r.Context(), f.Filter())
}

// page reads which page of a list is asked for.
func (c *call) page() (failed.Page, error) {
	p := failed.Page{After: failed.Cursor(c.params.Get("after"))}
	if text := c.params.Get("size"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > failed.MaxPageSize {
			return p, badRequest("size "+strconv.Quote(text)+" cannot be", "write a number from 1 to "+strconv.Itoa(failed.MaxPageSize))
		}
		p.Size = n
	}
	return p, nil
}

// flag reads a parameter that is true or false; false if it is absent.
func (c *call) flag(name string) (bool, error) {
	switch text := c.params.Get(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, badRequest(name+" "+strconv.Quote(clip(text, 80))+" cannot be", "write "+name+"=true, or leave it out")
	}
}

// isDryRun reports whether the act is not to be done, but counted.
func (c *call) isDryRun() (bool, error) { return c.flag("dry_run") }

// href is the address of a page. Templates never put a query together: they would escape it
// as the value of a parameter, and the filter in it would be lost.
func href(path string, query url.Values) template.URL {
	return template.URL((&url.URL{Path: path, RawQuery: query.Encode()}).String())
}

// hrefMessages is the address of a page or an act that is for the messages of a filter.
func hrefMessages(path string, f failed.Filter) template.URL {
	return href(path, api.Selection{Filter: api.FilterOf(f), All: f.All}.Values())
}

// hrefMessage is that of one for a single message.
func hrefMessage(path string, id failed.ID) template.URL {
	return hrefMessages(path, failed.Filter{IDs: []failed.ID{id}})
}

// hrefGroups is the address of the list of a queue's groups.
func hrefGroups(queue string) template.URL {
	return href("/groups", api.GroupFilter{Queue: api.Text(queue), State: string(failed.Failed), Order: string(failed.ByFailed)}.Values())
}
