package cli

import (
	"io"
	"net/http"
	"time"
)

// progressDeadlines lets requests take as long as they make progress: each read and each
// write has a timeout of its own, instead of the timeouts of serveWeb. It is for long
// requests, such as an export, and for streams of events.
func progressDeadlines(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_ = c.SetWriteDeadline(time.Now().Add(progressTimeout)) // it fails where there are no deadlines
		r.Body = &progressBody{ReadCloser: r.Body, c: c, began: time.Now()}
		h.ServeHTTP(&progressWriter{w, c}, r)
	})
}

// progressTimeout bounds a pause, and minRate is the least number of bytes per second of a
// request after that: a client cannot hold a connection for days by single bytes.
const (
	progressTimeout = time.Minute
	minRate         = 1 << 10
)

type progressWriter struct {
	http.ResponseWriter
	c *http.ResponseController
}

// Write implements [io.Writer].
func (w *progressWriter) Write(b []byte) (int, error) {
	_ = w.c.SetWriteDeadline(time.Now().Add(progressTimeout))
	return w.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (w *progressWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type progressBody struct {
	io.ReadCloser
	c     *http.ResponseController
	began time.Time
	n     int64 // bytes read
}

// Read implements [io.Reader].
func (b *progressBody) Read(p []byte) (int, error) {
	left := progressTimeout + time.Duration(b.n/minRate)*time.Second - time.Since(b.began)
	_ = b.c.SetReadDeadline(time.Now().Add(min(progressTimeout, left)))
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}
