package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
)

// Write writes a JSON response.
func (c *Call) Write(status int, v any) error {
	b, err := marshal(v)
	if err != nil {
		return err
	}
	c.W.Header().Set("Content-Type", "application/json")
	c.W.WriteHeader(status)
	_, _ = c.W.Write(b) // a write fails only if the client has disconnected
	return nil
}

func (c *Call) OK(v any) error { return c.Write(http.StatusOK, v) }

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // not necessary, because the content type prevents browsers from parsing the response as HTML
	err := e.Encode(v)
	return b.Bytes(), err
}

// Read decodes a JSON body into v. It refuses names that are unknown, are repeated, or differ from a known name only in
// case.
func (c *Call) Read(v any) error {
	if kind, _, err := mime.ParseMediaType(c.R.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &fault.Failure{
			Status: http.StatusUnsupportedMediaType,
			Text:   "the request's body is not called JSON",
			Advice: "send the header Content-Type: application/json",
		}
	}
	b, err := io.ReadAll(c.R.Body)
	if err != nil {
		return ReadFailure(err)
	}
	if !utf8.Valid(b) {
		return fault.BadRequest("request body is not valid UTF-8", `send binary data as base64: "body", or "base64:…" in place of a name`)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	err = d.Decode(v)
	if err == nil {
		names := json.NewDecoder(bytes.NewReader(b))
		names.UseNumber() // accept numbers that exceed float64
		err = checkFields(names, reflect.TypeOf(v))
	}
	if err != nil {
		return fault.BadRequest("cannot read the request body: "+strings.TrimPrefix(err.Error(), "json: "), "see /api/v1/openapi.json")
	}
	if _, err := d.Token(); err != io.EOF {
		return fault.BadRequest("request body must contain a single JSON object", "remove the text after the object")
	}
	return nil
}

// ReadFailure converts an error from reading a request body into the error that the visitor sees.
func ReadFailure(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return fault.BadRequest("cannot read the request body: "+err.Error(), "send the request again")
}
