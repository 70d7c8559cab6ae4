package management

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
)

// reply writes an answer.
func (c *call) reply(w http.ResponseWriter, value any) error {
	switch value := value.(type) {
	case created:
		if value.location != "" {
			w.Header().Set("Location", value.location)
		}
		w.WriteHeader(http.StatusCreated)
		return nil
	case done:
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if isLong(value) {
		if err := c.takeTurn(); err != nil {
			return err
		}
	}
	if s, ok := value.(scrape); ok {
		s.write(w)
		return nil
	}
	value, err := c.shape(value)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, value)
	return nil
}

// isLong reports whether an answer is as long as there are many things.
func isLong(value any) bool {
	switch value := value.(type) {
	case list, pages, scrape:
		return true
	case fields:
		for _, field := range value {
			if _, ok := field.(list); ok {
				return true
			}
		}
	}
	return false
}

// write answers with JSON. A stream in it is written as it is made.
func write(w http.ResponseWriter, status int, value any) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Content-Type-Options", "nosniff")
	out := response{w: w, status: status}
	out.encoder = json.NewEncoder(&out.text)
	out.encoder.SetEscapeHTML(false) // names have ">" in them, and nobody takes this for a page
	out.value(value)
	out.end()
}

// response is a body that is sent in parts, when it does not fit into one.
type response struct {
	w       http.ResponseWriter
	status  int
	text    bytes.Buffer // to be sent
	sent    bool         // the first part
	encoder *json.Encoder
	err     error
}

// partSize is how long a part of a response is, at the least, if it is not the last one.
const partSize = 64 << 10

func (r *response) value(value any) {
	switch value := value.(type) {
	case stream:
		r.list(value)
	case list:
		r.list(value.stream(""))
	case fields:
		r.object(value)
	default:
		r.encode(value)
	}
}

func (r *response) list(items stream) {
	between := "["
	for item := range items {
		r.text.WriteString(between)
		r.object(item)
		between = ","
		if r.text.Len() >= partSize {
			r.send()
		}
		if r.err != nil {
			return
		}
	}
	if between == "[" {
		r.text.WriteString(between)
	}
	r.text.WriteByte(']')
}

// object writes the fields in the order of their names, as the encoder does.
func (r *response) object(f fields) {
	between := "{"
	for _, name := range slices.Sorted(maps.Keys(f)) {
		r.text.WriteString(between)
		r.encode(name)
		r.text.WriteByte(':')
		r.value(f[name])
		between = ","
		if r.err != nil {
			return
		}
	}
	if between == "{" {
		r.text.WriteString(between)
	}
	r.text.WriteByte('}')
}

func (r *response) encode(value any) {
	if err := r.encoder.Encode(value); err != nil {
		r.err = err
		return
	}
	r.text.Truncate(r.text.Len() - 1) // the encoder ends a value with a line feed
}

// send sends the text so far.
func (r *response) send() {
	if !r.sent {
		r.w.WriteHeader(r.status)
		r.sent = true
	}
	if _, err := r.w.Write(r.text.Bytes()); err != nil {
		r.err = err
	}
	r.text.Reset()
}

// end sends the rest. An answer that fails in the middle is cut off, so that it cannot be taken for a whole one.
func (r *response) end() {
	switch {
	case r.err == nil:
		r.send()
	case r.sent:
		panic(http.ErrAbortHandler) // the way to have the server cut a connection
	default:
		r.text.Reset()
		r.text.WriteString(`{"error":"internal_server_error","reason":"not JSON"}`)
		r.status = http.StatusInternalServerError
		r.send()
	}
}
