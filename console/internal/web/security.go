package web

import (
	"net/http"
	"strings"

	"github.com/reprisemq/reprise/console/internal/fault"
)

// Limits of the size of a request's body. A route with a larger limit than SmallBody specifies it.
const (
	SmallBody = 1 << 20
	EditBody  = 24 << 20 // a message's body of 16 MiB, as base64 and with headers
	AnyBody   = 1 << 62  // for streams, which are read line by line
)

// policy permits pages to load only the console's scripts and styles, and only from files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secured sets the headers of all responses.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		// With no-referrer, browsers would send "Origin: null" with a form.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store") // the handler of assets overrides this
		next.ServeHTTP(w, r)
	})
}

// sameOrigin refuses requests from pages of other sites that would change data.
func (s *Server) sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := protection.Check(r); err != nil {
			k := &Call{Server: s, route: &Route{Path: strings.TrimPrefix(r.URL.Path, s.Prefix)}, W: w, R: r}
			k.fail(&fault.Failure{
				Status: http.StatusForbidden,
				Text:   "the request comes from a page of another site",
				Advice: "use the console's own pages; if a proxy forwards requests to the console, it must not change the header Host",
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}
