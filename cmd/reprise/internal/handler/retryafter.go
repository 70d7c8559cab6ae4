package handler

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter bounds what a server may ask for. A longer time is more likely
// a slip than a wish.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads the header of that name: seconds, or a date, which is
// counted from the server's own Date where it has one, since the clocks may
// differ. A time that has passed, zero and nonsense say nothing: then the
// Policy decides, so that no server makes a message come back without a pause.
func retryAfter(h http.Header) (time.Duration, bool) {
	s := strings.TrimSpace(h.Get("Retry-After"))
	if s == "" {
		return 0, false
	}
	var d time.Duration
	if digits(s) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n > int64(maxRetryAfter/time.Second) {
			n = int64(maxRetryAfter / time.Second) // only its size can be wrong
		}
		d = time.Duration(n) * time.Second
	} else {
		at, err := http.ParseTime(s)
		if err != nil {
			return 0, false
		}
		now, err := http.ParseTime(h.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		d = min(at.Sub(now), maxRetryAfter)
	}
	return d, d > 0
}

func digits(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}
