package cdnpurge

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

	"github.com/reprisemq/reprise"
)

// Kinds lists the kinds of objects that the API purges. They are also the routing keys of the messages.
var Kinds = []string{"url", "cpcode", "tag"}

// The limits of a request: the size of its body, and the number of objects by kind. Akamai's token bucket does not hold
// more tokens, so it would refuse a request with more objects each time.
const maxBody = 50_000

var maxObjects = map[string]int{"url": 10_000, "cpcode": 300, "tag": 5_000}

// batch contains the objects of one request. The calls of Purge that share the request wait for sent.
type batch struct {
	objects []json.RawMessage
	calls   int
	sent    chan struct{} // closed after the request
	err     error         // the result of the request
}

// requestBody returns the body of a request. Its size is the sum that fits computes.
func requestBody(objects []json.RawMessage) []byte {
	body := []byte(`{"objects":`)
	for i, o := range objects {
		separator := byte(',')
		if i == 0 {
			separator = '['
		}
		body = append(append(body, separator), o...)
	}
	return append(body, "]}"...)
}

// fits reports whether a request can contain the objects.
func fits(kind string, objects []json.RawMessage) bool {
	size := len(`{"objects":]}`)
	for _, o := range objects {
		size += len(",") + len(o)
	}
	return size <= maxBody && len(objects) <= maxObjects[kind]
}

// chunks divides the objects of a message so that each chunk fits a request, except for a chunk of one huge object.
func chunks(kind string, objects []json.RawMessage) iter.Seq[[]json.RawMessage] {
	return func(yield func([]json.RawMessage) bool) {
		for len(objects) > 0 {
			n := 1
			for n < len(objects) && fits(kind, objects[:n+1]) {
				n++
			}
			if !yield(objects[:n]) {
				return
			}
			objects = objects[n:]
		}
	}
}

// share purges objects in a request that other calls may share. Only one request for a kind is in flight. The calls that
// arrive in the meantime share the next request, so requests grow under load and do not wait otherwise.
func (p *Purger) share(ctx context.Context, kind string, objects []json.RawMessage) error {
	b := p.join(ctx, kind, objects)
	select {
	case <-b.sent:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, permanent := errors.AsType[*reprise.ParkError](b.err); permanent && b.calls > 1 {
		return p.post(ctx, kind, objects) // an invalid object must not park the messages of the others
	}
	return b.err
}

// join adds objects to the batch that waits for its turn. If the batch is full or there is none, join starts a batch.
func (p *Purger) join(ctx context.Context, kind string, objects []json.RawMessage) *batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		p.waiting, p.turns = map[string]*batch{}, map[string]chan struct{}{}
		for _, k := range Kinds {
			p.turns[k] = make(chan struct{}, 1)
		}
	}
	if b := p.waiting[kind]; b != nil {
		if all := append(b.objects, objects...); fits(kind, all) {
			b.objects, b.calls = all, b.calls+1
			return b
		}
	}
	b := &batch{objects: objects[:len(objects):len(objects)], calls: 1, sent: make(chan struct{})}
	p.waiting[kind] = b
	go p.send(context.WithoutCancel(ctx), kind, b) // the end of one call does not end the request of the others
	return b
}

// send waits until the previous request for the kind has ended, and posts the batch.
func (p *Purger) send(ctx context.Context, kind string, b *batch) {
	p.turns[kind] <- struct{}{}
	defer func() { <-p.turns[kind] }()
	p.mu.Lock()
	if p.waiting[kind] == b {
		delete(p.waiting, kind)
	}
	p.mu.Unlock()
	b.err = p.post(ctx, kind, b.objects)
	close(b.sent)
}
