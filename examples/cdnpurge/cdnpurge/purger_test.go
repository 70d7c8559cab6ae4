package cdnpurge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/cdnpurge/cdnpurge"
)

// handlerTransport sends requests to a handler without a network. The calls of the handler take a second.
type handlerTransport struct{ http.Handler }

func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(time.Second)
	w := httptest.NewRecorder()
	t.ServeHTTP(w, r)
	return w.Result(), nil
}

func purger(api http.HandlerFunc) *cdnpurge.Purger {
	return &cdnpurge.Purger{URL: "http://cdn", Client: &http.Client{Transport: handlerTransport{api}}}
}

func handle(t *testing.T, p *cdnpurge.Purger, kind, body string) error {
	return p.Handler().Handle(t.Context(), &reprise.Delivery{Message: reprise.Message{RoutingKey: kind, Body: []byte(body)}})
}

// The response of the API determines the outcome of a message.
func TestPurgerOutcomes(t *testing.T) {
	for _, tc := range []struct {
		status int
		text   string
		park   bool
		pause  time.Duration
		err    string
	}{
		{http.StatusCreated, `{"httpStatus":201}`, false, 0, ""},
		{http.StatusOK, "", false, 0, ""},
		{http.StatusInsufficientStorage, "queue is full", false, 0, "507: queue is full"},
		{http.StatusServiceUnavailable, "", false, 0, "503: Service Unavailable"},
		{http.StatusTooManyRequests, `{"title":"Rate Limit exceeded","supportId":"17"}`, false, 5 * time.Second, "429: Rate Limit exceeded; support ID 17"},
		{http.StatusRequestTimeout, "", false, 0, "408: Request Timeout"},
		{http.StatusUnauthorized, `{"title":"Not authorized","detail":"Signature does not match"}`, false, 0, "401: Not authorized; Signature does not match"},
		{http.StatusForbidden, `{"detail":"unauthorized cpcode"}`, false, 0, "403: unauthorized cpcode"},
		{http.StatusBadRequest, "no such name", true, 0, "400: no such name"},
		{http.StatusNotFound, "", true, 0, "404: Not Found"},
	} {
		t.Run(http.StatusText(tc.status), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if got := r.Method + " " + r.URL.Path + " " + string(body); err != nil || got != `POST /ccu/v3/delete/tag/staging {"objects":["news"]}` {
					t.Errorf("request: got %s, %v", got, err)
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.text)
			}))
			defer server.Close()
			err := handle(t, &cdnpurge.Purger{URL: server.URL, Action: "delete", Network: "staging"}, "tag", `["news"]`)
			if tc.err == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			refused, answered := errors.AsType[*cdnpurge.StatusError](err)
			_, parked := errors.AsType[*reprise.ParkError](err)
			paused, _ := errors.AsType[*reprise.RetryAfterError](err)
			if paused == nil {
				paused = &reprise.RetryAfterError{}
			}
			if !answered || refused.Error() != tc.err || parked != tc.park || paused.Delay != tc.pause {
				t.Errorf("got %v (parked: %v, pause %s), want %q", err, parked, paused.Delay, tc.err)
			}
		})
	}
}

// Purger retries a purge if the API is unreachable, and parks a message that no request can contain.
func TestPurgerWithoutResponse(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	p := &cdnpurge.Purger{URL: server.URL}
	server.Close()
	err := handle(t, p, "url", `["/"]`)
	if _, parked := errors.AsType[*reprise.ParkError](err); err == nil || parked {
		t.Errorf("unreachable CDN: got %v, want an error without ParkError", err)
	}
	for kind, body := range map[string]string{"url": "/index.html", "tag": "[]", "cpcode": "null", "directory": `["/news/"]`} {
		err = handle(t, p, kind, body)
		if _, parked := errors.AsType[*reprise.ParkError](err); !parked {
			t.Errorf("%s with %s: got %v, want a ParkError", kind, body, err)
		}
	}
}

