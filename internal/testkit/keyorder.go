package testkit

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrLaterEpoch is returned to attempts of an earlier epoch.
var ErrLaterEpoch = errors.New("an attempt of a later epoch has started")

// A KeyOrder records the attempts of the messages of each key, which have the numbers 1, 2 and so on. It is safe for concurrent use.
type KeyOrder struct {
	mu         sync.Mutex
	keys       map[string]*keyProgress
	violations []string
	last       int
}

type keyProgress struct {
	epoch   int64
	highest int
	running int         // message of the attempt
	done    map[int]int // number of the last completion
}

// NewKeyOrder returns a KeyOrder without attempts.
func NewKeyOrder() *KeyOrder { return &KeyOrder{keys: map[string]*keyProgress{}} }

// Begin records the start of an attempt.
func (o *KeyOrder) Begin(key string, number int, epoch int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.keys[key]
	if k == nil {
		k = &keyProgress{done: map[int]int{}}
		o.keys[key] = k
	}
	if epoch < k.epoch {
		return ErrLaterEpoch
	}
	if number > k.highest {
		o.check(key, k, number)
		k.highest = number
	}
	k.epoch, k.running = epoch, number
	return nil
}

// Done records the success of an attempt.
func (o *KeyOrder) Done(key string, number int, epoch int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.keys[key]
	if epoch < k.epoch {
		return ErrLaterEpoch
	}
	if k.running != number {
		o.violations = append(o.violations, fmt.Sprintf("%s: message %d ends after the start of %d", key, number, k.running))
	}
	o.last++
	k.done[number] = o.last
	return nil
}

// check checks that all messages before number are done, and that their last completions have the right order: if a key has
// repeated a message, it has also repeated all later messages.
func (o *KeyOrder) check(key string, k *keyProgress, number int) {
	before := 0
	for n := 1; n < number; n++ {
		if at := k.done[n]; at > before {
			before = at
		} else {
			o.violations = append(o.violations, fmt.Sprintf("%s: message %d begins before %d is done again (completions %v)", key, number, n, k.done))
		}
	}
}

// Complete returns an error unless all messages are done, and the last completions of each key have the right order.
func (o *KeyOrder) Complete(keys, messages int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.keys) < keys {
		return fmt.Errorf("%d of %d keys have begun", len(o.keys), keys)
	}
	for key, k := range o.keys {
		for n, before := 1, 0; n <= messages; n++ {
			if k.done[n] <= before {
				return fmt.Errorf("%s: message %d of %d is not done (again)", key, n, messages)
			}
			before = k.done[n]
		}
	}
	return nil
}

// Violations returns the violations of the order.
func (o *KeyOrder) Violations() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.violations)
}
