package web

import (
	"net/http"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
)

// Limits of the size of a request body. SmallBody is the default of Route.Body.
const (
	SmallBody = 1 << 20
	EditBody  = 24 << 20 // a message with a body of 16 MiB, in base64, and its headers
	AnyBody   = 1 << 62  // for bodies that the handler reads line by line
)

// policy permits pages to load scripts and styles only from files of the console, not inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secured sets security headers in all responses.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		// With no-referrer, browsers would submit forms with "Origin: null".
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store") // the asset handler overrides this
		next.ServeHTTP(w, r)
	})
}

// sameOrigin refuses requests that would change data and that were sent by a page of another site.
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