// If the rate limit is exceeded, the worker pauses until the API has the tokens for the request.
func TestPurgerPausesUntilTokensRefill(t *testing.T) {
	for want, headers := range map[time.Duration][4]string{ // remaining requests, per second; remaining objects, per second
		5 * time.Second:   {"0", "50.00", "9904", "200.00"},
		10 * time.Second:  {"99", "50.00", "10", "0.20"},
		20 * time.Second:  {"0", "0.05", "10", "200.00"},
		600 * time.Second: {"-Inf", "50", "NaN", "x"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i, name := range []string{"Remaining", "Limit-Per-Second", "Remaining-Objects", "Limit-Per-Second-Objects"} {
				w.Header().Set("X-Ratelimit-"+name, headers[i])
			}
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		objects := "[" + strings.Repeat("1,", 11) + "1]"
		err := handle(t, &cdnpurge.Purger{URL: server.URL}, "cpcode", objects)
		if paused, ok := errors.AsType[*reprise.RetryAfterError](err); !ok || paused.Delay != want {
			t.Errorf("%q: got %v, want a pause of %s", headers, err, want)
		}
		server.Close()
	}
}

// api accepts signed requests, and records the objects of each request.
type api struct {
	cdn      *cdnpurge.CDN
	requests [][]string
}

func newAPI() (*api, *cdnpurge.Purger) {
	credentials := &cdnpurge.Credentials{ClientToken: "client", ClientSecret: "secret", AccessToken: "access"}
	a := &api{}
	a.cdn = &cdnpurge.CDN{
		Room: 1e6, Rate: func(time.Time) float64 { return 1e9 }, Credentials: credentials,
		Answered: func(objects []json.RawMessage, _ int) {
			var names []string
			for _, o := range objects {
				names = append(names, string(o))
			}
			a.requests = append(a.requests, names)
		},
	}
	p := purger(a.cdn.ServeHTTP)
	p.Credentials = credentials
	return a, p
}

// Purges that arrive during a request share the next request. Requests stay within the limits of the API.
func TestPurgerBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI()
		var all sync.WaitGroup
		purge := func(kind string, objects ...string) {
			all.Go(func() {
				if err := handle(t, p, kind, "["+strings.Join(objects, ",")+"]"); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		purge("url", `"https://example.com/?a=1&b=<2>"`)
		for i := range 40 {
			purge("url", fmt.Sprintf(`"%s%d"`, strings.Repeat("x", 2000), i))
		}
		began := time.Now()
		all.Wait()
		if len(a.requests) != 3 || len(a.requests[0]) != 1 || len(a.requests[1]) != 24 || len(a.requests[2]) != 16 {
			t.Errorf("41 purges of 2 kB: got %d requests, want 1, 24 and 16 objects", len(a.requests))
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("duration: got %s, want three requests of a second", took)
		}
		a.requests = nil
		codes := make([]string, 700)
		for i := range codes {
			codes[i] = fmt.Sprint(100000 + i)
		}
		purge("cpcode", codes...)
		all.Wait()
		if len(a.requests) != 3 || len(a.requests[0]) != 300 || len(a.requests[2]) != 100 || a.requests[2][99] != "100699" {
			t.Errorf("700 CP codes: got %d requests, want 300, 300 and 100", len(a.requests))
		}
	})
}

// An object that the API refuses parks its own message, and not the messages in the same request.
func TestPurgerSeparatesInvalidObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := purger(func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "bad") {
				w.WriteHeader(http.StatusBadRequest)
			}
		})
		results := map[string]error{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, name := range []string{"first", "a", "bad", "b"} { // the request for "first" is in flight when the others arrive
			all.Go(func() {
				err := handle(t, p, "tag", fmt.Sprintf("[%q]", name))
				mu.Lock()
				defer mu.Unlock()
				results[name] = err
			})
			synctest.Wait()
		}
		all.Wait()
		for name, err := range results {
			if _, parked := errors.AsType[*reprise.ParkError](err); parked != (name == "bad") || (err == nil) == parked {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

// A request with a wrong or an old signature is refused, and the message is retried.
func TestPurgerRetriesAfterSignatureIsRefused(t *testing.T) {
	_, p := newAPI()
	p.Credentials = &cdnpurge.Credentials{ClientToken: "client", ClientSecret: "wrong", AccessToken: "access"}
	err := handle(t, p, "url", `["/"]`)
	refused, _ := errors.AsType[*cdnpurge.StatusError](err)
	if _, parked := errors.AsType[*reprise.ParkError](err); refused == nil || refused.Code != http.StatusUnauthorized || parked {
		t.Errorf("got %v, want 401 without ParkError", err)
	}
}
