package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/protocol"
)

// BlockedKeys contains the blocked keys of a queue, as reported by its workers.
type BlockedKeys struct {
	Queue      string                `json:"queue"`
	Workers    int                   `json:"workers"` // that keep the order of keys
	Partitions int                   `json:"partitions"`
	Owned      int                   `json:"owned"`   // partitions that these workers own
	Blocked    int                   `json:"blocked"` // number of keys
	Behind     int                   `json:"behind"`  // messages behind their first messages
	Keys       []protocol.BlockedKey `json:"keys"`    // the oldest keys of each worker
}

// KeysOf returns the blocked keys of a queue, and whether all its workers have sent a status after the given time.
func KeysOf(workers []Worker, queue string, since time.Time) (all BlockedKeys, complete bool) {
	all = BlockedKeys{Queue: queue, Keys: []protocol.BlockedKey{}}
	complete = true
	for _, w := range workers {
		if w.Queue != queue || w.Silent || w.Keys == nil {
			continue
		}
		complete = complete && w.Heard.After(since)
		all.Workers++
		all.Partitions = w.Keys.Partitions
		all.Owned += w.Keys.Owned
		all.Blocked += w.Keys.Blocked
		all.Behind += w.Keys.Behind
		all.Keys = append(all.Keys, w.Keys.Oldest...)
	}
	slices.SortStableFunc(all.Keys, func(x, y protocol.BlockedKey) int { return x.Since.Compare(y.Since) })
	return all, complete && all.Workers > 0
}

// Find returns a blocked key. It returns false if no worker has reported the key.
func (b BlockedKeys) Find(key string) (k protocol.BlockedKey, ok bool) {
	i := slices.IndexFunc(b.Keys, func(k protocol.BlockedKey) bool { return k.Is(key) })
	if i < 0 {
		return k, false
	}
	return b.Keys[i], true
}

// ControlKey requests an act for a key: see reprise.Client.ControlKey. The list determines the number of partitions. ControlKey returns true
// when the workers have reported another state of the key, or false after the given time, in which the effect may also occur later.
func (l *List) ControlKey(ctx context.Context, k reprise.KeyControl, wait time.Duration) (effect bool, err error) {
	before, _ := KeysOf(l.Workers(), k.Queue, time.Time{})
	old, known := before.Find(k.Key)
	k.Partitions = before.Partitions
	if err := l.client.ControlKey(ctx, k); err != nil {
		return false, err
	}
	stored := time.Now()
	for deadline := time.After(wait); known; {
		_ = Control(ctx, l.client, protocol.Command{Do: protocol.DoReport, Queue: k.Queue}) // statuses also arrive without it
		after, complete := KeysOf(l.Workers(), k.Queue, stored)
		if now, blocked := after.Find(k.Key); complete && (!blocked || now != old) {
			return true, nil
		}
		select {
		case <-deadline:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return false, nil
}
