package simulation

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// tap reads the frames of a connection at the broker's end. It can withhold all replies of one kind, or the confirms
// for a routing key, as if the queue had lost its majority.
type tap struct {
	k *Link

	mu       sync.Mutex
	up, down frames
	channels map[uint16]*tappedChannel
	most     int // maximum number of simultaneously open channels
	deafTo   amqpwire.MethodID
	until    time.Time // end of deafTo
	muted    map[string]bool
	held     []heldConfirm
}

// tappedChannel is an open channel.
type tappedChannel struct {
	confirms  bool
	published uint64
	open      map[uint64]string // routing keys of unconfirmed messages
}

type heldConfirm struct {
	channel *tappedChannel
	number  uint16
	tag     uint64
}

func newTap(k *Link) *tap {
	return &tap{k: k, channels: make(map[uint16]*tappedChannel), muted: make(map[string]bool)}
}

// frames splits bytes into frames.
type frames struct {
	data  []byte
	begun bool
}

// next returns the next complete frame or the protocol header. It returns nil if the data is incomplete.
func (f *frames) next() (frame []byte) {
	size := 0
	switch {
	case len(f.data) < 8:
		return nil
	case !f.begun && string(f.data[:4]) == "AMQP":
		size = 8
	default:
		size = 7 + int(binary.BigEndian.Uint32(f.data[3:])) + 1
	}
	if len(f.data) < size {
		return nil
	}
	f.begun = true
	frame, f.data = f.data[:size:size], f.data[size:]
	return frame
}

func method(frame []byte) amqpwire.MethodID {
	if frame[0] != byte(amqpwire.FrameMethod) || len(frame) < 12 {
		return 0
	}
	return amqpwire.MethodID(binary.BigEndian.Uint32(frame[7:]))
}

// record records the frames that a client sends.
func (t *tap) record(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.up.data = append(t.up.data, p...)
	for frame := t.up.next(); frame != nil; frame = t.up.next() {
		if string(frame[:4]) == "AMQP" {
			continue
		}
		number := binary.BigEndian.Uint16(frame[1:])
		switch method(frame) {
		case amqpwire.IDChannelOpen:
			t.channels[number] = &tappedChannel{open: make(map[uint64]string)}
			t.most = max(t.most, len(t.channels))
		case amqpwire.IDChannelClose, amqpwire.IDChannelCloseOk:
			delete(t.channels, number)
		case amqpwire.IDConfirmSelect:
			if c := t.channels[number]; c != nil {
				c.confirms = true
			}
		case amqpwire.IDBasicPublish:
			if c := t.channels[number]; c != nil && c.confirms {
				c.published++
				var m amqpwire.BasicPublish
				if amqpwire.Parse(frame[11:len(frame)-1], &m) == nil {
					c.open[c.published] = m.RoutingKey
				}
			}
		}
	}
}

// filter returns the part of the broker's output that reaches the client.
func (t *tap) filter(p []byte) (arrives []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down.data = append(t.down.data, p...)
	for frame := t.down.next(); frame != nil; frame = t.down.next() {
		id := method(frame)
		switch {
		case id != 0 && id == t.deafTo && time.Now().Before(t.until):
			t.k.unanswered()
		case id == amqpwire.IDBasicAck:
			arrives = append(arrives, t.confirm(frame)...)
		default:
			arrives = append(arrives, frame...)
		}
	}
	return arrives
}

// confirm returns the part of a confirm that reaches the client.
func (t *tap) confirm(frame []byte) (arrives []byte) {
	number := binary.BigEndian.Uint16(frame[1:])
	c := t.channels[number]
	var m amqpwire.BasicAck
	if c == nil || amqpwire.Parse(frame[11:len(frame)-1], &m) != nil {
		return frame
	}
	withheld := false
	for _, tag := range slices.Sorted(maps.Keys(c.open)) {
		if tag > m.DeliveryTag || tag < m.DeliveryTag && !m.Multiple {
			continue
		}
		key := c.open[tag]
		delete(c.open, tag)
		if t.muted[key] {
			withheld = true
			t.held = append(t.held, heldConfirm{c, number, tag})
			continue
		}
		arrives, _ = amqpwire.AppendMethodFrame(arrives, number, &amqpwire.BasicAck{DeliveryTag: tag})
	}
	if !withheld {
		return frame
	}
	return arrives
}

