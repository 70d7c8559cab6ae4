package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/cdnpurge/cdnpurge"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

func credentials(t *testing.T) *cdnpurge.Credentials {
	c := &cdnpurge.Credentials{ClientToken: "client", ClientSecret: "secret", AccessToken: "access"}
	t.Setenv("AKAMAI_CLIENT_TOKEN", c.ClientToken)
	t.Setenv("AKAMAI_CLIENT_SECRET", c.ClientSecret)
	t.Setenv("AKAMAI_ACCESS_TOKEN", c.AccessToken)
	return c
}

// With -cdn, the program signs requests to the given API, and purges the objects of messages.
func TestServeCallsGivenCDN(t *testing.T) {
	const purges, refusals = 60, 3
	var done, requests atomic.Int64
	cdn := &cdnpurge.CDN{Room: purges, Rate: func(time.Time) float64 { return 0 }, Credentials: credentials(t)}
	cdn.Answered = func(objects []json.RawMessage, status int) {
		if status == http.StatusCreated {
			done.Add(int64(len(objects)))
		}
	}
	// A number of refusals, unlike a rate, lets the test end as early on a slow machine.
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) <= refusals {
			w.WriteHeader(http.StatusInsufficientStorage)
			return
		}
		cdn.ServeHTTP(w, r)
	}))
	t.Cleanup(api.Close)
	n := &names{cdn: api.URL, network: "staging", attempts: reprise.DefaultMaxAttempts}
	if err := n.validate(true); err != nil {
		t.Fatal(err)
	}
	b := testkit.Embedded(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- n.serve(ctx, &stage.Stage{URL: b.URL, Shared: true, Logger: slog.New(slog.DiscardHandler)}, 20*time.Millisecond, 0)
	}()
	client, err := reprise.Dial(t.Context(), b.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.WithoutCancel(t.Context()))
	if err := client.Declare(t.Context(), n.design.Topology()); err != nil {
		t.Fatal(err)
	}
	for range purges {
		if err := client.Publish(t.Context(), &reprise.Message{Exchange: preset.CDNPurgeExchange, RoutingKey: "cpcode", Body: []byte("[12345]")}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, time.Minute, func() bool { return done.Load() == purges })
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n := requests.Load(); n <= refusals {
		t.Errorf("the API got %d requests, so no refused purge was retried", n)
	}
}

func TestServeRejectsSettingsThatParkMessages(t *testing.T) {
	credentials(t)
	for want, n := range map[string]*names{
		"-published": {cdn: "https://cdn", published: true},
		"-network":   {cdn: "https://cdn", network: "prod"},
	} {
		if err := n.validate(true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
	t.Setenv("AKAMAI_ACCESS_TOKEN", "")
	if err := (&names{cdn: "https://cdn"}).validate(true); err == nil || !strings.Contains(err.Error(), "AKAMAI_ACCESS_TOKEN") {
		t.Errorf("missing credentials: got %v, want an error about AKAMAI_ACCESS_TOKEN", err)
	}
}
