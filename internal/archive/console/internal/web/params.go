package web

import (
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
)

// Names of parameters that are not conditions of a filter.
var (
	FlashNames = []string{"did", "n", "of", "left", "undo"} // see readFlash in package pages
)

// didWords are the permitted values of the parameter did.
var didWords = []string{"discarded", "restored", "edited", "reverted", "purged", "dropped", "erased", "published", "retried", "parked", "requested"}

// AnyParams is the value of Route.Query for routes that ignore their query.
var AnyParams = []string{"*"}

// repeatable lists the parameters and form fields that may have several values.
var repeatable = []string{"state", "id", "header", "undo", "header_name", "header_kind", "header_value"}

// readParams sets Params to the query of the request. It refuses parameters that the route does not know, because a mistyped
// parameter would select the wrong messages.
func (c *Call) readParams() error {
	if slices.Equal(c.route.Query, AnyParams) {
		return nil
	}
	v, err := url.ParseQuery(c.R.URL.RawQuery)
	if err != nil {
		return fault.BadRequest("cannot read the query: "+err.Error(), "write special characters of a parameter as %XX")
	}
	if err := checkNames(v, c.route.Query, "parameter"); err != nil {
		return err
	}
	if c.route.Blanks {
		maps.DeleteFunc(v, func(_ string, values []string) bool { return strings.Join(values, "") == "" })
	}
	for name, values := range v {
		if slices.Contains(values, "") {
			return fault.BadRequest("parameter "+brief.Quoted(name)+" must not be empty", "set a value, or omit the parameter")
		}
	}
	for _, n := range slices.Concat(v["n"], v["of"], v["undo"]) {
		if _, err := strconv.ParseUint(n, 10, 63); err != nil {
			return fault.BadRequest("n, of and undo must be numbers", "omit them")
		}
	}
	if did := v.Get("did"); did != "" && !slices.Contains(didWords, did) {
		return fault.BadRequest("did must be the name of an action: got "+brief.Quoted(did), "omit it")
	}
	c.Params = v
	return nil
}

// checkNames reports unknown and repeated names.
func checkNames(v url.Values, known []string, what string) error {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if !slices.Contains(known, name) {
			advice := "remove the parameters"
			if len(known) > 0 {
				advice = "use " + strings.Join(known, ", ")
			}
			return fault.BadRequest("unknown "+what+" "+brief.Quoted(name), advice)
		}
		if len(v[name]) > 1 && !slices.Contains(repeatable, name) {
			return fault.BadRequest(what+" "+brief.Quoted(name)+" must have one value: got "+strconv.Itoa(len(v[name]))+" values", "remove the other values")
		}
	}
	return nil
}

// Form returns the fields of a form. It refuses fields that the route does not know.
func (c *Call) Form() (url.Values, error) {
	if err := c.R.ParseForm(); err != nil {
		return nil, fault.BadRequest("cannot read the form: "+err.Error(), "send it as the page does")
	}
	return c.R.PostForm, checkNames(c.R.PostForm, c.route.Form, "field")
}

// Only returns the values in v with the given names.
func Only(v url.Values, names []string) url.Values {
	some := url.Values{}
	for _, name := range names {
		if v.Has(name) {
			some[name] = slices.Clone(v[name])
		}
	}
	return some
}

// Filter returns the filter in the query. It fails if the filter refers to an object that does not exist. Without the
// parameter state, the filter selects messages in defaultState, or in any state if defaultState is empty.
func (c *Call) Filter(defaultState ...failed.State) (failed.Filter, error) {
	v := Only(c.Params, failed.FilterNames)
	for _, s := range defaultState {
		if !v.Has("state") {
			v.Add("state", string(s))
		}
	}
	f, err := failed.ParseFilter(v, c.Clock())
	if err != nil {
		return failed.Filter{}, fault.BadFilter(err)
	}
	return f, c.Archive.Check(c.R.Context(), f)
}

// Flag returns the value of a boolean parameter. Default: false.
func (c *Call) Flag(name string) (bool, error) {
	switch text := c.Params.Get(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, fault.BadRequest(name+" must be true or false: got "+brief.Quoted(text), "use "+name+"=true, or omit the parameter")
	}
}

// Href returns the address of a page, without the prefix. Templates must not assemble queries, because html/template
// would escape a query as the value of a single parameter, so that its filter would be lost.
func Href(path string, query url.Values) template.URL {
	return template.URL((&url.URL{Path: path, RawQuery: query.Encode()}).String())
}

// HrefMessages returns the address of a page or an action for the messages that a filter selects.
func HrefMessages(path string, f failed.Filter) template.URL {
	return Href(path, failed.Selection{Filter: f, All: f.All}.Values())
}

// HrefMessage returns the address of a page or an action for a single message.
func HrefMessage(path string, id failed.ID) template.URL {
	return HrefMessages(path, failed.Filter{IDs: []failed.ID{id}})
}

// HrefGroups returns the address of the list of groups of a queue.
func HrefGroups(queue params.Text) template.URL {
	return Href("/groups", api.GroupFilter{Queue: queue, State: string(failed.Failed), Order: "failed"}.Values())
}

// SeeOther redirects the browser to a page after an action.
func (c *Call) SeeOther(path string, query url.Values) error {
	c.Redirect(string(Href(path, query)))
	return nil
}

// Redirect redirects the browser to an address of the console.
func (c *Call) Redirect(address string) {
	http.Redirect(c.W, c.R, c.Prefix+address, http.StatusSeeOther)
}

// Address returns the path and the query of the request, without the prefix.
func (c *Call) Address() string { return strings.TrimPrefix(c.R.URL.RequestURI(), c.Prefix) }

// Path returns the path of the request, without the prefix.
func (c *Call) Path() string { return strings.TrimPrefix(c.R.URL.Path, c.Prefix) }
