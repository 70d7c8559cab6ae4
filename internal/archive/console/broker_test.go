package console

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// newBroker starts a broker, declares the queue orders, and returns a value for Config.Broker.
func newBroker(t *testing.T) func() *reprise.Client {
	t.Helper()
	c, err := reprise.Dial(t.Context(), testkit.Embedded(t).URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: "orders"}}}); err != nil {
		t.Fatal(err)
	}
	return func() *reprise.Client { return c }
}

// The audit log records each confirmed message. For an unroutable message, the API returns an error.
func TestPublishAPI(t *testing.T) {
	list, secrets := tokens()
	broker := newBroker(t)
	c := newConsole(t, Config{Tokens: list, Broker: broker})
	d := newCheckedConsole(t, c)
	text := `{"id": 7}`
	message := api.Publish{
		Target: api.Target{RoutingKey: "orders"}, Text: &text, Headers: api.Headers{"n": int32(7)},
		Properties: api.Properties{ContentType: new(api.Text("application/json")), MessageID: new(api.Text("m-1")), Priority: new(uint8(3))},
	}
	if got := get[api.Published](t, ask(t, d, "POST", "/api/v1/publish", message, bearer(secrets[Operate]))); got.MessageID != "m-1" {
		t.Errorf("published message: got %+v, want MessageID m-1", got)
	}
	var found []*reprise.Delivery
	if err := broker().Peek(t.Context(), "orders", 10, func(m *reprise.Delivery) { found = append(found, m) }); err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || string(found[0].Body) != text || found[0].Headers["n"] != int32(7) || found[0].ContentType != "application/json" || found[0].Priority != 3 {
		t.Errorf("messages in the queue: got %+v, want 1 with the published content", found)
	}
	for _, wrong := range []struct {
		change func(*api.Publish)
		status int
	}{
		{func(p *api.Publish) { p.RoutingKey = "none" }, http.StatusUnprocessableEntity},
		{func(p *api.Publish) { p.Exchange = "none" }, http.StatusUnprocessableEntity},
		{func(p *api.Publish) { p.RoutingKey = "" }, http.StatusBadRequest},
		{func(p *api.Publish) { p.Body = []byte("x") }, http.StatusBadRequest},
		{func(p *api.Publish) { p.Properties.UserID = "x" }, http.StatusBadRequest},
		{func(p *api.Publish) { p.Headers = api.Headers{"h": strings.Repeat("h", 200_000)} }, http.StatusUnprocessableEntity},
	} {
		p := message
		wrong.change(&p)
		refused(t, ask(t, d, "POST", "/api/v1/publish", p, bearer(secrets[Operate])), wrong.status, "")
	}
	acts, _, err := c.cfg.Archive.Acts(t.Context(), store.ActFilter{}, store.Page{})
	if err != nil || len(acts) != 1 || acts[0].Verb != "publish" || acts[0].Actor != "operate-er" || acts[0].Details["routing_key"] != "orders" || acts[0].Details["message_id"] != "m-1" {
		t.Errorf("audit log: got %+v, %v", acts, err)
	}
	if n, err := broker().Depth(t.Context(), "orders"); n != 1 || err != nil {
		t.Errorf("depth: got %d, want 1; error %v", n, err)
	}
}

