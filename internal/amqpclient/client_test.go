package amqpclient_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/internal/amqpclient"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

func TestHandshakeNegotiates(t *testing.T) {
	for _, tt := range []struct {
		server, client, want amqpwire.ConnectionTune
	}{
		{amqpwire.ConnectionTune{ChannelMax: 2047, FrameMax: 131072, Heartbeat: 60}, amqpwire.ConnectionTune{ChannelMax: 10, FrameMax: 8192, Heartbeat: 5}, amqpwire.ConnectionTune{ChannelMax: 10, FrameMax: 8192, Heartbeat: 5}},
		{amqpwire.ConnectionTune{ChannelMax: 7, FrameMax: 4096, Heartbeat: 3}, amqpwire.ConnectionTune{ChannelMax: 10, FrameMax: 8192, Heartbeat: 5}, amqpwire.ConnectionTune{ChannelMax: 7, FrameMax: 4096, Heartbeat: 3}},
		{amqpwire.ConnectionTune{}, amqpwire.ConnectionTune{}, amqpwire.ConnectionTune{ChannelMax: math.MaxUint16, FrameMax: amqpwire.DefaultFrameMax}},
		{amqpwire.ConnectionTune{}, amqpwire.ConnectionTune{ChannelMax: 9, FrameMax: 9000, Heartbeat: 9}, amqpwire.ConnectionTune{ChannelMax: 9, FrameMax: 9000, Heartbeat: 9}},
	} {
		cfg := config
		cfg.ChannelMax, cfg.FrameMax, cfg.Heartbeat = tt.client.ChannelMax, tt.client.FrameMax, time.Duration(tt.client.Heartbeat)*time.Second
		c, _, told := connected(t, tt.server, cfg)
		got := amqpwire.ConnectionTune{ChannelMax: c.ChannelMax, FrameMax: c.FrameMax, Heartbeat: uint16(c.Heartbeat / time.Second)}
		if got != tt.want || amqpwire.ConnectionTune(*told) != tt.want {
			t.Errorf("server %+v, client %+v: got %+v and sent %+v, want %+v", tt.server, tt.client, got, *told, tt.want)
		}
	}
}

func TestRefusedHandshake(t *testing.T) {
	wrong, external := amqpclient.Mechanism{Name: "PLAIN", Response: "\x00user\x00wrong"}, amqpclient.Mechanism{Name: "EXTERNAL"}
	for name, tt := range map[string]struct {
		mechanism amqpclient.Mechanism
		server    func(s *server)
		check     func(err error) bool
	}{
		"mechanism": {external, func(s *server) { s.start() }, func(err error) bool { return errors.Is(err, amqpclient.ErrMechanism) }},
		"silent": {wrong, func(s *server) {
			if ok := s.start(); ok.Mechanism != "PLAIN" || ok.Response != "\x00user\x00wrong" {
				s.t.Errorf("got %+v", ok)
			}
			close(s.out)
		}, func(err error) bool { return errors.Is(err, amqpclient.ErrLogin) }},
		"with a reason": {wrong, func(s *server) {
			s.start()
			s.send(0, &amqpwire.ConnectionClose{ReplyCode: 403, ReplyText: "ACCESS_REFUSED"})
			s.next()
		}, func(err error) bool {
			e, ok := errors.AsType[*amqpclient.Error](err)
			return ok && e.Server && e.Code == 403 && e.Text == "ACCESS_REFUSED"
		}},
		"not AMQP": {wrong, func(s *server) {
			_, _ = s.reader.ReadProtocolHeader()
			s.out <- []byte("HTTP/1.1 400 Bad Request\r\n\r\n")
			close(s.out)
		}, func(err error) bool { _, ok := errors.AsType[*amqpwire.FrameError](err); return ok }},
	} {
		client, s := pipe(t)
		go tt.server(s)
		cfg := config
		cfg.Mechanisms = []amqpclient.Mechanism{tt.mechanism}
		if _, err := amqpclient.Open(client, cfg); !tt.check(err) {
			t.Errorf("%s: got %v", name, err)
		}
		_ = client.Close()
	}
}

