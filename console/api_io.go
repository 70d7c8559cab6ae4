package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
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

// read reads a body of JSON. It refuses a name that is unknown, repeated, or written in
// another case.
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
	err = d.Decode(v)
	if err == nil {
		names := json.NewDecoder(bytes.NewReader(b))
		names.UseNumber() // a number that float64 cannot hold is no error here
		err = checkFields(names, reflect.TypeOf(v))
	}
	if err != nil {
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

// id returns the number of a thing in the path.
func (c *call) id() (int64, error) { return c.pathNumber("id") }

func (c *call) pathNumber(name string) (int64, error) {
	text := c.r.PathValue(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, badRequest("there is no number "+strconv.Quote(text), "write a number from 1 on in the path, as a list shows it")
	}
	return n, nil
}
