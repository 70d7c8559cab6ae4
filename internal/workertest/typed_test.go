package workertest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

type placed struct {
	ID    int64
	Note  string
	Lines map[string]*int
}

func (placed) MessageType() string { return "order.placed" }

func (p placed) Validate() error {
	if p.ID < 0 {
		return errors.New("ID must not be negative")
	}
	return nil
}

// A published value arrives at the route of its type, with its content type.
func TestPublishJSONReachesRouteOfType(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		c := dial(t, b.URL)
		got := make(chan placed, 1)
		contentType := make(chan string, 1)
		start(t, c, reprise.WorkerConfig{
			Queue: queue, Strategy: strategy,
			Handler: &reprise.Mux{Routes: []reprise.Route{
				{Pattern: "order.placed", Handler: reprise.JSON(func(_ context.Context, v placed, m *reprise.Delivery) error {
					got <- v
					contentType <- m.ContentType
					return nil
				})},
			}},
		})
		n := 3
		want := placed{ID: 17, Note: "naïve \x00", Lines: map[string]*int{"a": &n, "b": nil}}
		if err := c.PublishJSON(t.Context(), &reprise.Message{RoutingKey: queue}, want); err != nil {
			t.Fatal(err)
		}
		if v := <-got; !cmp.Equal(v, want) {
			t.Errorf("got %+v, want %+v", v, want)
		}
		if s := <-contentType; s != "application/json" {
			t.Errorf("content type: got %q, want application/json", s)
		}
		for _, v := range []any{placed{ID: -1}, func() {}, make(chan int)} {
			m := &reprise.Message{RoutingKey: queue, Body: []byte("before")}
			if err := c.PublishJSON(t.Context(), m, v); !errors.Is(err, reprise.ErrInvalidMessage) || string(m.Body) != "before" {
				t.Errorf("publish %T: got %v and the body %q, want ErrInvalidMessage and an unchanged message", v, err, m.Body)
			}
		}
		if err := c.PublishJSON(t.Context(), nil, want); !errors.Is(err, reprise.ErrInvalidMessage) {
			t.Errorf("publish no message: got %v, want ErrInvalidMessage", err)
		}
	})
}

// A value is equal after it was encoded and decoded. Any other body is decoded or parked, but does not panic.
func TestEncodedValuesAreDecoded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := placed{
			ID: rapid.Int64Min(0).Draw(t, "id"), Note: rapid.String().Draw(t, "note"),
			Lines: rapid.MapOf(rapid.String(), rapid.Ptr(rapid.Int(), true)).Draw(t, "lines"),
		}
		m := &reprise.Delivery{}
		if err := m.Encode(reprise.JSONCodec{}, want); err != nil {
			t.Fatal(err)
		}
		if got, err := reprise.Decode[placed](reprise.JSONCodec{}, m); err != nil || !cmp.Equal(got, want) || m.Type != "order.placed" {
			t.Fatalf("got %+v of type %q, %v; want %+v", got, m.Type, err, want)
		}
		if got, err := reprise.Decode[*placed](reprise.JSONCodec{}, m); err != nil || !cmp.Equal(*got, want) {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
		m.Body = rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		if _, err := reprise.Decode[placed](reprise.JSONCodec{}, m); err != nil {
			if _, park := errors.AsType[*reprise.ParkError](err); !park {
				t.Fatalf("got %v, want a ParkError", err)
			}
		}
	})
}

type protoCodec struct{}

func (protoCodec) Marshal(v any) ([]byte, error)   { return proto.Marshal(v.(proto.Message)) }
func (protoCodec) Unmarshal(b []byte, v any) error { return proto.Unmarshal(b, v.(proto.Message)) }
func (protoCodec) ContentType() string             { return "application/x-protobuf" }

// Messages of Protocol Buffers are pointers, which Decode allocates.
func TestTypedAllocatesMessagesOfProtocolBuffers(t *testing.T) {
	t.Parallel()
	var got string
	h := reprise.Typed(protoCodec{}, func(_ context.Context, v *wrapperspb.StringValue, _ *reprise.Delivery) error {
		got = v.GetValue()
		return nil
	})
	m := &reprise.Delivery{}
	if err := m.Encode(protoCodec{}, wrapperspb.String("hello")); err != nil {
		t.Fatal(err)
	}
	if err := h.Handle(t.Context(), m); err != nil || got != "hello" || m.ContentType != "application/x-protobuf" {
		t.Errorf("got %q with content type %q, %v; want hello", got, m.ContentType, err)
	}
	m.Body = []byte("o") // field 13 with the undefined wire type 7
	err := h.Handle(t.Context(), m)
	if _, park := errors.AsType[*reprise.ParkError](err); !park || !strings.Contains(err.Error(), "cannot decode body as *wrapperspb.StringValue: ") {
		t.Errorf("got %v, want a ParkError", err)
	}
}