func TestPurgeQueue(t *testing.T) {
	broker := newBroker(t)
	c := newConsole(t, Config{Broker: broker})
	d := newCheckedConsole(t, c)
	var bodies []string
	for _, body := range []string{"a", "b", "c"} {
		bodies = append(bodies, body)
		if err := broker().Publish(t.Context(), &reprise.Message{RoutingKey: "orders", Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := get[api.Done](t, ask(t, d, "POST", "/api/v1/queues/purge?dry_run=true", api.PurgeQueue{Queue: "orders"})); got != (api.Done{Messages: 3, DryRun: true}) {
		t.Errorf("dry run: got %+v, want %+v", got, api.Done{Messages: 3, DryRun: true})
	}
	for _, wrong := range []api.PurgeQueue{{Queue: "orders", Reason: "x"}, {Queue: "orders", Limit: 1}, {Limit: 1, Reason: "x"}} {
		refused(t, ask(t, d, "POST", "/api/v1/queues/purge", wrong), http.StatusBadRequest, "")
	}
	for _, path := range []string{"purge", "purge?dry_run=true", "peek", "peek?dry_run=true"} {
		var body any = api.PurgeQueue{Queue: "orders.part.0-of-2.held", Limit: 1, Reason: "x"}
		if strings.HasPrefix(path, "peek") {
			body = api.Peek{Queue: "orders.part.0-of-2.held"}
		}
		refused(t, ask(t, d, "POST", "/api/v1/queues/"+path, body), http.StatusConflict, "reprise keys")
	}
	refused(t, ask(t, d, "POST", "/api/v1/queues/purge", api.PurgeQueue{Queue: "none", Limit: 1, Reason: "x"}), http.StatusNotFound, "none")
	if got := get[api.Done](t, ask(t, d, "POST", "/api/v1/queues/purge", api.PurgeQueue{Queue: "orders", Limit: 2, Reason: "x"})); got.Messages != 2 {
		t.Errorf("purge: got %+v, want Messages 2", got)
	}
	var saved []string
	for m, err := range c.cfg.Archive.Each(t.Context(), failed.Filter{States: []failed.State{failed.Discarded}}) {
		if err != nil {
			t.Fatal(err)
		}
		saved = append(saved, string(m.Body))
	}
	if !slices.Equal(saved, bodies[:2]) {
		t.Errorf("saved messages: got %q, want %q", saved, bodies[:2])
	}
	without := newConsole(t, Config{})
	for _, path := range []string{"/api/v1/queues/purge?dry_run=true", "/api/v1/queues/purge", "/api/v1/publish"} {
		refused(t, ask(t, without, "POST", path, "{}"), http.StatusServiceUnavailable, "not connected to a broker")
	}
}

// The page requires the name of the queue, and purges at most as many messages as it showed.
func TestPurgePage(t *testing.T) {
	list, secrets := tokens()
	broker := newBroker(t)
	c := newConsole(t, Config{Tokens: list, Broker: broker, Topology: []topology.Topology{{Queues: []topology.Queue{{Name: "orders"}}}}})
	admin := bearer(secrets[Admin])
	depth := func() int {
		n, err := broker().Depth(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	publish := func(n int) {
		for range n {
			if err := broker().Publish(t.Context(), &reprise.Message{RoutingKey: "orders", Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	link := linkTo(t, ask(t, c, "GET", "/topology", nil, admin).Body.String(), "/queues/purge")
	if body := ask(t, c, "GET", "/topology", nil, bearer(secrets[Operate])).Body.String(); strings.Contains(body, "/queues/purge") {
		t.Error("the page shows an operator the purge link")
	}
	if body := ask(t, c, "GET", link, nil, admin).Body.String(); !strings.Contains(body, "No messages") || strings.Contains(body, "<button class=\"danger") {
		t.Errorf("page for an empty queue: got %s, want \"No messages\"", body)
	}
	publish(3)
	form := ask(t, c, "GET", link, nil, admin).Body.String()
	if !strings.Contains(form, "Purge 3 messages</h1>") || fieldsOf(form).Encode() != "at_most=3&queue=orders" {
		t.Fatalf("form: got %s, want \"Purge 3 messages</h1>\"", form)
	}
	publish(1)
	fill := func(v url.Values, more ...string) url.Values {
		for i := 0; i < len(more); i += 2 {
			v.Set(more[i], more[i+1])
		}
		return v
	}
	for name, tc := range map[string]struct {
		v    url.Values
		who  func(*http.Request)
		want int
	}{
		"no name":     {fill(fieldsOf(form), "reason", "tested"), admin, http.StatusUnprocessableEntity},
		"other name":  {fill(fieldsOf(form), "reason", "tested", "name", "order"), admin, http.StatusUnprocessableEntity},
		"no reason":   {fill(fieldsOf(form), "reason", " ", "name", "orders"), admin, http.StatusUnprocessableEntity},
		"no number":   {fill(fieldsOf(form), "reason", "tested", "name", "orders", "at_most", "0"), admin, http.StatusBadRequest},
		"no queue":    {fill(fieldsOf(form), "reason", "tested", "name", "none", "queue", "none"), admin, http.StatusNotFound},
		"an operator": {fill(fieldsOf(form), "reason", "tested", "name", "orders"), bearer(secrets[Operate]), http.StatusForbidden},
	} {
		if status, _, body := post(t, c, "/queues/purge", tc.v, tc.who); status != tc.want {
			t.Errorf("%s: status %d, want %d: %s", name, status, tc.want, body)
		}
	}
	if n := depth(); n != 4 {
		t.Fatalf("depth after refused requests: got %d, want 4", n)
	}
	status, location, body := post(t, c, "/queues/purge", fill(fieldsOf(form), "reason", "tested", "name", "orders"), admin)
	if status != http.StatusSeeOther || depth() != 1 {
		t.Fatalf("purge: got status %d, want 303; body %s, got depth %d, want 1", status, body, depth())
	}
	if body := ask(t, c, "GET", location, nil, admin).Body.String(); !strings.Contains(body, "3 messages saved in the archive and purged.") {
		t.Errorf("GET %s: got %s, want \"3 messages saved in the archive and purged.\"", location, body)
	}
	_, location, _ = post(t, c, "/queues/purge", fill(fieldsOf(form), "reason", "tested", "name", "orders", "drop", "yes"), admin)
	if body := ask(t, c, "GET", location, nil, admin).Body.String(); !strings.Contains(body, "1 of 3 messages purged and not saved.") {
		t.Errorf("GET %s: got %s, want \"1 of 3 messages purged and not saved.\"", location, body)
	}
	if n := len(states(t, c.cfg.Archive)); n != 3 || depth() != 0 {
		t.Errorf("got %d saved messages, want 3, got depth %d, want 0", n, depth())
	}
	acts, _, err := c.cfg.Archive.Acts(t.Context(), store.ActFilter{}, store.Page{})
	if err != nil || len(acts) != 2 || acts[0].Actor != "admin-er" || acts[0].Details["saved"] != false || acts[1].Details["queue"] != "orders" {
		t.Errorf("audit log: got %+v, %v", acts, err)
	}
}

// The form retains the input until the message is published. A JSON body is published on one line.
func TestPublishPage(t *testing.T) {
	list, secrets := tokens()
	broker := newBroker(t)
	c := newConsole(t, Config{Tokens: list, Broker: broker, Topology: []topology.Topology{{Queues: []topology.Queue{{Name: "orders"}}}}})
	operator := bearer(secrets[Operate])
	link := linkTo(t, ask(t, c, "GET", "/topology", nil, operator).Body.String(), "/publish")
	if body := ask(t, c, "GET", "/topology", nil, bearer(secrets[View])).Body.String(); strings.Contains(body, "/publish") {
		t.Error("the page shows a viewer the link to the form")
	}
	if body := ask(t, c, "GET", link, nil, operator).Body.String(); !strings.Contains(body, `name="queue" value="orders"`) || !strings.Contains(body, `value="application/json"`) || strings.Contains(body, "data-unsaved") {
		t.Errorf("form: got %s, want the queue and the content type, without data-unsaved", body)
	}
	// The form contains a message ID, so that consumers can detect the duplicate if the form is submitted twice.
	if _, rest, _ := strings.Cut(ask(t, c, "GET", link, nil, operator).Body.String(), `name="message_id"`); !regexp.MustCompile(`^[^>]* value="[A-Z2-7]{26}"`).MatchString(rest) {
		t.Errorf("the form has no message id: %.200s", rest)
	}
	form := url.Values{
		"queue": {"orders"}, "body": {"{\r\n  \"id\": 7, \"sum\":  1.10\r\n}"}, "content_type": {"application/json"}, "message_id": {"m-7"},
		"header_name": {"n", ""}, "header_kind": {"integer", "text"}, "header_value": {"7", ""},
	}
	try := func(change ...string) (int, string, string) {
		v := maps.Clone(form)
		for i := 0; i < len(change); i += 2 {
			v.Set(change[i], change[i+1])
		}
		return post(t, c, "/publish", v, operator)
	}
	for name, tc := range map[string]struct {
		change []string
		status int
		want   string
	}{
		"a preview":        {nil, http.StatusOK, "{\n  &#34;id&#34;: 7,\n  &#34;sum&#34;: 1.10\n}</textarea>"},
		"no queue":         {[]string{"do", "publish", "queue", ""}, http.StatusBadRequest, "Exchange and routing key must not both be empty"},
		"an unknown queue": {[]string{"do", "publish", "queue", "none"}, http.StatusUnprocessableEntity, "the message was not stored"},
		"a wrong header":   {[]string{"do", "publish", "header_value", "x"}, http.StatusUnprocessableEntity, "eader “n”"},
		"broken JSON":      {[]string{"body", "{"}, http.StatusOK, "The body is not valid JSON."},
		"text":             {[]string{"body", "{", "content_type", "text/plain"}, http.StatusOK, "{</textarea>"},
	} {
		status, _, body := try(tc.change...)
		body = strings.ReplaceAll(body, "&#34;n&#34;", "“n”")
		if status != tc.status || !strings.Contains(strings.ToLower(body), strings.ToLower(tc.want)) || !strings.Contains(body, "data-unsaved") || !strings.Contains(body, `value="m-7"`) {
			t.Errorf("%s: status %d, want %d with %q: %s", name, status, tc.status, tc.want, body)
		}
	}
	if n, err := broker().Depth(t.Context(), "orders"); n != 0 || err != nil {
		t.Fatalf("depth after refused requests: got %d, want 0; error %v", n, err)
	}
	status, location, body := try("do", "publish")
	if status != http.StatusSeeOther {
		t.Fatalf("publish: got status %d, want 303; body %s", status, body)
	}
	if body := ask(t, c, "GET", location, nil, operator).Body.String(); !strings.Contains(body, "Message published.") {
		t.Errorf("GET %s: got %s, want \"Message published.\"", location, body)
	}
	var found []*reprise.Delivery
	if err := broker().Peek(t.Context(), "orders", 10, func(m *reprise.Delivery) { found = append(found, m) }); err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || string(found[0].Body) != `{"id":7,"sum":1.10}` || found[0].Headers["n"] != int64(7) || found[0].MessageID != "m-7" {
		t.Errorf("messages in the queue: got %+v, want 1 with the content of the form", found)
	}
	acts, _, err := c.cfg.Archive.Acts(t.Context(), store.ActFilter{}, store.Page{})
	if err != nil || len(acts) != 1 || acts[0].Verb != "publish" || acts[0].Actor != "operate-er" || acts[0].Details["routing_key"] != "orders" {
		t.Errorf("audit log: got %+v, %v", acts, err)
	}
}
