package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// presetOf parses a preset with settings and one queue.
func presetOf(t *testing.T, name, settings, queue string) Worker {
	t.Helper()
	return mustParse(t, fmt.Sprintf("workers: [{preset: %s, %s queues: {%s: {exec: [x]}}}]", name, settings, queue)).Workers[0]
}

// The defaults of a preset are the values of the published design.
func TestPresetDefaults(t *testing.T) {
	for name, want := range map[string]struct {
		key, queue string
		strategy   topology.Strategy
		delay      time.Duration
	}{
		"cover-art":  {"delete", "cover-art-archive.delete", preset.CoverArt{}.Strategy(), 4 * time.Hour},
		"staking":    {"btc_info_queue", "btc_info_queue", preset.Staking{}.Strategy(), 5 * time.Second},
		"work-retry": {"WorkQueue", "WorkQueue", preset.WorkRetry{}.Strategy(), 5 * time.Minute},
		"cdn-purge":  {"purge", "purge", preset.CDNPurge{Queue: "purge"}.Strategy(), 10 * time.Second},
	} {
		w := presetOf(t, name, "", want.key)
		if w.Queue != want.queue {
			t.Errorf("%s: got queue %q, want %q", name, w.Queue, want.queue)
		}
		if diff := cmp.Diff(want.strategy, w.Strategy, noFuncs); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		hop, err := w.Strategy.Route.Wait(topology.Delivery{Queue: w.Queue, RoutingKey: "url"}, time.Hour)
		if first := w.Policy.Backoff.Delay(1); err != nil || first != want.delay || hop.Delay != want.delay {
			t.Errorf("%s: got first delay %s, documented delay %s, want %s; %v", name, hop.Delay, first, want.delay, err)
		}
	}
	if got := presets(); !slices.Equal(got, []string{"cover-art", "staking", "work-retry", "cdn-purge"}) {
		t.Errorf("got presets %q", got)
	}
}

func TestPresetSettings(t *testing.T) {
	for text, want := range map[string]topology.Strategy{
		"cover-art: queue_type: quorum,":          preset.CoverArt{QueueType: "quorum"}.Strategy(),
		"staking: queue_type: classic,":           preset.Staking{QueueType: "classic"}.Strategy(),
		"work-retry: transient_exchanges: true,":  preset.WorkRetry{TransientExchanges: true}.Strategy(),
		"work-retry: transient_exchanges: false,": preset.WorkRetry{}.Strategy(),
		"work-retry: kind: fanout, key: 5,":       preset.WorkRetry{Kind: topology.Fanout, Key: "5"}.Strategy(),
		"cdn-purge: transient_exchanges: true,":   preset.CDNPurge{Queue: "q", TransientExchanges: true}.Strategy(),
		"cdn-purge: transient_queues: true,":      preset.CDNPurge{Queue: "q", TransientQueues: true}.Strategy(),
		"cdn-purge: auto_delete: true,":           preset.CDNPurge{Queue: "q", AutoDelete: true}.Strategy(),
		"cdn-purge: jitter: none,":                preset.CDNPurge{Queue: "q", Jitter: -1}.Strategy(),
		"cdn-purge: jitter: 0,":                   preset.CDNPurge{Queue: "q", Jitter: -1}.Strategy(),
		"cdn-purge: jitter: 0.5,":                 preset.CDNPurge{Queue: "q", Jitter: 0.5}.Strategy(),
		"cdn-purge: factor: 1, max: 10s,":         preset.CDNPurge{Queue: "q", Factor: 1, Max: 10 * time.Second}.Strategy(),
		"cdn-purge: kind: topic, exchange: cdn,":  preset.CDNPurge{Queue: "q", Kind: topology.Topic, Exchange: "cdn"}.Strategy(),
		`cdn-purge: routing_keys: [a, ""],`:       preset.CDNPurge{Queue: "q", RoutingKeys: []string{"a", ""}}.Strategy(),
		"cdn-purge: wait_args: {a: 1, b: c, d: true},": preset.CDNPurge{
			Queue: "q", WaitArgs: topology.Table{"a": int64(1), "b": "c", "d": true},
		}.Strategy(),
	} {
		name, settings, queue := cutPreset(text)
		if diff := cmp.Diff(want, presetOf(t, name, settings, queue).Strategy, noFuncs); diff != "" {
			t.Errorf("%s (-want +got)\n%s", text, diff)
		}
	}
}

// cutPreset splits "NAME: SETTINGS", and adds a queue of the preset.
func cutPreset(text string) (name, settings, queue string) {
	for _, d := range designs {
		if rest, ok := strings.CutPrefix(text, d.name+": "); ok {
			if d.queues == nil {
				return d.name, rest, "q"
			}
			return d.name, rest, d.first()
		}
	}
	return text, "", ""
}

// Two workers of one design use separate queues.
func TestPresetCanBeRepeated(t *testing.T) {
	c := mustParse(t, `
workers:
  - {preset: work-retry, queues: {WorkQueue: {exec: [x]}}}
  - {preset: work-retry, prefix: b., queues: {WorkQueue: {exec: [x]}}}
  - {preset: cdn-purge, queues: {a: {exec: [x]}}}
  - {preset: cdn-purge, exchange: other, queues: {b: {exec: [x]}}}
`)
	var queues []string
	for _, w := range c.Workers {
		queues = append(queues, w.Queue)
	}
	if want := []string{"WorkQueue", "b.WorkQueue", "a", "b"}; !slices.Equal(queues, want) {
		t.Errorf("got queues %q, want %q", queues, want)
	}
}

func TestLongestWindowMatchesLibrary(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute, 7*time.Minute + 1, 24 * time.Hour, -1} {
		w := Worker{WorkerConfig: reprise.WorkerConfig{Queue: "q", ConsumerTimeout: timeout, Debounce: &reprise.Debounce{Window: longestWindow(timeout), Key: reprise.ContentKey}}}
		if err := w.validate(); err != nil {
			t.Errorf("consumer_timeout %s: got error %v", timeout, err)
		}
		if w.Debounce.Window++; w.validate() == nil {
			t.Errorf("consumer_timeout %s: library accepts a longer window than %s", timeout, longestWindow(timeout))
		}
	}
}

// A preset accepts the names of deployed programs, not only the names in the document.
func TestPresetAcceptsDeployedNames(t *testing.T) {
	w := presetOf(t, "staking", "", "v2_active_staking_queue")
	if diff := cmp.Diff(preset.Staking{}.Strategy(), w.Strategy, noFuncs); w.Queue != "v2_active_staking_queue" || diff != "" {
		t.Errorf("got queue %q, strategy (-want +got)\n%s", w.Queue, diff)
	}
	w = presetOf(t, "cdn-purge", "published: true,", "primary-queue")
	if diff := cmp.Diff(preset.CDNPurgePublished().Strategy(), w.Strategy, noFuncs); w.Queue != "primary-queue" || diff != "" {
		t.Errorf("got queue %q, strategy (-want +got)\n%s", w.Queue, diff)
	}
	w = mustParse(t, "workers: [{queue: jobs, route: {requeue: {classic: true}}, exec: [x]}]").Workers[0]
	if w.Strategy.Route != (topology.Requeuing{Classic: true}) {
		t.Errorf("got route %+v, want classic requeuing", w.Strategy.Route)
	}
}
