package chaos

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// history contains the attempts of all processes. The time of an event is its position.
type history struct {
	events     int64
	operations []porcupine.Operation
	open       map[string]int // attempts without a result: positions in operations
}

type attempt struct {
	key    string
	number int
	epoch  int64
}

// add adds the event begin, done or fail of an attempt.
func (h *history) add(event, key string, number int, epoch int64) {
	if h.open == nil {
		h.open = map[string]int{}
	}
	h.events++
	id := fmt.Sprint(key, " ", number, " ", epoch)
	if event == "begin" {
		h.open[id] = len(h.operations)
		h.operations = append(h.operations, porcupine.Operation{
			ClientId: int(epoch % math.MaxInt32), Input: attempt{key, number, epoch}, Call: h.events, Output: false, Return: math.MaxInt64, // killed
		})
		return
	}
	op := &h.operations[h.open[id]]
	op.Output, op.Return = event == "done", h.events
}

// keyState is the last attempt of a key that was not fenced.
type keyState struct {
	epoch  int64
	number int
	done   bool
}

// orderOfKeys is the promise of docs/ordering.md for one key: the next message begins after the previous one is done, or the key
// repeats from an earlier message on. Attempts of an earlier epoch are fenced. Attempts that overlap may have any order here;
// testkit.KeyOrder finds those of the same epoch.
var orderOfKeys = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		keys := map[string][]porcupine.Operation{}
		for _, op := range all {
			key := op.Input.(attempt).key
			keys[key] = append(keys[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range keys {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return keyState{} },
	Step: func(state, input, output any) (bool, any) {
		s, a := state.(keyState), input.(attempt)
		next := s.number
		if s.done || next == 0 {
			next++
		}
		if a.epoch < s.epoch {
			return true, s
		}
		return a.number <= next, keyState{a.epoch, a.number, output.(bool)}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v done %v", input, output) },
}

// check reports histories that are not linearizable.
func (h *history) check(t *testing.T) {
	t.Helper()
	for _, part := range orderOfKeys.Partition(h.operations) {
		if result := porcupine.CheckOperationsTimeout(orderOfKeys, part, 5*time.Minute); result != porcupine.Ok {
			t.Errorf("the history of a key is not linearizable: %s", result)
			for _, op := range part {
				t.Logf("%d to %d: %+v, done %v", op.Call, op.Return, op.Input, op.Output)
			}
		}
	}
}

// The check finds histories that break the promise, and only these.
func TestHistoryCheck(t *testing.T) {
	for _, tc := range []struct {
		name, events string // b: begins, d: done, f: fails; then number and epoch
		legal        bool
	}{
		{"in order", "b11 d11 b21 d21", true},
		{"repeated until done", "b11 f11 b11 d11 b21 d21", true},
		{"repeated by the next owner", "b11 d11 b21 b12 d12 b22 d22 b32 d32", true},
		{"overlaps an attempt of the previous owner", "b11 b12 d11 d12 b22 d22", true},
		{"skipped", "b11 d11 b31 d31", false},
		{"next message after a failure", "b11 f11 b21 d21", false},
		{"repeated by the owner, which received copies and originals", "b11 d11 b22 d22 b32 d32 b22 d22 b32 d32 b42 d42", true},
		{"not repeated from there on", "b11 d11 b21 d21 b31 d31 b12 d12 b32 d32", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h history
			for i := 0; i+2 < len(tc.events); i += 4 {
				event := map[byte]string{'b': "begin", 'd': "done", 'f': "fail"}[tc.events[i]]
				h.add(event, "key", int(tc.events[i+1]-'0'), int64(tc.events[i+2]-'0'))
			}
			if legal := porcupine.CheckOperations(orderOfKeys, h.operations); legal != tc.legal {
				t.Errorf("got linearizable %v, want %v", legal, tc.legal)
			}
		})
	}
}
