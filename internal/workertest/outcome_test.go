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
		t.Errorf("got %v", err)
	}
	err = fmt.Errorf("outer: %w", reprise.Park(cause))
	if _, ok := errors.AsType[*reprise.ParkError](err); !ok || !errors.Is(err, cause) || err.Error() != "outer: cause" {
		t.Errorf("got %v", err)
	}
	if e, ok := errors.AsType[*reprise.RetryAfterError](reprise.RetryAfter(-time.Minute, nil)); !ok || e.Delay != 0 || e.Error() != "retry after 0s" {
		t.Errorf("got %v", e)
	}
	if err := reprise.Park(nil); err.Error() != "parked by the handler" {
		t.Errorf("got %v", err)
	}
	if err := (&reprise.PanicError{Value: reprise.Park(cause)}); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestValidateWorkerConfig(t *testing.T) {
	t.Parallel()
	h := reprise.HandlerFunc(func(context.Context, *reprise.Message) error { return nil })
	for want, cfg := range map[string]reprise.WorkerConfig{
		"reprise: WorkerConfig.Queue is empty: name the queue to consume":                                        {Handler: h},
		"reprise: WorkerConfig.Handler is nil: give a function as reprise.HandlerFunc(f)":                        {Queue: "q", Handler: reprise.JSON[int](nil)},
		"reprise: WorkerConfig.Concurrency -1: use 1 to 65535, or 0 for 1":                                       {Queue: "q", Handler: h, Concurrency: -1, Prefetch: 1},
		"reprise: WorkerConfig.Prefetch 3: use at least Concurrency (4) and at most 65535, or 0 for the default": {Queue: "q", Handler: h, Concurrency: 4, Prefetch: 3},
		"reprise: WorkerConfig.DrainTimeout -1ns is negative: use 0 for 30s":                                     {Queue: "q", Handler: h, DrainTimeout: -1},
		"reprise: Policy.MaxAttempts -1: use 1 for no retry, more for retries, or 0 for the default of 19":       {Queue: "q", Handler: h, Policy: reprise.Policy{MaxAttempts: -1}},
		"reprise: Debounce.Key is nil: say what makes messages equal, such as reprise.ContentKey, to which message ids are nothing": {
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
		t.Error("a worker without a client")
	}
}
