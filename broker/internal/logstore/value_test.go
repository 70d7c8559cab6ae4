package logstore

import (
	"errors"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"pgregory.net/rapid"
)

func TestValueEncodingRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Entry{Message: text(rapid.String().Draw(t, "message")), State: State{
			Deadline: rapid.Int64().Draw(t, "deadline"), Due: rapid.Int64().Draw(t, "due"), Bytes: rapid.Int64().Draw(t, "bytes"),
			Deliveries: rapid.Int64().Draw(t, "deliveries"), Acquired: rapid.Int64().Draw(t, "acquired"),
			Redelivered: rapid.Bool().Draw(t, "redelivered"), Transient: rapid.Bool().Draw(t, "transient"),
		}}
		state, message, err := parseValue(appendValue(nil, &e))
		if err != nil || state != e.State || text(message) != e.Message {
			t.Errorf("encoded %+v with %q, decoded %+v with %q, %v", e.State, e.Message, state, message, err)
		}
	})
}

func FuzzParseValue(f *testing.F) {
	f.Add(appendValue(nil, &Entry{Message: text("m"), State: State{Deadline: 1, Due: 2, Bytes: 3, Deliveries: 4, Acquired: 5}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		state, message, err := parseValue(b)
		if err != nil {
			return
		}
		again, rest, err := parseValue(appendValue(nil, &Entry{State: state, Message: text(message)}))
		if err != nil || again != state || string(rest) != string(message) {
			t.Errorf("encoded %+v %q, decoded %+v %q, %v", state, message, again, rest, err)
		}
	})
}

// Transient messages are on disk only while memory is low. They do not survive a restart.
func TestTransientMessagesDoNotReturn(t *testing.T) {
	fs := vfs.NewMem()
	d := openOn(t, fs)
	for i, transient := range []bool{true, false, true} {
		e := entry(keyOf(1, 0, uint64(i+1)), "body")
		e.Transient = transient
		d.Put(e)
	}
	if err := errors.Join(d.sync(), d.Close(true)); err != nil {
		t.Fatal(err)
	}
	d = openOn(t, fs)
	defer d.Close(true)
	found, err := d.read(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[Key]string{keyOf(1, 0, 2): "body"}; !maps.Equal(found.messages, want) {
		t.Errorf("after a restart: got %v, want %v", found.messages, want)
	}
}
