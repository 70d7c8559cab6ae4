package main

import (
	"context"
	"encoding/json"
	"log/slog"
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
	var done, refused atomic.Int64
	cdn := &cdnpurge.CDN{Room: 10, Rate: func(time.Time) float64 { return 3600 * 40 }, Credentials: credentials(t)}
	cdn.Answered = func(objects []json.RawMessage, status int) {
		if status == 201 {
			done.Add(int64(len(objects)))
		} else {
			refused.Add(1)
		}
	}
	api := httptest.NewServer(cdn)
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
	const purges = 60
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
	if refused.Load() == 0 {
		t.Error("the API refused no request, so no purge was retried")
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
