package config

import (
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// maxPartitions is the maximum number of partitions of a queue. The library has the same limit.
const maxPartitions = 256

// order reads the header by which the worker keeps the order of messages, and the number of partitions.
func (f *fields) order(w *Worker) {
	keyed := &reprise.Keyed{}
	ordered := read(f, "order_by", &keyed.Header, value.orderKey)
	partitioned := read(f, "partitions", &keyed.Partitions, integer(1, maxPartitions))
	f.with("key_rate", func(x value) {
		limit, burst := x.burstRate("key_rate")
		keyed.Rate, keyed.Burst = float64(limit), burst
		if !ordered {
			x.fail("key_rate requires order_by: add order_by: header NAME (rate limits all messages together)")
		}
	})
	full := read(f, "on_full", &keyed.OnFull, choose(is("park", reprise.ParkKey), is("pause", reprise.PausePartition)))
	switch {
	case !ordered && !partitioned && !full:
		return
	case !ordered && !partitioned:
		f.missing("on_full requires order_by: add order_by: header NAME", "order_by")
		return
	case !ordered:
		f.missing("partitions requires order_by: add order_by: header NAME", "order_by")
		return
	case !partitioned:
		f.missing("order_by requires partitions: add partitions: 8, several times the number of processes", "partitions")
		return
	}
	w.OrderBy, w.Strategy.Route = keyed, keyed.Route()
	for _, key := range []string{"route", "settle", "bind", "queue_type", "plain", "failed_queue", "debounce", "priority"} {
		if _, present := f.find(key); present {
			f.failAtKey(key, "%s must not be combined with order_by: remove it", key)
		}
	}
}

// lanes reads the number of lanes.
func (f *fields) lanes(w *Worker) {
	if !read(f, "lanes", &w.Lanes, integer(1, topology.MaxLanes)) {
		return
	}
	w.Strategy.Route = topology.Lanes{Count: w.Lanes}
	for _, key := range []string{"route", "settle", "bind", "queue_type", "plain", "failed_queue", "debounce", "priority", "order_by", "lease"} {
		if _, present := f.find(key); present {
			f.failAtKey(key, "%s must not be combined with lanes: remove it", key)
		}
	}
}

// orderKey reads the header of the key: header NAME.
func (v value) orderKey() (header string, ok bool) {
	s, ok := v.text("header order-id")
	if !ok {
		return "", false
	}
	name, found := strings.CutPrefix(s, "header ")
	if name = strings.TrimSpace(name); !found || name == "" {
		return "", v.fail("%s must be a header, such as header order-id (the routing key names the partition)", v.name)
	}
	if name == reprise.HeaderKey {
		return "", true
	}
	return name, true
}
