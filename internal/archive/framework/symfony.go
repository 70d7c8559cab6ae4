package framework

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

const (
	symfonyStamp = `X-Message-Stamp-Symfony\Component\Messenger\Stamp\`
	symfonySent  = symfonyStamp + "SentToFailureTransportStamp"
)

// symfony: https://symfony.com/doc/current/messenger.html#saving-retrying-failed-messages. The stamps are headers (Symfony serializer) or are in the
// body (PHP serializer). They name the transport, not the queue; but the transport for AMQP publishes a failed message with the name of
// its queue as the routing key (AmqpSender). A message that keeps SentToFailureTransportStamp is discarded after its next failure.
var symfony = framework{
	name: "Symfony Messenger",
	read: func(m message) (failure, bool) {
		f, ok := symfonyHeaders(m)
		if !ok {
			f, ok = symfonyBody(m.Body)
		}
		if key := m.Properties.RoutingKey; key != m.failedQueue {
			f.queue = key
		}
		return f, ok
	},
	owns: named(symfonySent, symfonyStamp+"DelayStamp", symfonyStamp+"RedeliveryStamp", symfonyStamp+"ErrorDetailsStamp"),
	restore: func(c *failed.Content) error {
		if _, ok := symfonyBody(c.Body); ok {
			return errors.New("the body is serialized by PHP and contains SentToFailureTransportStamp, with which its next failure would be discarded " +
				"(retry it with `messenger:failed:retry`, or use the Symfony serializer)")
		}
		return nil
	},
}

// symfonyHeaders reads the stamps in headers.
func symfonyHeaders(m message) (f failure, ok bool) {
	if m.text(symfonySent) == "" {
		return f, false
	}
	var details []struct {
		Class   string `json:"exceptionClass"`
		Message string `json:"exceptionMessage"`
		Flat    struct {
			Trace string `json:"traceAsString"`
		} `json:"flattenException"`
	}
	if json.Unmarshal([]byte(m.text(symfonyStamp+"ErrorDetailsStamp")), &details) == nil && len(details) > 0 {
		last := details[len(details)-1]
		f.kind, f.text, f.stack = last.Class, last.Message, last.Flat.Trace
	}
	var redeliveries []struct {
		Retries int    `json:"retryCount"`
		At      string `json:"redeliveredAt"`
	}
	if json.Unmarshal([]byte(m.text(symfonyStamp+"RedeliveryStamp")), &redeliveries) == nil {
		for _, r := range redeliveries {
			f.attempts = max(f.attempts, r.Retries+1)
			if at := timeOf(r.At); at.After(f.at) {
				f.at = at
			}
		}
	}
	return f, true
}

// symfonyBody reads the stamps in a body that PHP has serialized and escaped with backslashes.
func symfonyBody(body []byte) (f failure, ok bool) {
	text := string(body)
	if !strings.HasPrefix(text, `O:36:\"Symfony\\Component\\Messenger\\Envelope\"`) || !strings.Contains(text, "SentToFailureTransportStamp") {
		return f, false
	}
	return failure{kind: phpString(text, "exceptionClass"), text: phpString(text, "exceptionMessage")}, true
}

// phpString returns the string after the name of a property, or "".
func phpString(text, property string) string {
	i := strings.LastIndex(text, property+`\";s:`)
	if i < 0 {
		return ""
	}
	_, rest, _ := strings.Cut(text[i+len(property)+len(`\";s:`):], `:\"`)
	value, _, found := strings.Cut(rest, `\";`)
	if !found {
		return ""
	}
	return strings.NewReplacer(`\\`, `\`, `\'`, `'`, `\"`, `"`).Replace(value)
}
