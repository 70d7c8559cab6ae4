package rabbitholetest

import (
	"net/http"
	"slices"
	"testing"
	"time"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// published is the maximum duration until the management API contains a change. RabbitMQ publishes statistics every five seconds.
const published = 2 * time.Minute

// client is a client of a broker's management API.
type client struct {
	*rabbithole.Client
	amqp, api string // URLs; api does not include the path /api
	transport http.RoundTripper
}

// each runs a test as two subtests, with the embedded broker and with RabbitMQ, and with a new virtual host.
func each(t *testing.T, test func(t *testing.T, c client, vhost string)) {
	run := func(name string, start func(t *testing.T) (amqp, api string)) {
		t.Run(name, func(t *testing.T) {
			c := client{transport: testkit.HTTPClient(t).Transport}
			c.amqp, c.api = start(t)
			c.Client = c.as(t, "guest", "guest")
			vhost := testkit.Name(t, "rabbithole")
			done(t, 201)(c.PutVhost(vhost, rabbithole.VhostSettings{}))
			t.Cleanup(func() { done(t, 204)(c.DeleteVhost(vhost)) })
			test(t, c, vhost)
		})
	}
	run("embedded", func(t *testing.T) (amqp, api string) {
		b, api := testkit.EmbeddedManaged(t, broker.Config{})
		return b.URL, api
	})
	for _, b := range testkit.RabbitMQs() {
		if b.Version == "4.3" {
			run(b.Name, func(t *testing.T) (amqp, api string) {
				b.Require(t)
				return b.URL, b.ManagementURL(t)
			})
		}
	}
}

// as returns a client of the same API for another user.
func (c client) as(t *testing.T, user, password string) *rabbithole.Client {
	t.Helper()
	other := get[*rabbithole.Client](t)(rabbithole.NewClient(c.api, user, password))
	other.SetTransport(c.transport)
	return other
}

func get[T any](t *testing.T) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// done returns a function that fails the test unless the response has one of the wanted statuses.
func done(t *testing.T, wanted ...int) func(*http.Response, error) {
	t.Helper()
	return func(r *http.Response, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if slices.Contains(wanted, r.StatusCode) {
			return
		}
		t.Fatalf("status: got %s, want %d", r.Status, wanted)
	}
}

func TestTopology(t *testing.T) {
	each(t, func(t *testing.T, c client, vhost string) {
		done(t, 201)(c.DeclareExchange(vhost, "x/1", rabbithole.ExchangeSettings{Type: "topic", Durable: true}))
		done(t, 204)(c.DeclareExchange(vhost, "x/1", rabbithole.ExchangeSettings{Type: "topic", Durable: true}))
		done(t, 201)(c.DeclareQueue(vhost, "q 1", rabbithole.QueueSettings{
			Type: "quorum", Durable: true, Arguments: map[string]any{"x-delivery-limit": 3},
		}))
		binding := rabbithole.BindingInfo{
			Source: "x/1", Destination: "q 1", DestinationType: "queue", RoutingKey: "a.*", Arguments: map[string]any{"n": 1},
		}
		done(t, 201)(c.DeclareBinding(vhost, binding))

		q := get[*rabbithole.DetailedQueueInfo](t)(c.GetQueue(vhost, "q 1"))
		if q.Name != "q 1" || q.Type != "quorum" || !q.Durable || q.Vhost != vhost || q.Arguments["x-delivery-limit"] != 3.0 {
			t.Errorf("unexpected queue: %+v", q)
		}
		x := get[*rabbithole.DetailedExchangeInfo](t)(c.GetExchange(vhost, "x/1"))
		if x.Type != "topic" || !x.Durable {
			t.Errorf("unexpected exchange: %+v", x)
		}
		all := get[[]rabbithole.BindingInfo](t)(c.ListQueueBindingsBetween(vhost, "x/1", "q 1"))
		if len(all) != 1 || all[0].RoutingKey != "a.*" || all[0].Arguments["n"] != 1.0 {
			t.Fatalf("unexpected bindings: %+v", all)
		}
		if n := len(get[[]rabbithole.BindingInfo](t)(c.ListBindingsIn(vhost))); n != 2 {
			t.Errorf("bindings: got %d, want 2: the binding and the default binding", n)
		}
		binding.PropertiesKey = all[0].PropertiesKey
		done(t, 204)(c.DeleteBinding(vhost, binding))
		if left := get[[]rabbithole.BindingInfo](t)(c.ListQueueBindingsBetween(vhost, "x/1", "q 1")); len(left) != 0 {
			t.Errorf("objects still exist: %+v", left)
		}
		done(t, 204)(c.PurgeQueue(vhost, "q 1"))
		done(t, 204)(c.DeleteQueue(vhost, "q 1"))
		done(t, 204)(c.DeleteExchange(vhost, "x/1"))
		if left := get[[]rabbithole.QueueInfo](t)(c.ListQueuesIn(vhost)); len(left) != 0 {
			t.Errorf("objects still exist: %+v", left)
		}
		if _, err := c.GetQueue(vhost, "q 1"); err == nil {
			t.Error("deleted queue still exists")
		}
	})
}

func TestConnections(t *testing.T) {
	each(t, func(t *testing.T, c client, vhost string) {
		conn := get[*amqp.Connection](t)(amqp.DialConfig(c.amqp, amqp.Config{Vhost: vhost, Properties: amqp.Table{"connection_name": t.Name()}}))
		t.Cleanup(func() { _ = conn.Close() })
		closed := conn.NotifyClose(make(chan *amqp.Error, 1))
		ch := get[*amqp.Channel](t)(conn.Channel())
		get[amqp.Queue](t)(ch.QueueDeclare("q", true, false, false, false, nil))
		get[<-chan amqp.Delivery](t)(ch.Consume("q", "tag", false, false, false, false, nil))

		var mine []rabbithole.ConnectionInfo
		testkit.Eventually(t, published, func() bool {
			mine = get[[]rabbithole.ConnectionInfo](t)(c.ListVhostConnections(vhost))
			return len(mine) == 1 && mine[0].Channels == 1
		})
		if one := get[*rabbithole.ConnectionInfo](t)(c.GetConnection(mine[0].Name)); one.User != "guest" || one.State != "running" ||
			one.ClientProperties["connection_name"] != t.Name() {
			t.Errorf("unexpected connection: %+v", one)
		}
		testkit.Eventually(t, published, func() bool {
			all := get[[]rabbithole.ConsumerInfo](t)(c.ListConsumersIn(vhost))
			return len(all) == 1 && all[0].ConsumerTag == "tag" && all[0].Queue.Name == "q"
		})
		done(t, 204)(c.CloseConnection(mine[0].Name))
		e := <-closed
		if e == nil || e.Code != 320 || e.Reason != "CONNECTION_FORCED - Closed via management plugin" {
			t.Errorf("connection closed with %v", e)
		}
		testkit.Eventually(t, published, func() bool {
			return len(get[[]rabbithole.ConnectionInfo](t)(c.ListVhostConnections(vhost))) == 0
		})
	})
}

func TestUsers(t *testing.T) {
	each(t, func(t *testing.T, c client, vhost string) {
		user := vhost + "-user"
		done(t, 201)(c.PutUser(user, rabbithole.UserSettings{Password: "s3cret", Tags: rabbithole.UserTags{"management"}}))
		t.Cleanup(func() { done(t, 204, 404)(c.DeleteUser(user)) })
		u := get[*rabbithole.UserInfo](t)(c.GetUser(user))
		if u.HashingAlgorithm != "rabbit_password_hashing_sha256" || u.PasswordHash == "" || len(u.Tags) != 1 {
			t.Errorf("unexpected user: %+v", u)
		}
		done(t, 204)(c.PutUser(user, rabbithole.UserSettings{
			PasswordHash:     rabbithole.Base64EncodedSaltedPasswordHashSHA256("other"),
			HashingAlgorithm: rabbithole.HashingAlgorithmSHA256, Tags: rabbithole.UserTags{"management"},
		}))
		if w, err := c.as(t, user, "other").Whoami(); err != nil || w.Name != user {
			t.Errorf("login with a hash from another client: got %+v, %v", w, err)
		}
		done(t, 201)(c.UpdatePermissionsIn(vhost, user, rabbithole.Permissions{Configure: ".*", Write: ".*", Read: "^a"}))
		p := get[rabbithole.PermissionInfo](t)(c.GetPermissionsIn(vhost, user))
		if p.Read != "^a" {
			t.Errorf("unexpected permission: %+v", p)
		}
		if all := get[[]rabbithole.PermissionInfo](t)(c.ListPermissionsOf(user)); len(all) != 1 {
			t.Errorf("unexpected permissions: %+v", all)
		}
		done(t, 204)(c.ClearPermissionsIn(vhost, user))
		done(t, 204)(c.DeleteUser(user))
		if _, err := c.GetUser(user); err == nil {
			t.Error("deleted user still exists")
		}
	})
}

func TestReads(t *testing.T) {
	each(t, func(t *testing.T, c client, vhost string) {
		o := get[*rabbithole.Overview](t)(c.Overview())
		if o.RabbitMQVersion == "" || len(o.ExchangeTypes) < 4 || o.Node == "" {
			t.Errorf("unexpected overview: %+v", o)
		}
		nodes := get[[]rabbithole.NodeInfo](t)(c.ListNodes())
		if len(nodes) != 1 || !nodes[0].IsRunning || nodes[0].Name != o.Node {
			t.Errorf("unexpected nodes: %+v", nodes)
		}
		get[*rabbithole.NodeInfo](t)(c.GetNode(o.Node))
		if v := get[*rabbithole.VhostInfo](t)(c.GetVhost(vhost)); v.Name != vhost {
			t.Errorf("unexpected virtual host: %+v", v)
		}
		if w := get[*rabbithole.WhoamiInfo](t)(c.Whoami()); w.Name != "guest" {
			t.Errorf("unexpected current user: %+v", w)
		}
		if s := get[rabbithole.ResourceAlarmCheckStatus](t)(c.HealthCheckAlarms()); s.Status != "ok" {
			t.Errorf("unexpected alarms: %+v", s)
		}
		get[[]rabbithole.Policy](t)(c.ListPolicies())
		get[[]rabbithole.ChannelInfo](t)(c.ListChannels())
		get[[]rabbithole.VhostInfo](t)(c.ListVhosts())
		protocols := get[[]string](t)(c.EnabledProtocols())
		if len(protocols) < 2 {
			t.Errorf("unexpected protocols: %v", protocols)
		}
		done(t, 201)(c.DeclareQueue(vhost, "q", rabbithole.QueueSettings{Durable: true}))
		d := get[*rabbithole.ExportedDefinitions](t)(c.ListVhostDefinitions(vhost))
		if d.Queues == nil || len(*d.Queues) != 1 {
			t.Errorf("unexpected definitions: %+v", d)
		}
		get[*rabbithole.ExportedDefinitions](t)(c.ListDefinitions())
	})
}
