package handler

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/reprisemq/reprise"
)

// Limits of headers. Many servers reject header lines of more than 8 KiB, and some reject headers of more than 16 KiB
// in total.
const (
	maxHeader  = 4 << 10
	maxHeaders = 12 << 10
)

// header sets the headers of req, the request of one attempt.
func (h *HTTP) header(req *http.Request, m *reprise.Delivery) {
	req.Header.Set("User-Agent", "reprise")
	b := budget{one: maxHeader, all: maxHeaders}
	for _, f := range fields(m) {
		name, value := headerName(f), headerValue(f.value)
		if b.take(name, value) {
			req.Header.Add(name, value)
		}
	}
	for name, value := range traceHeaders(req.Context(), m) {
		req.Header.Set(name, value)
	}
	if len(b.omitted) > 0 {
		names := strings.Join(b.omitted, " ")
		req.Header.Set("Reprise-Omitted", names)
		logger(h.cfg.Logger, m).Warn("parts of the message do not fit into HTTP headers", "omitted", names)
	}
	for name, values := range h.cfg.Headers {
		if strings.EqualFold(name, "Host") {
			req.Host = values[0]
			continue
		}
		req.Header[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
}

// headerName returns the name of the HTTP header for a field.
func headerName(f field) string {
	switch {
	case f.header:
		return textproto.CanonicalMIMEHeaderKey("Reprise-Header-" + escape(f.name, isTokenByte))
	case f.name == "Content-Type" || f.name == "Content-Encoding":
		return f.name
	}
	return "Reprise-" + f.name
}

// headerValue encodes s as a valid value of one header line.
func headerValue(s string) string {
	s = escape(s, func(c byte) bool { return ' ' <= c && c <= '~' && c != '%' })
	// HTTP implementations trim leading and trailing spaces, so these are encoded.
	trimmed := strings.TrimLeft(s, " ")
	s = strings.Repeat("%20", len(s)-len(trimmed)) + trimmed
	trimmed = strings.TrimRight(s, " ")
	return trimmed + strings.Repeat("%20", len(s)-len(trimmed))
}

// escape percent-encodes all bytes for which allowed returns false.
func escape(s string, allowed func(byte) bool) string {
	var b strings.Builder
	for i := range len(s) {
		if allowed(s[i]) {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

func isTokenByte(c byte) bool {
	switch {
	case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		return true
	}
	return strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0
}
