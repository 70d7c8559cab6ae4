package managementtest

import (
	"errors"
	"net/url"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// dialAs creates a user with permissions in a virtual host, and connects as this user.
func (b *target) dialAs(t *testing.T, vhost, tags, permissions string) (user string, conn *amqp.Connection) {
	t.Helper()
	user = testkit.Name(t, "user")
	b.must(t, "PUT", "/api/users/"+user, `{"password":"p","tags":"`+tags+`"}`)
	t.Cleanup(func() { b.must(t, "DELETE", "/api/users/"+user, "") })
	b.must(t, "PUT", "/api/permissions/"+url.PathEscape(vhost)+"/"+user, permissions)
	config := amqp.Config{Vhost: vhost, SASL: []amqp.Authentication{&amqp.PlainAuth{Username: user, Password: "p"}}}
	conn = get[*amqp.Connection](t)(amqp.DialConfig(b.amqp, config))
	t.Cleanup(func() { _ = conn.Close() })
	return user, conn
}

func codeOf(err error) int {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return e.Code
	}
	return 0
}

// A passive declaration needs any of the three permissions for the name, whether or not the object exists.
func TestPassiveDeclarationNeedsAPermission(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		vhost := b.vhost(t)
		b.must(t, "PUT", "/api/queues/"+url.PathEscape(vhost)+"/q", `{"durable":true}`)
		for permissions, want := range map[string]map[string]int{
			`{"configure":"^$","write":"^$","read":"^$"}`:                {"q": 403, "missing": 403, "amq.topic": 403, "nox": 403, "": 403},
			`{"configure":"^q$","write":"^$","read":"^$"}`:               {"q": 0, "missing": 403, "amq.topic": 403},
			`{"configure":"^$","write":"^q$|amq.topic","read":"^$"}`:     {"q": 0, "missing": 403, "amq.topic": 0},
			`{"configure":"^$","write":"^$","read":"q|missing|nox|amq"}`: {"q": 0, "missing": 404, "amq.topic": 0, "nox": 404, "": 403},
		} {
			_, conn := b.dialAs(t, vhost, "", permissions)
			for name, code := range want {
				ch := get[*amqp.Channel](t)(conn.Channel())
				var err error
				if name == "q" || name == "missing" {
					_, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
				} else {
					err = ch.ExchangeDeclarePassive(name, "topic", true, false, false, false, nil)
				}
				if codeOf(err) != code {
					t.Errorf("%s: passive declaration of %q: got %v, want code %d", permissions, name, err, code)
				}
			}
		}
	})
}

// Only users with the tag impersonator may publish with the property user-id of another user.
func TestImpersonator(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		vhost := b.vhost(t)
		all := `{"configure":".*","write":".*","read":".*"}`
		for tags, want := range map[string]int{"": 406, "administrator": 406, "impersonator": 0, "management,impersonator": 0} {
			_, conn := b.dialAs(t, vhost, tags, all)
			ch := get[*amqp.Channel](t)(conn.Channel())
			closed := ch.NotifyClose(make(chan *amqp.Error, 1))
			must(t, ch.Publish("amq.fanout", "", false, false, amqp.Publishing{UserId: "somebody"}))
			q, err := ch.QueueDeclare("", false, false, true, false, nil)
			got := 0
			if err != nil {
				got = (<-closed).Code
			} else if q.Name == "" {
				t.Error("queue has no name")
			}
			if got != want {
				t.Errorf("tags %q: got code %d, want %d", tags, got, want)
			}
		}
	})
}
