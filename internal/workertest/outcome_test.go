package workertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
)

func TestOutcomeErrorsSurviveWrapping(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	err := fmt.Errorf("outer: %w", reprise.RetryAfter(time.Minute, fmt.Errorf("inner: %w", cause)))
	if e, ok := errors.AsType[*reprise.RetryAfterError](err); !ok || e.Delay != time.Minute || !errors.Is(err, cause) || err.Error() != "outer: inner: cause" {
		t.Errorf("got %v, want RetryAfterError", err)
	}
	err = fmt.Errorf("outer: %w", reprise.Park(cause))
	if _, ok := errors.AsType[*reprise.ParkError](err); !ok || !errors.Is(err, cause) || err.Error() != "outer: cause" {
		t.Errorf("got %v, want ParkError", err)
	}
	if e, ok := errors.AsType[*reprise.RetryAfterError](reprise.RetryAfter(-time.Minute, nil)); !ok || e.Delay != 0 || e.Error() != "retry after 0s" {
		t.Errorf("got %v, want a delay of 0", e)
	}
	if err := reprise.Park(nil); err.Error() != "parked by the handler" {
		t.Errorf("got %v, want the default text", err)
	}
	if err := (&reprise.PanicError{Value: reprise.Park(cause)}); !errors.Is(err, cause) {
		t.Errorf("PanicError %v does not wrap its value", err)
	}
}

func TestValidateWorkerConfig(t *testing.T) {
	t.Parallel()
	h := reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil })
	for want, cfg := range map[string]reprise.WorkerConfig{
		"reprise: WorkerConfig.Queue must not be empty (set the queue to consume)":                                                                       {Handler: h},
		"reprise: WorkerConfig.Handler must not be nil (convert a function with reprise.HandlerFunc; JSON, Typed and Batch need a function and a Codec)": {Queue: "q", Handler: reprise.JSON[int](nil)},
		"reprise: WorkerConfig.Concurrency must be between 0 and 65535: got -1 (0 means 1)":                                                              {Queue: "q", Handler: h, Concurrency: -1, Prefetch: 1},
		"reprise: WorkerConfig.Prefetch and Concurrency must be at most 32 with AckThenPublish or Acked: got 33 and 1 (run several workers)":             {Queue: "q", Handler: h, Concurrency: 1, Prefetch: 33, Order: reprise.AckThenPublish},
		"reprise: WorkerConfig.Prefetch must be between Concurrency (4) and 65535: got 3 (0 means the default)":                                          {Queue: "q", Handler: h, Concurrency: 4, Prefetch: 3},
		"reprise: WorkerConfig.DrainTimeout must not be negative: got -1ns (0 means 30s)":                                                                {Queue: "q", Handler: h, DrainTimeout: -1},
		"reprise: Policy.MaxAttempts must be between 0 and 2147483647: got -1 (0 means 19, 1 no retries)":                                                {Queue: "q", Handler: h, Policy: reprise.Policy{MaxAttempts: -1}},
		"reprise: Debounce.Key must not be nil (reprise.ContentKey compares messages by content)": {
			Queue: "q", Handler: h, Debounce: &reprise.Debounce{Window: time.Second},
		},
	} {
		if err := cfg.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := (reprise.WorkerConfig{Queue: "q", Handler: h, Concurrency: 65535}).Validate(); err != nil {
		t.Error(err)
	}
	if _, err := reprise.NewWorker(nil, reprise.WorkerConfig{Queue: "q", Handler: h}); err == nil {
		t.Error("NewWorker accepted a nil client")
	}
}