// release stops withholding confirms for a routing key and returns all confirms withheld so far.
func (t *tap) release(key string) (arrives []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.muted, key)
	for _, h := range t.held {
		if t.channels[h.number] == h.channel {
			arrives, _ = amqpwire.AppendMethodFrame(arrives, h.number, &amqpwire.BasicAck{DeliveryTag: h.tag})
		}
	}
	t.held = nil
	return arrives
}

// mute withholds confirms for a routing key, on all connections, for a while.
func (n *Network) mute(key string, d time.Duration) {
	n.mu.Lock()
	n.muted[key] = time.Now().Add(d)
	n.mu.Unlock()
	for _, k := range n.Links("") {
		k.tap.mu.Lock()
		k.tap.muted[key] = true
		k.tap.mu.Unlock()
	}
	time.AfterFunc(d, func() { n.release(key) })
}

// release undoes mute.
func (n *Network) release(key string) {
	n.mu.Lock()
	delete(n.muted, key)
	n.mu.Unlock()
	for _, k := range n.Links("") {
		if reports := k.tap.release(key); len(reports) > 0 {
			_, _ = k.down.put(reports)
		}
	}
}

// unanswered records a lost reply. The client waits for this reply indefinitely.
func (k *Link) unanswered() {
	k.mu.Lock()
	first := !k.faulted
	k.faulted = true
	k.mu.Unlock()
	k.n.l.Count("answers lost")
	if first {
		k.disturb("half-dead")
	}
}

// answers lists the replies that a tap can withhold.
var answers = []amqpwire.MethodID{
	amqpwire.IDBasicConsumeOk, amqpwire.IDBasicQosOk, amqpwire.IDQueueDeclareOk, amqpwire.IDChannelOpenOk, amqpwire.IDBasicCancelOk,
	amqpwire.IDConfirmSelectOk, amqpwire.IDChannelCloseOk, amqpwire.IDExchangeDeclareOk,
}

const promiseChannels = "no connection has more than 300 channels"

// mostChannels is the maximum number of channels that the library may open on one connection. It covers the regular
// channels, 128 channels for queues that do not confirm, and channels that wait for replies.
const mostChannels = 300

func (t *tap) check() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.most > mostChannels {
		t.k.n.l.Broken(promiseChannels, "open channels of connection %d of %s: got %d, want at most %d", t.k.Number, t.k.Owner, t.most, mostChannels)
	}
}

func init() {
	RegisterAct(Act{
		Name: "unconfirmed", Weight: 4, Fault: true,
		Draw: func(random *rand.Rand, shape Shape) []Step {
			w := oneOf(random, shape.Works...)
			b := findDesign(w.Design).Build(w)
			key := b.failed
			if random.IntN(3) == 0 {
				key = b.key
			}
			return []Step{{On: key, For: between(random, time.Second, 3*time.Hour)}}
		},
		Do: func(l *Life, s Step) {
			l.Count("unconfirmed")
			d := l.Disturb("queue/"+s.On, "unconfirmed")
			time.AfterFunc(s.For, d.End)
			l.Network.mute(s.On, s.For)
		},
	})
	onLinks("unanswered", 4,
		func(random *rand.Rand, s *Step) { s.For = between(random, time.Minute, 12*time.Hour) },
		func(l *Life, s Step, k *Link) {
			k.tap.mu.Lock()
			lasts := s.For
			if strings.HasPrefix(k.Owner, "staking.") {
				// Without a reply, a worker subscribes again every 30 seconds, so that a message has 20 deliveries after 10
				// minutes. The broker would then move the message to the wait queue, where it remains; see preset.Staking.
				lasts = min(lasts, 5*time.Minute)
			}
			k.tap.deafTo, k.tap.until = oneOf(s.Random(), answers...), time.Now().Add(lasts)
			k.tap.mu.Unlock()
		})
}