// The client sends heartbeats while it writes nothing else, and closes the connection if the server is silent.
func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config
		cfg.Heartbeat = 10 * time.Second
		c, s, _ := connected(t, amqpwire.ConnectionTune{}, cfg)
		beats := make(chan int)
		go func() {
			n := 0
			for {
				f, err := s.reader.ReadFrame()
				if err != nil {
					beats <- n
					return
				}
				if f.Type == amqpwire.FrameHeartbeat {
					n++
				}
			}
		}()
		began := time.Now()
		for range 10 {
			time.Sleep(10 * time.Second)
			s.out <- amqpwire.AppendHeartbeatFrame(nil)
		}
		<-c.Ended()
		if silent := time.Since(began) - 100*time.Second; silent != 30*time.Second {
			t.Errorf("closed after %s of silence, want 30s", silent)
		}
		if err := c.Err(); err == nil || err.Server || !strings.Contains(err.Text, "timeout") {
			t.Errorf("got %v", err)
		}
		if n := <-beats; n < 11 || n > 13 {
			t.Errorf("got %d heartbeats in 130 s, want 12", n)
		}
	})
}

// A method that exceeds a frame, or that AMQP cannot represent, is refused, and the channel continues.
func TestMethodsMustBeEncodable(t *testing.T) {
	c, s, _ := connected(t, amqpwire.ConnectionTune{}, config)
	go func() {
		for m := s.next(); m != nil; m = s.next() {
			switch m := m.(type) {
			case *amqpwire.ChannelOpen:
				s.send(1, &amqpwire.ChannelOpenOk{})
			case *amqpwire.QueueDeclare:
				s.send(1, &amqpwire.QueueDeclareOk{Queue: m.Queue})
			}
		}
	}()
	ch, err := c.Open(&recorder{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []amqpwire.QueueDeclare{
		{Arguments: amqpwire.Table{{Name: "x", Value: strings.Repeat("x", int(c.FrameMax))}}},
		{Arguments: amqpwire.Table{{Name: "x", Value: 1i}}},
		{Queue: strings.Repeat("q", 256)},
	} {
		if _, err := ch.Call(&m); !errors.Is(err, amqpclient.ErrEncode) {
			t.Errorf("got %v for %.80v, want ErrEncode", err, m)
		}
		if _, err := ch.Call(&amqpwire.QueueDeclare{Queue: "next"}); err != nil {
			t.Fatal(err)
		}
	}
}

// Each of many concurrent requests gets its own answer.
func TestConcurrentRequests(t *testing.T) {
	c, s, _ := connected(t, amqpwire.ConnectionTune{}, config)
	go func() {
		for {
			switch m := s.next().(type) {
			case nil:
				return
			case *amqpwire.ChannelOpen:
				s.send(1, &amqpwire.ChannelOpenOk{})
			case *amqpwire.QueueDeclare:
				s.send(1, &amqpwire.QueueDeclareOk{Queue: m.Queue})
			case *amqpwire.ConnectionClose:
				s.send(0, &amqpwire.ConnectionCloseOk{})
			}
		}
	}()
	ch, err := c.Open(&recorder{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			name := fmt.Sprint("queue ", i)
			answer, err := ch.Call(&amqpwire.QueueDeclare{Queue: name})
			if ok, is := answer.(*amqpwire.QueueDeclareOk); err != nil || !is || ok.Queue != name {
				t.Errorf("got %+v, %v for %s", answer, err, name)
			}
		})
	}
	wg.Wait()
	c.Close(time.Now().Add(time.Minute))
	if _, err := ch.Call(&amqpwire.BasicQos{}); !errors.Is(err, amqpclient.ErrClosed) || c.Err() != nil {
		t.Errorf("got %v, %v; want ErrClosed and no reason", err, c.Err())
	}
}

// If both sides close a channel at the same time, the connection stays open, and the number can be used again.
func TestChannelClosedByBothSides(t *testing.T) {
	c, s, _ := connected(t, amqpwire.ConnectionTune{ChannelMax: 1}, config)
	go func() {
		for {
			switch s.next().(type) {
			case nil:
				return
			case *amqpwire.ChannelOpen:
				s.send(1, &amqpwire.ChannelOpenOk{})
			case *amqpwire.ChannelClose:
				s.send(1, &amqpwire.ChannelClose{ReplyCode: 406, ReplyText: "PRECONDITION_FAILED"}, &amqpwire.ChannelCloseOk{})
			}
		}
	}()
	for range 3 {
		r := &recorder{}
		ch, err := c.Open(r)
		for errors.Is(err, amqpclient.ErrChannelMax) { // until the former close is confirmed
			runtime.Gosched()
			ch, err = c.Open(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Open(&recorder{}); !errors.Is(err, amqpclient.ErrChannelMax) {
			t.Errorf("got %v, want ErrChannelMax", err)
		}
		_ = ch.Close()
		<-ch.Ended()
		if err := ch.Err(); err == nil || err.Code != 406 || !err.Channel {
			t.Errorf("got %v, want the reason of the server", err)
		}
		if err := ch.Send(&amqpwire.BasicAck{DeliveryTag: 1}); !errors.Is(err, amqpclient.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
	select {
	case <-c.Ended():
		t.Errorf("the connection has closed: %v", c.Err())
	default:
	}
}

// While a write waits for a broker that does not read, the client still receives what the broker sends: that it has closed the
// channel, and that it has blocked the connection.
func TestReadsWhileWriteWaits(t *testing.T) {
	cfg := config
	blocked := make(chan struct{})
	cfg.Blocked = func(bool, string) { close(blocked) }
	c, s, _ := connected(t, amqpwire.ConnectionTune{}, cfg)
	ch := s.open(c, &recorder{})
	published := make(chan error)
	go func() {
		published <- ch.Publish(&amqpwire.BasicPublish{RoutingKey: "q"}, &amqpwire.Properties{}, make([]byte, 1<<20), true, nil)
	}()
	if _, err := s.reader.ReadFrame(); err != nil { // the publication has begun, and the server reads no more
		t.Fatal(err)
	}
	s.send(1, &amqpwire.ChannelClose{ReplyCode: 404, ReplyText: "NOT_FOUND - no exchange 'fehlt\xff'"})
	s.send(0, &amqpwire.ConnectionBlocked{Reason: "low on memory"})
	<-blocked
	<-ch.Ended()
	if err := ch.Err(); err == nil || err.Code != 404 || !strings.HasSuffix(err.Text, "'fehlt\uFFFD'") {
		t.Errorf("got %v, want the reason of the server", err)
	}
	s.send(0, &amqpwire.ConnectionClose{ReplyCode: 320, ReplyText: "CONNECTION_FORCED"})
	<-c.Ended()
	if err := c.Err(); err == nil || !err.Server || err.Code != 320 {
		t.Errorf("got %v, want the reason of the server", err)
	}
	if err := <-published; err == nil || errors.Is(err, amqpclient.ErrClosed) {
		t.Errorf("got %v, want an error of a message that may be partly written", err)
	}
}

// A request whose write the end of the connection interrupts has the reason of the broker, which may have received it.
func TestInterruptedRequestHasReason(t *testing.T) {
	c, s, _ := connected(t, amqpwire.ConnectionTune{}, config)
	opened := make(chan error)
	go func() {
		_, err := c.Open(&recorder{})
		opened <- err
	}()
	if _, err := s.socket.Read(make([]byte, 1)); err != nil { // the write has begun, and the server reads no more
		t.Fatal(err)
	}
	s.send(0, &amqpwire.ConnectionClose{ReplyCode: 541, ReplyText: "INTERNAL_ERROR"})
	var reason *amqpclient.Error
	if err := <-opened; !errors.As(err, &reason) || reason.Code != 541 {
		t.Errorf("got %v, want the reason of the server", err)
	}
}

// A violation of the protocol closes the connection with a reason for the server, and ends its channels and requests.
func TestProtocolViolation(t *testing.T) {
	frames := func(all ...[]byte) (stream []byte) {
		for _, f := range all {
			stream = append(stream, f...)
		}
		return stream
	}
	method := func(channel uint16, m amqpwire.Method) []byte {
		f, err := amqpwire.AppendMethodFrame(nil, channel, m)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	deliver := method(1, &amqpwire.BasicDeliver{ConsumerTag: "c", DeliveryTag: 1})
	header := func(size uint64) []byte { return amqpwire.AppendHeaderFrame(nil, 1, 60, size, []byte{0, 0}) }
	body := amqpwire.AppendBodyFrames(nil, 1, []byte("body"), 0)
	for name, stream := range map[string][]byte{
		"unknown channel":         method(7, &amqpwire.BasicAck{}),
		"answer without request":  method(1, &amqpwire.QueueBindOk{}),
		"header without method":   header(1),
		"body without header":     frames(deliver, body),
		"two headers":             frames(deliver, header(4), header(4)),
		"body too long":           frames(deliver, header(2), body),
		"method within a message": frames(deliver, header(5), body, deliver),
		"no method of AMQP":       {1, 0, 1, 0, 0, 0, 4, 0, 60, 0, 99, 0xCE},
		"no frame":                []byte("HTTP/1.1 400"),
		"method on channel 0":     method(0, &amqpwire.QueueBindOk{}),
	} {
		c, s, _ := connected(t, amqpwire.ConnectionTune{}, config)
		r := &recorder{}
		ch := s.open(c, r)
		ended := make(chan error)
		go func() { _, err := ch.Call(&amqpwire.BasicQos{}); ended <- err }()
		s.next()
		s.out <- stream
		for s.next() != nil { // until the client has closed the connection
		}
		if err := <-ended; err == nil {
			t.Errorf("%s: the request has no error", name)
		}
		<-c.Ended()
		if err := c.Err(); err == nil || err.Server {
			t.Errorf("%s: got %v, want an error of the client", name, err)
		}
		if r.mu.Lock(); !r.ended || len(r.bodies) > 0 {
			t.Errorf("%s: the handler has not ended, or received %q", name, r.bodies)
		}
		r.mu.Unlock()
	}
}

// Whatever a server sends, the connection closes or continues: nothing panics, and Close returns.
func FuzzServer(f *testing.F) {
	f.Add([]byte{1, 0, 1, 0, 0, 0, 4, 0, 60, 0, 99, 0xCE})
	f.Add(amqpwire.AppendHeartbeatFrame(nil))
	f.Add(amqpwire.AppendHeaderFrame(nil, 1, 60, 1<<60, []byte{0, 0}))
	for _, m := range []amqpwire.Method{&amqpwire.BasicDeliver{ConsumerTag: "c"}, &amqpwire.ChannelClose{ReplyCode: 404}, &amqpwire.BasicAck{DeliveryTag: 1, Multiple: true}, &amqpwire.BasicCancel{ConsumerTag: "c"}} {
		frame, err := amqpwire.AppendMethodFrame(nil, 1, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(amqpwire.AppendHeaderFrame(frame, 1, 60, 3, []byte{0, 0}), amqpwire.AppendBodyFrames(nil, 1, []byte("abc"), 0)...))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		c, s, _ := connected(t, amqpwire.ConnectionTune{}, config)
		go func() { _, _ = c.Open(&recorder{}) }()
		s.next()
		s.send(1, &amqpwire.ChannelOpenOk{})
		go func() {
			for s.next() != nil { // answers of the client
			}
		}()
		s.out <- stream
		close(s.out)
		<-c.Ended()
		c.Close(time.Now())
	})
}
