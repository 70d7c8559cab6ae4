package handler

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter limits the delay from a Retry-After header. A longer delay is probably a mistake.
const maxRetryAfter = 24 * time.Hour

// retryAfter parses the Retry-After header, which contains seconds or a date. The delay until a date is measured from
// the Date header of the response, if present, because the clocks of the two machines may differ. For a past date, zero
// or a malformed value, retryAfter returns false. The Policy then sets the delay, so that a server cannot cause retries
// without a delay.
func retryAfter(h http.Header) (time.Duration, bool) {
	s := strings.TrimSpace(h.Get("Retry-After"))
	if s == "" {
		return 0, false
	}
	var d time.Duration
	n, err := strconv.ParseUint(s, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) { // on ErrRange, n is the maximum uint64
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
