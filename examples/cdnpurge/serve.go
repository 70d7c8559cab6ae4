package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/cdnpurge/cdnpurge"
	"github.com/reprisemq/reprise/examples/internal/serve"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// names contains the values of the flags for settings that the design does not specify: names, keys,
// types, durability, the number of attempts and the API.
type names struct {
	design    cdnpurge.Design
	published bool
	keys      string
	attempts  int
	cdn       string
	network   string
	purger    cdnpurge.Purger // for cdn
}

// defineNames defines the flags of names.
func defineNames() *names {
	n := &names{}
	text := func(to *string, name, usage string) { flag.StringVar(to, name, "", "with -serve: "+usage) }
	text(&n.design.Exchange, "exchange", "the main `exchange`; default "+preset.CDNPurgeExchange)
	text(&n.design.Queue, "queue", "the work `queue`; default "+preset.CDNPurgeQueue)
	text(&n.design.WaitExchange, "wait-exchange", "the wait `exchange`; default: the main one's name and .wait")
	text(&n.design.WaitQueue, "wait-queue", "the wait `queue`; default: the work queue's name and .wait")
	text(&n.design.FailedQueue, "failed-queue", "the failed `queue`; default: the work queue's name and .failed")
	text(&n.keys, "keys", "the routing `keys`, separated by commas; default url,directory,tag")
	text(&n.design.Kind, "kind", "the `kind` of the main exchange, direct, topic or fanout; default direct")
	text(&n.design.WaitKind, "wait-kind", "the `kind` of the wait exchange; default: the same")
	flag.BoolVar(&n.design.TransientExchanges, "transient", false, "with -serve: the exchanges are transient")
	flag.BoolVar(&n.design.TransientQueues, "transient-queues", false, "with -serve: the queues are transient")
	flag.BoolVar(&n.design.AutoDelete, "auto-delete", false, "with -serve: exchanges and queues are auto-delete")
	flag.BoolVar(&n.published, "published", false, "with -serve: the names of the design's published code, primary-exchange, primary-queue, wait-exchange, wait-queue and the keys routing-key-a and routing-key-b")
	text(&n.design.QueueType, "type", "x-queue-type of the queues, classic or quorum; default: not named")
	text(&n.cdn, "cdn", "the `URL` of Akamai's Fast Purge API, https://akab-….purge.akamaiapis.net, which purges the objects of the messages; default: any body is valid, and the program calls no API. AKAMAI_CLIENT_TOKEN, AKAMAI_CLIENT_SECRET and AKAMAI_ACCESS_TOKEN contain the credentials")
	text(&n.network, "network", "the `network` to purge with -cdn, staging or production; default production")
	flag.IntVar(&n.attempts, "max-attempts", reprise.DefaultMaxAttempts, "with -serve: the worker parks a message after this number of `attempts`; the design retries indefinitely")
	return n
}

func (n *names) validate(serve bool) error {
	changed := n.keys != "" || n.published || n.design.TransientExchanges || n.design.TransientQueues || n.design.AutoDelete || n.attempts != reprise.DefaultMaxAttempts
	for _, name := range []string{n.design.Exchange, n.design.Queue, n.design.WaitExchange, n.design.WaitQueue, n.design.FailedQueue, n.design.Kind, n.design.WaitKind, n.design.QueueType, n.cdn, n.network} {
		changed = changed || name != ""
	}
	if changed && !serve {
		return errors.New("flags for names, keys, kinds, types, attempts and the CDN require -serve")
	}
	if n.cdn != "" {
		if err := n.checkCDN(); err != nil {
			return err
		}
		n.design.RoutingKeys = cdnpurge.Kinds
	}
	if n.published {
		p, d := cdnpurge.Published(), &n.design
		d.Exchange, d.Queue = cmp.Or(d.Exchange, p.Exchange), cmp.Or(d.Queue, p.Queue)
		d.WaitExchange, d.WaitQueue = cmp.Or(d.WaitExchange, p.WaitExchange), cmp.Or(d.WaitQueue, p.WaitQueue)
		d.RoutingKeys = p.RoutingKeys
	}
	if n.keys != "" {
		n.design.RoutingKeys = strings.Split(n.keys, ",")
	}
	return nil
}

// checkCDN checks the settings of the API, because a wrong one would park all messages.
func (n *names) checkCDN() error {
	c := &cdnpurge.Credentials{
		ClientToken: os.Getenv("AKAMAI_CLIENT_TOKEN"), ClientSecret: os.Getenv("AKAMAI_CLIENT_SECRET"), AccessToken: os.Getenv("AKAMAI_ACCESS_TOKEN"),
	}
	n.purger.URL, n.purger.Network, n.purger.Credentials = strings.TrimRight(n.cdn, "/"), n.network, c
	switch {
	case n.published:
		return errors.New("cannot combine -published with -cdn (its routing keys are not kinds of objects)")
	case n.network != "" && n.network != "staging" && n.network != "production":
		return fmt.Errorf("-network must be staging or production: got %q", n.network)
	case c.ClientToken == "" || c.ClientSecret == "" || c.AccessToken == "":
		return errors.New("-cdn requires AKAMAI_CLIENT_TOKEN, AKAMAI_CLIENT_SECRET and AKAMAI_ACCESS_TOKEN in the environment")
	}
	return nil
}

// serve processes the messages that other programs publish. Without -cdn, the messages can have any body.
func (n *names) serve(ctx context.Context, s *stage.Stage, first time.Duration, failFirst int) error {
	n.design.First = first
	if err := n.design.Validate(); err != nil {
		return err
	}
	queue := cmp.Or(n.design.Queue, preset.CDNPurgeQueue)
	failed := cmp.Or(n.design.FailedQueue, topology.FailedQueue(queue))
	if failFirst != 0 && n.cdn != "" {
		return errors.New("cannot combine -fail-first with -cdn (the API decides which messages fail)")
	}
	worker := reprise.WorkerConfig{Queue: queue, Strategy: n.design.Strategy(), Policy: reprise.Policy{MaxAttempts: n.attempts}}
	if n.cdn != "" {
		worker.Handler, worker.Concurrency = n.purger.Handler(), 64 // concurrent purges share requests
	}
	service := serve.Service{
		Design: serve.Plain(n.design.Topology(), failed), FailFirst: failFirst, Flags: "-kind and -wait-kind for the exchanges' type, -transient, -transient-queues and -auto-delete where they are so, or -type", Out: os.Stdout,
		Intro: fmt.Sprintf("Working on %s until interrupted. Failed messages are retried after %s, then after three times the previous delay,\nand parked after %d attempts.",
			queue, cmp.Or(first, preset.CDNPurgeFirst), n.attempts),
		Workers: []reprise.WorkerConfig{worker},
	}
	return service.Run(ctx, s)
}
