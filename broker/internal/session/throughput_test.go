package session

import (
	"bytes"
	"net"
	"runtime"
	"testing"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// flow is a publisher and a consumer on separate connections. Their frames are encoded in advance, so that the benchmark
// measures mainly the broker.
type flow struct {
	tb                  testing.TB
	publisher, consumer net.Conn
	message             []byte // encoded publication
	size                int    // size of the delivery
	acks                []byte // nil: automatic acknowledgement
	acked               uint64 // the last acked delivery tag
}

const flowTags = 1 << 9 // maximum number of acks in one write

func newFlow(tb testing.TB, body int, ack bool) *flow {
	config := testConfig(tb, nil)
	f := &flow{tb: tb, publisher: connect(tb, config), consumer: connect(tb, config)}
	f.call(f.consumer, &amqpwire.ChannelOpen{}, &amqpwire.QueueDeclare{Queue: "bench"},
		&amqpwire.BasicConsume{Queue: "bench", ConsumerTag: "c", NoAck: !ack})
	f.call(f.publisher, &amqpwire.ChannelOpen{})
	f.message = encodeMessage(tb, &amqpwire.BasicPublish{RoutingKey: "bench"}, make([]byte, body))
	f.size = len(encodeMessage(tb, &amqpwire.BasicDeliver{ConsumerTag: "c", RoutingKey: "bench"}, make([]byte, body)))
	if ack {
		f.acks = make([]byte, 0, flowTags*len(encode(tb, &amqpwire.BasicAck{})))
	}
	return f
}

// connect opens a connection to a new session.
func connect(tb testing.TB, config *Config) net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- New(server, config).Serve() }()
	tb.Cleanup(func() {
		_ = client.Close()
		<-ended
	})
	if _, err := client.Write(hello()); err != nil {
		tb.Fatal(err)
	}
	readUntil(tb, client, amqpwire.IDConnectionOpenOk)
	return client
}

// call sends methods and waits for the reply to the last method.
func (f *flow) call(conn net.Conn, methods ...amqpwire.Method) {
	f.tb.Helper()
	var b []byte
	for _, m := range methods {
		b = append(b, encode(f.tb, m)...)
	}
	if _, err := conn.Write(b); err != nil {
		f.tb.Fatal(err)
	}
	readUntil(f.tb, conn, methods[len(methods)-1].ID()+1) // the ID of each -ok method follows the ID of its request
}

// readUntil reads up to the given method and returns it. The broker must not send further frames after this method.
func readUntil(tb testing.TB, conn net.Conn, last amqpwire.MethodID) amqpwire.Method {
	tb.Helper()
	for in := amqpwire.NewReader(conn, 0); ; {
		f, err := in.ReadFrame()
		if err != nil {
			tb.Fatalf("waiting for %v: %v", last, err)
		}
		if id, _ := amqpwire.PeekMethodID(f.Payload); f.Type != amqpwire.FrameMethod || id != last {
			continue
		}
		m, err := amqpwire.ParseMethod(f.Payload)
		if err != nil {
			tb.Fatal(err)
		}
		return m
	}
}

func encode(tb testing.TB, m amqpwire.Method) []byte {
	b, err := amqpwire.AppendMethodFrame(nil, 1, m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func encodeMessage(tb testing.TB, m amqpwire.Method, body []byte) []byte {
	b := amqpwire.AppendHeaderFrame(encode(tb, m), 1, 60, uint64(len(body)), []byte{0, 0})
	return amqpwire.AppendBodyFrames(b, 1, body, 8192)
}

// run publishes n messages and waits for their deliveries.
func (f *flow) run(n int) {
	published := make(chan error, 1)
	go func() { published <- f.publish(n) }()
	if err := f.consume(n); err != nil {
		f.tb.Fatal(err)
	}
	if err := <-published; err != nil {
		f.tb.Fatal(err)
	}
}

func (f *flow) publish(n int) error {
	const block = 128
	messages := bytes.Repeat(f.message, block)
	for n > 0 {
		some := min(n, block)
		if _, err := f.publisher.Write(messages[:some*len(f.message)]); err != nil {
			return err
		}
		n -= some
	}
	return nil
}

func (f *flow) consume(n int) error {
	buffer := make([]byte, 64<<10)
	before := f.acked
	for got, want := 0, n*f.size; got < want; {
		read, err := f.consumer.Read(buffer)
		if err != nil {
			return err
		}
		got += read
		if err := f.ack(before + uint64(got/f.size)); err != nil {
			return err
		}
	}
	return nil
}

// ack acks all messages up to a tag individually.
func (f *flow) ack(upTo uint64) error {
	if f.acks == nil {
		return nil
	}
	var m amqpwire.BasicAck
	for f.acked < upTo {
		f.acks = f.acks[:0]
		for ; f.acked < upTo && len(f.acks) < cap(f.acks); f.acked++ {
			m.DeliveryTag = f.acked + 1
			f.acks, _ = amqpwire.AppendMethodFrame(f.acks, 1, &m)
		}
		if _, err := f.consumer.Write(f.acks); err != nil {
			return err
		}
	}
	return nil
}

func benchmarkFlow(b *testing.B, body int, ack bool) {
	f := newFlow(b, body, ack)
	f.run(1000)
	b.SetBytes(int64(body))
	b.ReportAllocs()
	b.ResetTimer()
	f.run(b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

func BenchmarkAutoAck(b *testing.B)      { benchmarkFlow(b, 16, false) }
func BenchmarkAcked(b *testing.B)        { benchmarkFlow(b, 16, true) }
func BenchmarkAutoAck1KiB(b *testing.B)  { benchmarkFlow(b, 1<<10, false) }
func BenchmarkAutoAck64KiB(b *testing.B) { benchmarkFlow(b, 64<<10, false) }

// The broker needs three allocations per message: for the message, for its item in the queue, and for the bytes of the
// message.
func TestAllocationsPerMessage(t *testing.T) {
	for name, ack := range map[string]bool{"auto-ack": false, "acked": true} {
		t.Run(name, func(t *testing.T) {
			const messages = 10_000
			f := newFlow(t, 16, ack)
			f.run(messages) // lets the buffers grow before the measurement
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f.run(messages)
			runtime.ReadMemStats(&after)
			if each := float64(after.Mallocs-before.Mallocs) / messages; each >= 3.5 { // more than 3, because a buffer grows occasionally
				t.Errorf("allocations per message: got %.2f, want less than 3.5", each)
			}
		})
	}
}
