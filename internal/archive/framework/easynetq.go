package framework

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/topology"
)

// easyNetQ: https://github.com/EasyNetQ/EasyNetQ/wiki/Error-Conditions. The body is an envelope with the failed message. A replay sends what
// the program Hosepipe of EasyNetQ sends.
var easyNetQ = framework{
	name: "EasyNetQ",
	read: func(m message) (failure, bool) {
		e, ok := readEasyNetQ(m.Body)
		kind, _, _ := strings.Cut(strings.TrimSpace(e.Exception), "\n")
		f := failure{
			queue: e.Queue, text: strings.TrimSpace(kind), stack: e.Exception,
			at: timeOf(e.DateTime, "2006-01-02T15:04:05.999999999"),
		}
		if e.Queue == "" { // before version 3.1 or so, the envelope has no queue
			f.exchange, f.key = e.Exchange, e.RoutingKey
		}
		return f, ok
	},
	owns: func(string) bool { return false },
	restore: func(c *failed.Content) error {
		e, ok := readEasyNetQ(c.Body)
		if !ok {
			return nil // an edit has replaced the envelope
		}
		body, err := e.body()
		if err != nil {
			return err
		}
		headers := maps.Clone(c.Headers)
		if headers == nil {
			headers = topology.Table{}
		}
		maps.Copy(headers, e.headers())
		c.Body, c.Headers, c.Properties = body, headers, e.properties(c.Properties)
		return nil
	},
}

// easyNetQError is the body of a message in the error queue.
type easyNetQError struct {
	RoutingKey, Exchange, Queue, Exception string
	Message                                *string
	DateTime                               string
	BasicProperties                        *struct {
		ContentType, ContentEncoding, CorrelationID, ReplyTo, MessageID, Type, AppID *string
		Expiration                                                                   json.RawMessage
		Priority                                                                     json.RawMessage
		Timestamp                                                                    json.RawMessage
		Headers                                                                      map[string]any
	}
}

func readEasyNetQ(text []byte) (e easyNetQError, ok bool) {
	if !bytes.Contains(text, []byte(`"BasicProperties"`)) || json.Unmarshal(text, &e) != nil {
		return e, false
	}
	return e, e.Exception != "" && e.Message != nil && e.BasicProperties != nil && (e.Queue != "" || e.RoutingKey != "")
}

// body returns the body of the failed message. By the configuration of EasyNetQ, the envelope contains it as UTF-8 or as base64.
func (e easyNetQError) body() ([]byte, error) {
	text := *e.Message
	isJSON := e.BasicProperties.ContentType != nil && strings.Contains(*e.BasicProperties.ContentType, "json")
	decoded, err := base64.StdEncoding.DecodeString(text)
	switch encoded := err == nil && text != ""; {
	case encoded && isJSON && !json.Valid([]byte(text)):
		return decoded, nil
	case encoded && !isJSON:
		return nil, errors.New("the envelope does not show whether the body is text or base64 (edit the body to what the consumer must receive)")
	}
	if strings.ContainsRune(text, utf8.RuneError) {
		return nil, errors.New("the body was damaged when EasyNetQ stored it as UTF-8 (publish the message again, or edit the body)")
	}
	return []byte(text), nil
}

// headers returns the headers with the types of JSON.
func (e easyNetQError) headers() topology.Table {
	t := topology.Table{}
	for name, v := range e.BasicProperties.Headers {
		switch v := v.(type) {
		case string, bool, nil:
			t[name] = v
		case float64:
			if n := int64(v); float64(n) == v && v > -1<<53 && v < 1<<53 {
				t[name] = n
			} else {
				t[name] = v
			}
		default:
			if text, err := json.Marshal(v); err == nil {
				t[name] = string(text)
			}
		}
	}
	return t
}

// properties returns the properties of the failed message. The destination is that of the envelope.
func (e easyNetQError) properties(envelope failed.Properties) failed.Properties {
	p := failed.Properties{Exchange: envelope.Exchange, RoutingKey: envelope.RoutingKey}
	b := e.BasicProperties
	for from, to := range map[*string]*string{
		b.ContentType: &p.ContentType, b.ContentEncoding: &p.ContentEncoding, b.CorrelationID: &p.CorrelationID, b.ReplyTo: &p.ReplyTo,
		b.MessageID: &p.MessageID, b.Type: &p.Type, b.AppID: &p.AppID,
	} {
		if from != nil && len(*from) < 256 {
			*to = *from
		}
	}
	if n, err := strconv.ParseUint(string(b.Priority), 10, 8); err == nil {
		p.Priority = uint8(n)
	}
	if n, err := strconv.ParseInt(string(b.Timestamp), 10, 64); err == nil && n > 0 && n < 253402300800 { // year 9999
		p.Timestamp = time.Unix(n, 0)
	}
	return p
}
