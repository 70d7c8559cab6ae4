package handler

import (
	"errors"
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
	n, err := strconv.ParseUint(s, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) { // n is the largest number then
		d = time.Duration(min(n, uint64(maxRetryAfter/time.Second))) * time.Second
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
