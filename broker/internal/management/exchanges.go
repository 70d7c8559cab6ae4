package management

import (
	"cmp"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// defaultExchange is the name of the default exchange in paths and permissions.
const defaultExchange = "amq.default"

func (h *Handler) exchanges() {
	h.handle("GET /api/exchanges", anyone, listExchanges)
	h.handle("GET /api/exchanges/{vhost}", anyone, listExchanges)
	h.handle("GET /api/exchanges/{vhost}/{exchange}", anyone, getExchange)
	h.handle("PUT /api/exchanges/{vhost}/{exchange}", anyone, putExchange)
	h.handle("DELETE /api/exchanges/{vhost}/{exchange}", anyone, deleteExchange)
	h.handle("POST /api/exchanges/{vhost}/{exchange}/publish", anyone, publishTo)
	h.handle("GET /api/exchanges/{vhost}/{exchange}/bindings/source", anyone, exchangeBindings(
		func(b vhost.BindingInfo, name string) bool { return b.Source == name }))
	h.handle("GET /api/exchanges/{vhost}/{exchange}/bindings/destination", anyone, exchangeBindings(
		func(b vhost.BindingInfo, name string) bool { return b.ToExchange && b.Destination == name }))
}

// describeExchange returns the declared properties of an exchange.
func describeExchange(v *vhost.VHost, x vhost.ExchangeInfo) fields {
	exchange := fields{
		"name": x.Name, "vhost": v.Name(), "type": string(x.Kind), "durable": x.Durable, "auto_delete": x.AutoDelete,
		"internal": x.Internal, "arguments": arguments(x.Arguments),
	}
	if policy, _ := x.Applied.Names(); policy != "" {
		exchange["policy"] = policy
	}
	return exchange
}

// exchangeStatus returns an element of GET /api/exchanges.
func exchangeStatus(v *vhost.VHost, x vhost.ExchangeInfo) fields {
	described := describeExchange(v, x)
	if n, ok := x.Delayed(); ok {
		described["messages_delayed"] = n
	}
	return described
}

func listExchanges(c *call) (any, error) {
	vhosts, err := c.visible()
	if err != nil {
		return nil, err
	}
	return pages(func(yield func(element) bool) {
		for _, v := range vhosts {
			for _, x := range v.Exchanges() {
				if !yield(func() fields { return exchangeStatus(v, x) }) {
					return
				}
			}
		}
	}), nil
}

// exchangeName returns the name of the exchange to which a path segment refers.
func exchangeName(text string) string {
	if text == defaultExchange {
		return ""
	}
	return text
}

// predeclared reports whether the name of an exchange is reserved for exchanges that the broker creates.
func predeclared(name string) bool { return name == "" || strings.HasPrefix(name, "amq.") }

// exchange returns the exchange in the path.
func (c *call) exchange() (*vhost.VHost, vhost.ExchangeInfo, error) {
	v, err := c.vhost()
	if err != nil {
		return nil, vhost.ExchangeInfo{}, err
	}
	x, known := v.Exchange(exchangeName(c.PathValue("exchange")))
	if !known {
		return nil, x, notFound
	}
	return v, x, nil
}

// getExchange returns one exchange. The lists of publishers are empty, because RabbitMQ fills them only if it
// collects detailed statistics, which is not the default.
func getExchange(c *call) (any, error) {
	v, x, err := c.exchange()
	if err != nil {
		return nil, err
	}
	return exchangeStatus(v, x).with(fields{"incoming": []fields{}, "outgoing": []fields{}}), nil
}

// exchangeSettings is the body of a request that declares an exchange.
type exchangeSettings struct {
	Type       string    `json:"type"`
	Durable    flag      `json:"durable"`
	AutoDelete flag      `json:"auto_delete"`
	Internal   flag      `json:"internal"`
	Arguments  arguments `json:"arguments"`
}

func putExchange(c *call) (any, error) {
	v, err := c.vhostToChange()
	if err != nil {
		return nil, err
	}
	var s exchangeSettings
	if err := c.decode(&s); err != nil {
		return nil, err
	}
	name := exchangeName(c.PathValue("exchange"))
	if err := cmp.Or(c.mayExchange(v, access.Configure, name), c.mayForward(v, name, s.Arguments, "alternate-exchange")); err != nil {
		return nil, err
	}
	_, existed := v.Exchange(name)
	return stored(existed), v.DeclareExchange(s.declaration(name))
}

func (s *exchangeSettings) declaration(name string) *amqpwire.ExchangeDeclare {
	return &amqpwire.ExchangeDeclare{
		Exchange: name, Type: cmp.Or(s.Type, "direct"), Durable: bool(s.Durable), AutoDelete: bool(s.AutoDelete),
		Internal: bool(s.Internal), Arguments: amqpwire.Table(s.Arguments),
	}
}

// mayForward checks the permissions for the argument arg, which makes the named queue or exchange forward messages to
// another exchange. The user needs read permission on the named object and write permission on the other exchange.
func (c *call) mayForward(v *vhost.VHost, name string, args arguments, arg string) error {
	target, given := amqpwire.Table(args).Get(arg)
	exchange, ok := target.(string)
	if !given || !ok { // the declaration later rejects an argument of the wrong type
		return nil
	}
	return cmp.Or(c.may(v, access.Read, name), c.mayExchange(v, access.Write, exchange))
}

func deleteExchange(c *call) (any, error) {
	v, x, err := c.exchange()
	if err != nil {
		return nil, err
	}
	if err := c.mayExchange(v, access.Configure, x.Name); err != nil {
		return nil, err
	}
	if predeclared(x.Name) {
		return nil, accessRefused
	}
	return done{}, v.DeleteExchange(x.Name, c.URL.Query().Get("if-unused") == "true")
}
