package management

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
)

// reply writes the response to a call, with the query applied to value.
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

// isLong reports whether the size of a response grows with the number of objects.
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

// write writes value as a JSON response. It writes the elements of a stream one by one, as the stream yields them.
func write(w http.ResponseWriter, status int, value any) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Content-Type-Options", "nosniff")
	out := response{w: w, status: status}
	out.encoder = json.NewEncoder(&out.text)
	out.encoder.SetEscapeHTML(false) // safe, because browsers do not interpret JSON as HTML; names may contain ">"
	out.value(value)
	out.end()
}

// response is a response body that is sent in several parts if it is large.
type response struct {
	w       http.ResponseWriter
	status  int
	text    bytes.Buffer // not yet sent
	sent    bool         // at least one part was sent
	encoder *json.Encoder
	err     error
}

// partSize is the minimum size of each part of a response except the last.
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

// object writes the fields of an object sorted by name, as encoding/json does.
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
	r.text.Truncate(r.text.Len() - 1) // the encoder adds a line feed to each value
}

// send sends the buffered text.
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

// end sends the rest of the response. If an error occurred after the first part was sent, end cuts the connection, so
// that the client does not mistake the partial response for a complete one.
func (r *response) end() {
	switch {
	case r.err == nil:
		r.send()
	case r.sent:
		panic(http.ErrAbortHandler) // makes the server cut the connection
	default:
		r.text.Reset()
		r.text.WriteString(`{"error":"internal_server_error","reason":"not JSON"}`)
		r.status = http.StatusInternalServerError
		r.send()
	}
}
