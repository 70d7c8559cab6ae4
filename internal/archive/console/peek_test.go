package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// An operator looks at the first messages of a queue and sees the cost before. A look that counts as a failed delivery needs a
// consent, a look that could drop the message is refused, and the audit log contains each look.
func TestPeekQueue(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, apiURL string) {
		broker, err := reprise.Dial(t.Context(), b.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer broker.Close(t.Context())
		plain, limited := testkit.Name(t, "peek"), testkit.Name(t, "limited")
		for queue, limit := range map[string]int64{plain: 20, limited: 3} {
			args := topology.Table{"x-queue-type": "quorum", "x-delivery-limit": limit}
			if err := broker.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: queue, Args: args}}}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { deleteQueue(t, b.URL, queue) })
			for _, body := range []string{`{"card": "4111"}`, "second"} {
				if err := broker.Publish(t.Context(), &reprise.Message{RoutingKey: queue, Body: []byte(body), MessageID: "m-" + body[:1], Headers: topology.Table{"secret": "hush"}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		list, secrets := tokens()
		c := newConsole(t, Config{
			Tokens: list, Broker: func() *reprise.Client { return broker },
			Management: &mgmtapi.API{URL: apiURL, User: "guest", Password: "guest", Client: testkit.HTTPClient(t)},
		})
		d := newCheckedConsole(t, c)
		operator, viewer := bearer(secrets[Operate]), bearer(secrets[View])
		counts := b.Version == "3.10"

		refused(t, ask(t, d, "POST", "/api/v1/queues/peek", api.Peek{Queue: api.Text(plain)}, viewer), http.StatusForbidden, "")
		refused(t, ask(t, d, "POST", "/api/v1/queues/peek", api.Peek{Queue: api.Text(plain), Limit: 33, Counts: true}, operator), http.StatusBadRequest, "limit")
		dry := get[api.Peeks](t, ask(t, d, "POST", "/api/v1/queues/peek?dry_run=true", api.Peek{Queue: api.Text(plain)}, operator))
		if dry.Ready != 2 || dry.Counts != counts || dry.Cost == "" || len(dry.Messages) != 0 || !dry.DryRun {
			t.Errorf("dry run: got %+v", dry)
		}
		if counts {
			refused(t, ask(t, d, "POST", "/api/v1/queues/peek", api.Peek{Queue: api.Text(plain)}, operator), http.StatusConflict, "failed delivery")
			refused(t, ask(t, d, "POST", "/api/v1/queues/peek", api.Peek{Queue: api.Text(limited), Counts: true}, operator), http.StatusConflict, "delivery limit of 3")
		}
		got := get[api.Peeks](t, ask(t, d, "POST", "/api/v1/queues/peek", api.Peek{Queue: api.Text(plain), Limit: 5, Counts: true}, operator))
		if len(got.Messages) != 2 || string(got.Messages[1].Body) != "second" {
			t.Errorf("peek: got %+v", got)
		}
		form := ask(t, c, "GET", "/queues/peek?queue="+url.QueryEscape(plain), nil, operator).Body.String()
		if !strings.Contains(form, "2 ready messages") || strings.Contains(form, `name="counts"`) != counts {
			t.Errorf("form: got %s", form)
		}
		status, _, page := post(t, c, "/queues/peek", url.Values{"queue": {plain}, "limit": {"2"}, "counts": {"yes"}}, operator)
		if status != http.StatusOK || !strings.Contains(page, "second") || !strings.Contains(page, "m-{") || !strings.Contains(page, "the default exchange") {
			t.Errorf("page: got %d, %s", status, page)
		}
		acts, _, err := c.cfg.Archive.Acts(t.Context(), store.ActFilter{Text: "peek"}, store.Page{})
		if err != nil || len(acts) != 2 || acts[0].Details["queue"] != plain || acts[0].Actor != "operate-er" {
			t.Errorf("audit log: got %+v, %v", acts, err)
		}
	})
}

func deleteQueue(t *testing.T, broker, queue string) {
	t.Helper()
	conn, err := amqp.Dial(broker)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDelete(queue, false, false, false)
	}
	if err != nil {
		t.Error(err)
	}
}
