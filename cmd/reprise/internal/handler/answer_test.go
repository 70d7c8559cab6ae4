package handler

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
)

// A message has the facts that other handlers receive, under the names of the variables.
func TestProcessMessage(t *testing.T) {
	m := full()
	m.Headers["bytes"], m.Headers["list"], m.Headers["traceparent"] = []byte{0xff}, []any{int64(1), "a<b"}, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var b bytes.Buffer
	writeMessage(t.Context(), &b, 7, m)
	const want = `{"id":7,"queue":"orders","exchange":"shop","routing_key":"order.new","attempt":3,"message_id":"m-1","correlation_id":"c-1",` +
		`"reply_to":"answers","type":"order","app_id":"till","user_id":"guest","priority":7,"timestamp":"2026-01-02T02:04:05Z",` +
		`"expiration":90000,"redelivered":true,"content_type":"text/plain; charset=utf-8","content_encoding":"identity",` +
		`"first_failed":"2026-01-02T03:05:00Z","last_error":"second","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",` +
		`"headers":{"bytes":"/w==","list":[1,"a<b"],"tenant-id":"acme","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tries":3},"body":"the body"}` + "\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	writeMessage(t.Context(), &b, 1, &reprise.Delivery{Message: reprise.Message{Body: []byte{0xff, 0}}})
	if got := b.String(); got != `{"id":1,"body_base64":"/wA="}`+"\n" {
		t.Errorf("got %s", got)
	}
}

// Each message is one line of valid JSON, from which a handler can restore the body.
func FuzzProcessMessage(f *testing.F) {
	f.Add([]byte("line\nbreak\u2028\x00"), "key", "header")
	f.Add([]byte("\xff"), "\xff\n", "\"")
	f.Fuzz(func(t *testing.T, body []byte, key, header string) {
		var b bytes.Buffer
		m := &reprise.Delivery{Message: reprise.Message{Body: body, RoutingKey: key, Headers: map[string]any{header: header}}}
		writeMessage(t.Context(), &b, 1, m)
		if n := bytes.Count(b.Bytes(), []byte("\n")); n != 1 || b.Bytes()[b.Len()-1] != '\n' {
			t.Fatalf("got %d lines: %q", n, b.String())
		}
		var got struct {
			Body       string
			BodyBase64 []byte `json:"body_base64"`
			RoutingKey string `json:"routing_key"`
		}
		if err := json.Unmarshal(b.Bytes(), &got); err != nil {
			t.Fatalf("%v: %s", err, b.String())
		}
		if utf8.Valid(body) {
			got.BodyBase64 = []byte(got.Body)
		}
		if !bytes.Equal(got.BodyBase64, body) || got.RoutingKey != strings.ToValidUTF8(key, "\ufffd") && utf8.ValidString(key) {
			t.Errorf("got %+v from %s", got, b.String())
		}
	})
}

// Only a line that is an object with the ID of a message and the result done acknowledges the message, in any output, however
// it is divided.
func FuzzProcessOutput(f *testing.F) {
	for _, line := range []string{
		`{"ready":true}`, `{"id":1,"result":"done"}`, `{"id":2,"result":"park","error":"e"}`, `{"id":1,"result":"retry","retry_after":1e9}`,
		`{"id":3,"result":"done"}`, `{"ID":1,"Result":"done"}`, `{"id":1,"result":"done"}{}`, "\xff", `{"id":1,"id":2,"result":"done"}`,
	} {
		f.Add([]byte(line+"\n"+line), uint8(3))
	}
	f.Fuzz(func(t *testing.T, output []byte, size uint8) {
		synctest.Test(t, func(t *testing.T) {
			p := newProcess(t, ProcessConfig{})
			c := newChild(p)
			c.program = program{terminate: func() {}, kill: func() {}}
			close(c.started)
			replies := [2]chan reply{make(chan reply, 1), make(chan reply, 1)}
			for i := range replies {
				c.send(t.Context(), &reprise.Delivery{}, replies[i])
			}
			for rest := output; len(rest) > 0; {
				n := min(int(size)+1, len(rest))
				if written, err := c.Write(rest[:n]); written != n || err != nil {
					t.Fatal(written, err)
				}
				rest = rest[n:]
			}
			p.forget(c)
			close(c.ended)
			p.running.Wait()
			for i := range replies {
				select {
				case r := <-replies[i]:
					if r.answer.outcome(false, nil) == nil && !confirms(output, float64(i+1)) {
						t.Errorf("message %d is acknowledged by %q", i+1, output)
					}
				default:
				}
			}
		})
	})
}

// confirms reports whether a line is an object with this id and the result done.
func confirms(output []byte, id float64) bool {
	for line := range bytes.Lines(output) {
		var object map[string]any
		if bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, &object) == nil {
			folded := map[string]any{}
			for name, value := range object {
				folded[strings.ToLower(name)] = value
			}
			if folded["id"] == id && folded["result"] == "done" {
				return true
			}
		}
	}
	return false
}
