package topologytest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/topology"
)

func TestValidate(t *testing.T) {
	long := strings.Repeat("n", 256)
	for _, tc := range []struct {
		name string
		t    topology.Topology
		want []string
	}{
		{"empty", topology.Topology{}, nil},
		{
			"valid",
			topology.Topology{
				Exchanges: []topology.Exchange{{Name: "x", Kind: "direct"}, {Name: "x", Kind: "direct", Args: topology.Table{}}},
				Queues: []topology.Queue{
					{Name: "q", Args: topology.Table{"x-message-ttl": 1}}, {Name: "q", Args: topology.Table{"x-message-ttl": int64(1)}},
				},
				Bindings: []topology.Binding{{Exchange: "elsewhere", Queue: "elsewhere too"}, {Exchange: "elsewhere", ToExchange: "x"}},
				Needs:    "3.10",
			},
			nil,
		},
		{
			"all errors",
			topology.Topology{
				Exchanges: []topology.Exchange{{}, {Name: "x", Kind: "direct"}, {Name: "x", Kind: "fanout"}, {Name: long, Kind: "topic"}},
				Queues: []topology.Queue{
					{},
					{Name: "q"},
					{Name: "q", Transient: true},
					{Name: "e", AutoDelete: true, Args: topology.Table{"x-queue-type": "quorum"}},
				},
				Bindings: []topology.Binding{
					{Queue: "q"},
					{Exchange: "x"},
					{Exchange: "x", Queue: "q", RoutingKey: long},
					{Exchange: "x", ToExchange: "y", RoutingKey: long},
					{Exchange: "x", ToExchange: "y", Queue: "q"},
					{Exchange: "x", ToExchange: long},
				},
			},
			[]string{
				"topology: exchange must have a name",
				`topology: exchange "" must have a Kind: "direct", "fanout", "topic" or "headers"`,
				`topology: exchange "x" must not have two different declarations`,
				`topology: exchange "nnnnnnnnnnnnnnnnnnnnnnnn…nnnnnnnnnnnnnnnnnnnnnnnn" must have a name of at most 255 bytes: got 256`,
				"topology: queue must have a name",
				`topology: queue "q" must not have two different declarations`,
				`topology: quorum queue "e" must not be transient, exclusive or auto-delete`,
				"topology: binding to exchange must have a name",
				"topology: binding to queue must have a name",
				`topology: routing key of the binding of queue "q" to exchange "x" must have at most 255 bytes: got 256`,
				`topology: routing key of the binding of exchange "y" to exchange "x" must have at most 255 bytes: got 256`,
				`topology: binding of exchange "x" must not lead to a queue and an exchange: got "q" and "y" (declare two bindings)`,
				`topology: binding from exchange "nnnnnnnnnnnnnnnnnnnnnnnn…nnnnnnnnnnnnnnnnnnnnnnnn" must have a name of at most 255 bytes: got 256`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			if err := tc.t.Validate(); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	args := topology.Table{"x-message-ttl": 5}
	a := topology.Topology{
		Exchanges: []topology.Exchange{{Name: "x", Kind: "direct"}},
		Queues:    []topology.Queue{{Name: "soft", IfAbsent: true, Args: args}, {Name: "hard"}, {Name: "same", Args: args}},
		Bindings:  []topology.Binding{{Exchange: "x", Queue: "hard"}},
	}
	b := topology.Topology{
		Exchanges: []topology.Exchange{{Name: "x", Kind: "direct"}, {Name: "y", Kind: "topic"}},
		Queues:    []topology.Queue{{Name: "soft"}, {Name: "hard", IfAbsent: true, Args: args}, {Name: "same", Args: topology.Table{"x-message-ttl": int8(5)}}},
		Bindings: []topology.Binding{
			{Exchange: "x", Queue: "hard"}, {Exchange: "x", Queue: "hard", RoutingKey: "k"}, {Exchange: "x", ToExchange: "hard"}, {Exchange: "x", ToExchange: "hard"},
		},
	}
	want := topology.Topology{
		Exchanges: []topology.Exchange{{Name: "x", Kind: "direct"}, {Name: "y", Kind: "topic"}},
		Queues:    []topology.Queue{{Name: "soft"}, {Name: "hard"}, {Name: "same", Args: args}},
		Bindings:  []topology.Binding{{Exchange: "x", Queue: "hard"}, {Exchange: "x", Queue: "hard", RoutingKey: "k"}, {Exchange: "x", ToExchange: "hard"}},
	}
	merged := a.Merge(b, topology.Topology{})
	if diff := cmp.Diff(want, merged); diff != "" {
		t.Error(diff)
	}
	if !a.Queues[0].IfAbsent || len(b.Queues) != 3 {
		t.Error("Merge modified its inputs")
	}
	if err := merged.Validate(); err != nil {
		t.Error(err)
	}
	if err := a.Merge(topology.Topology{Queues: []topology.Queue{{Name: "hard", Transient: true}}}).Validate(); err == nil {
		t.Error("Merge hid a contradiction")
	}
}

func TestWaitQueueKeepsReturnKey(t *testing.T) {
	w := topology.WaitQueue{
		WorkExchange: "x", WaitExchange: "wait", FailedExchange: "failed", Delay: 5,
		Infrastructure: topology.Topology{
			Exchanges: []topology.Exchange{{Name: "x", Kind: topology.Direct}, {Name: "t", Kind: topology.Topic}},
			Bindings: []topology.Binding{
				{Exchange: "other", Queue: "q", RoutingKey: "0"},
				{Exchange: "x", Queue: "q", RoutingKey: "1"},
				{Exchange: "x", Queue: "q", RoutingKey: "2"},
				{Exchange: "t", Queue: "q", RoutingKey: "a.*"},
			},
		},
	}
	topics := w
	topics.WorkExchange = "t"
	for _, tc := range []struct {
		w                topology.WaitQueue
		queue, key, want string
	}{
		{w, "q", "1", "1"},
		{w, "q", "2", "2"},
		{w, "q", "q", "1"},
		{w, "q", "0", "1"},
		{w, "unknown", "k", "k"},
		{topics, "q", "a.b", "a.b"},
	} {
		d := topology.Delivery{Queue: tc.queue, RoutingKey: tc.key}
		hop, err := tc.w.Wait(d, 99)
		if err != nil || hop.Exchange != "wait" || hop.RoutingKey != tc.want || hop.TTL != 0 || hop.Delay != 5 {
			t.Errorf("%s %s: Wait: got %+v, %v, want exchange wait, key %q and delay 5", tc.queue, tc.key, hop, err, tc.want)
		}
		if hop := tc.w.Failed(d); hop.Exchange != "failed" || hop.RoutingKey != tc.want {
			t.Errorf("%s %s: Failed: got %+v, want exchange failed and key %q", tc.queue, tc.key, hop, tc.want)
		}
	}
	if err := w.Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []topology.WaitQueue{{}, {WorkExchange: "a", WaitExchange: "b"}, {WorkExchange: "a", WaitExchange: "b", FailedExchange: "c", Delay: -1}} {
		if err := bad.Validate(); err == nil {
			t.Errorf("Validate accepted %+v", bad)
		}
	}
}
