package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// write answers with JSON.
func (c *call) write(status int, v any) error {
	b, err := marshal(v)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(b) // to nobody, if it fails: they have gone
	return nil
}

func (c *call) ok(v any) error { return c.write(http.StatusOK, v) }

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it is no HTML, and says so
	err := e.Encode(v)
	return b.Bytes(), err
}

// read reads a body of JSON.
func (c *call) read(v any) error {
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &failure{
			status: http.StatusUnsupportedMediaType,
			text:   "the request's body is not called JSON",
			advice: "send the header Content-Type: application/json",
		}
	}
	b, err := io.ReadAll(c.r.Body)
	if err != nil {
		return readFailure(err)
	}
	if !utf8.Valid(b) {
		return badRequest("the request's body is not UTF-8", `send bytes that are no text in base64: "body", or "base64:…" in place of a name`)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return badRequest("the request's body cannot be read: "+strings.TrimPrefix(err.Error(), "json: "), "/api/v1/openapi.json says what to send")
	}
	if _, err := d.Token(); err != io.EOF {
		return badRequest("there is more after the request's JSON", "send one object")
	}
	return nil
}

// readFailure is for a body that ended early, or is too large.
func readFailure(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return badRequest("the request's body cannot be read: "+err.Error(), "send it once more")
}

// query returns the parameters of the address, which must be among names.
func (c *call) query(names ...string) (url.Values, error) {
	v, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the address cannot be read: "+err.Error(), "write what is special in a parameter as %XX")
	}
	for name := range v {
		if !slices.Contains(names, name) {
			advice := "leave it out: there are none here"
			if len(names) > 0 {
				advice = "use " + strings.Join(names, ", ")
			}
			return nil, badRequest("unknown parameter "+strconv.Quote(name), advice)
		}
	}
	return v, nil
}

// filter reads a filter from the address, and what is asked for beside it.
func (c *call) filter(more ...string) (failed.Filter, url.Values, error) {
	v, err := c.query(slices.Concat(api.FilterNames, more)...)
	if err != nil {
		return failed.Filter{}, nil, err
	}
	f, err := api.ParseFilter(v)
	if err != nil {
		return failed.Filter{}, nil, badRequest(err.Error(), "nothing was selected: correct the parameter")
	}
	return f.Filter(), v, nil
}

var pageNames = []string{"after", "size"}

func pageOf(v url.Values) (failed.Page, error) {
	p := failed.Page{After: failed.Cursor(v.Get("after"))}
	if text := v.Get("size"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > failed.MaxPageSize {
			return p, badRequest("size "+strconv.Quote(text)+" cannot be", "write a number from 1 to "+strconv.Itoa(failed.MaxPageSize))
		}
		p.Size = n
	}
	return p, nil
}

// page reads which page of a list is asked for, where there is no more to say.
func (c *call) page() (failed.Page, error) {
	v, err := c.query(pageNames...)
	if err != nil {
		return failed.Page{}, err
	}
	return pageOf(v)
}

// isDryRun reports whether it is only asked what would happen.
func (c *call) isDryRun() (bool, error) {
	v, err := c.query("dry_run")
	if err != nil {
		return false, err
	}
	switch text := v.Get("dry_run"); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, badRequest("dry_run "+strconv.Quote(text)+" cannot be", "write dry_run=true, or leave it out")
	}
}

// id returns the number of a thing in the path.
func (c *call) id() (int64, error) { return c.pathNumber("id") }

// idAlone is id for what takes no parameters.
func (c *call) idAlone() (int64, error) {
	if _, err := c.query(); err != nil {
		return 0, err
	}
	return c.id()
}

func (c *call) pathNumber(name string) (int64, error) {
	text := c.r.PathValue(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, badRequest("there is no number "+strconv.Quote(text), "write a number from 1 on in the path, as a list shows it")
	}
	return n, nil
}
