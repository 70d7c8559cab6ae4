package queue

import (
	"encoding/binary"
	"errors"
	"time"
)

// The flags of an encoded message. The encoding contains a field only if its flag is set.
const (
	isPersistent = 1 << iota
	hasPriority
	hasKeys // CC or BCC
	hasFailures
	hasPast
	isSuspect
)

// Append implements [store.Message]. The encoding contains the data that the queue needs after it has loaded the message.
//
//	flags, [priority], exchange, key, [CC, BCC], [failures], [published, first, deaths], properties, body
//
// Numbers are varints. Strings and lists have a length prefix, except the body, which is the rest of the encoding.
func (m *Message) Append(dst []byte) []byte {
	var flags byte
	for _, f := range []struct {
		flag byte
		set  bool
	}{
		{isPersistent, m.Persistent},
		{isSuspect, m.suspect},
		{hasPriority, m.HasPriority},
		{hasKeys, len(m.CC)+len(m.BCC) > 0},
		{hasFailures, m.failures != 0},
		{hasPast, m.history != nil},
	} {
		if f.set {
			flags |= f.flag
		}
	}
	dst = append(dst, flags)
	if m.HasPriority {
		dst = append(dst, m.Priority)
	}
	dst = appendText(dst, m.Exchange)
	dst = appendText(dst, m.RoutingKey)
	if flags&hasKeys != 0 {
		dst = appendTexts(dst, m.CC)
		dst = appendTexts(dst, m.BCC)
	}
	if m.failures != 0 {
		dst = binary.AppendVarint(dst, m.failures)
	}
	if m.history != nil {
		dst = m.history.append(dst)
	}
	dst = appendText(dst, m.Properties)
	return append(dst, m.Body...)
}

func (p *deathHistory) append(dst []byte) []byte {
	dst = binary.AppendVarint(dst, int64(p.published))
	dst = p.first.append(dst)
	dst = binary.AppendUvarint(dst, uint64(len(p.deaths)))
	for _, d := range p.deaths {
		dst = d.append(dst)
	}
	return dst
}

func (d *death) append(dst []byte) []byte {
	dst = appendText(dst, d.queue)
	dst = appendText(dst, string(d.reason))
	dst = binary.AppendVarint(dst, d.count)
	dst = binary.AppendVarint(dst, d.time.UnixNano())
	dst = appendText(dst, d.exchange)
	dst = appendTexts(dst, d.keys)
	return appendText(dst, d.expiration)
}

func appendText[T string | []byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendTexts(dst []byte, all []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(all)))
	for _, s := range all {
		dst = appendText(dst, s)
	}
	return dst
}

var errEncoding = errors.New("cannot decode stored message")

// decodeMessage is the inverse of [Message.Append]. The properties and the body share the memory of b. The encoding
// omits two fields: the TTL is already part of the deadline, and the headers are also in the properties.
func decodeMessage(b []byte) (*Message, error) {
	d := decoder{rest: b}
	flags := d.byte()
	m := &Message{TTL: NoTTL, Persistent: flags&isPersistent != 0, suspect: flags&isSuspect != 0, HasPriority: flags&hasPriority != 0}
	if m.HasPriority {
		m.Priority = d.byte()
	}
	m.Exchange, m.RoutingKey = d.text(), d.text()
	if flags&hasKeys != 0 {
		m.CC, m.BCC = d.texts(), d.texts()
	}
	if flags&hasFailures != 0 {
		m.failures = d.number()
	}
	if flags&hasPast != 0 {
		m.history = d.history()
	}
	m.Properties = d.bytes()
	m.Body = d.rest
	if d.bad {
		return nil, errEncoding
	}
	return m, nil
}

// decoder reads values from the start of rest, and removes them. After an error, all values are zero.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail()
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) number() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// length reads the length of a string or list. Each element must have at least one byte.
func (d *decoder) length() int {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > uint64(len(d.rest)-n) {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return int(v)
}

func (d *decoder) bytes() []byte {
	n := d.length()
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) text() string { return string(d.bytes()) }

func (d *decoder) texts() (all []string) {
	for n := d.length(); n > 0 && !d.bad; n-- {
		all = append(all, d.text())
	}
	return all
}

func (d *decoder) history() *deathHistory {
	p := &deathHistory{published: int(d.number()), first: d.death()}
	for n := d.length(); n > 0 && !d.bad; n-- {
		p.deaths = append(p.deaths, d.death())
	}
	return p
}

func (d *decoder) death() death {
	return death{
		queue: d.text(), reason: Reason(d.text()), count: d.number(), time: time.Unix(0, d.number()),
		exchange: d.text(), keys: d.texts(), expiration: d.text(),
	}
}

func (d *decoder) fail() { d.rest, d.bad = nil, true }
