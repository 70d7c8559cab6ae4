package management

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"net/url"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

func (h *Handler) bindings() {
	h.handle("GET /api/bindings", anyone, listBindings)
	h.handle("GET /api/bindings/{vhost}", anyone, listBindings)
	for _, to := range []string{"q", "e"} {
		path := "/api/bindings/{vhost}/e/{source}/" + to + "/{destination}"
		toExchange := to == "e"
		h.handle("GET "+path, anyone, func(c *call) (any, error) {
			_, found, err := c.between(toExchange)
			return found, err
		})
		h.handle("POST "+path, anyone, func(c *call) (any, error) { return postBinding(c, toExchange) })
		h.handle("GET "+path+"/{props}", anyone, func(c *call) (any, error) {
			_, b, err := c.binding(toExchange)
			return b, err
		})
		h.handle("DELETE "+path+"/{props}", anyone, func(c *call) (any, error) { return deleteBinding(c, toExchange) })
	}
}

// bindingInfo is a binding. Its properties key tells it from others between the same two.
type bindingInfo struct {
	Source          string    `json:"source"`
	VHost           string    `json:"vhost"`
	Destination     string    `json:"destination"`
	DestinationType string    `json:"destination_type"`
	RoutingKey      string    `json:"routing_key"`
	Arguments       arguments `json:"arguments"`
	PropertiesKey   string    `json:"properties_key"`
}

const (
	toQueueType    = "queue"
	toExchangeType = "exchange"
)

func newBindingInfo(v *vhost.VHost, b vhost.BindingInfo) bindingInfo {
	kind := toQueueType
	if b.ToExchange {
		kind = toExchangeType
	}
	return bindingInfo{
		b.Source, v.Name(), b.Destination, kind, b.Key, arguments(b.Arguments), propertiesKey(b.Key, b.Arguments),
	}
}

// propertiesKey is the routing key, escaped, and a hash of the arguments if there are any; ~ stands for nothing at all.
// The hash is not RabbitMQ's, which is of a term in Erlang: a key is to be taken from a listing and given back.
func propertiesKey(key string, args amqpwire.Table) string {
	escaped := strings.ReplaceAll(url.QueryEscape(key), "~", "%7E")
	if len(args) == 0 {
		return cmp.Or(escaped, "~")
	}
	encoded, _ := args.Append(nil) // it could be encoded when the binding was made
	sum := fnv.New32a()
	_, _ = sum.Write(encoded)
	return escaped + "~" + base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
}

// bindingsIn returns all bindings: those of the default exchange, which lead to every queue by its name, first.
func bindingsIn(v *vhost.VHost) listOf[bindingInfo] {
	all := listOf[bindingInfo]{}
	for _, q := range v.Queues() {
		all = append(all, newBindingInfo(v, vhost.BindingInfo{Destination: q.Name(), Key: q.Name()}))
	}
	for _, b := range v.Bindings() {
		all = append(all, newBindingInfo(v, b))
	}
	return all
}

func listBindings(c *call) (any, error) {
	vhosts, err := c.visible()
	if err != nil {
		return nil, err
	}
	all := listOf[bindingInfo]{}
	for _, v := range vhosts {
		all = append(all, bindingsIn(v)...)
	}
	return all, nil
}

func queueBindings(c *call) (any, error) {
	v, q, err := c.queue()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(bindingsIn(v), func(b bindingInfo) bool {
		return b.DestinationType != toQueueType || b.Destination != q.Name()
	}), nil
}

func exchangeBindings(wanted func(b vhost.BindingInfo, name string) bool) endpoint {
	return func(c *call) (any, error) {
		v, x, err := c.exchange()
		if err != nil {
			return nil, err
		}
		return slices.DeleteFunc(bindingsIn(v), func(b bindingInfo) bool {
			return !wanted(vhost.BindingInfo{
				Source: b.Source, Destination: b.Destination, ToExchange: b.DestinationType == toExchangeType,
			}, x.Name)
		}), nil
	}
}

// between returns the bindings that lead from one thing to another. Both must exist.
func (c *call) between(toExchange bool) (*vhost.VHost, listOf[bindingInfo], error) {
	v, err := c.vhost()
	if err != nil {
		return nil, nil, err
	}
	source, destination, kind := exchangeName(c.PathValue("source")), c.PathValue("destination"), toQueueType
	_, known := v.QueueInfo(destination)
	if toExchange {
		kind = toExchangeType
		_, known = v.Exchange(destination)
	}
	if _, sourceKnown := v.Exchange(source); !known || !sourceKnown {
		return nil, nil, notFound
	}
	return v, slices.DeleteFunc(bindingsIn(v), func(b bindingInfo) bool {
		return b.Source != source || b.Destination != destination || b.DestinationType != kind
	}), nil
}

// binding returns the binding of the path. The mux has unescaped its properties key once.
func (c *call) binding(toExchange bool) (*vhost.VHost, bindingInfo, error) {
	v, all, err := c.between(toExchange)
	if err != nil {
		return nil, bindingInfo{}, err
	}
	key := c.PathValue("props")
	for _, b := range all {
		unescaped, _ := url.PathUnescape(b.PropertiesKey)
		if b.PropertiesKey == key || unescaped == key || strings.ReplaceAll(unescaped, "+", " ") == key {
			return v, b, nil
		}
	}
	return nil, bindingInfo{}, notFound
}

// bindingSettings are the body of POST.
type bindingSettings struct {
	RoutingKey string    `json:"routing_key"`
	Arguments  arguments `json:"arguments"`
}

func postBinding(c *call, toExchange bool) (any, error) {
	v, err := c.vhostToChange()
	if err != nil {
		return nil, err
	}
	var s bindingSettings
	if err := c.decode(&s); err != nil {
		return nil, err
	}
	source, destination := exchangeName(c.PathValue("source")), exchangeName(c.PathValue("destination"))
	if err := c.mayBind(v, source, destination, toExchange); err != nil {
		return nil, err
	}
	if toExchange {
		err = v.BindExchange(source, destination, s.RoutingKey, amqpwire.Table(s.Arguments))
	} else {
		err = v.BindQueue(source, destination, s.RoutingKey, amqpwire.Table(s.Arguments), nobody{})
	}
	if err != nil {
		return nil, err
	}
	return created{url.PathEscape(destination) + "/" + url.PathEscape(propertiesKey(s.RoutingKey, amqpwire.Table(s.Arguments)))}, nil
}

func (c *call) mayBind(v *vhost.VHost, source, destination string, toExchange bool) error {
	if toExchange {
		return first(c.mayExchange(v, access.Write, destination), c.mayExchange(v, access.Read, source))
	}
	return first(c.may(v, access.Write, destination), c.mayExchange(v, access.Read, source))
}

func deleteBinding(c *call, toExchange bool) (any, error) {
	v, b, err := c.binding(toExchange)
	if err != nil {
		return nil, err
	}
	if err := c.mayBind(v, b.Source, b.Destination, toExchange); err != nil {
		return nil, err
	}
	if toExchange {
		err = v.UnbindExchange(b.Source, b.Destination, b.RoutingKey, amqpwire.Table(b.Arguments))
	} else {
		err = v.UnbindQueue(b.Source, b.Destination, b.RoutingKey, amqpwire.Table(b.Arguments), nobody{})
	}
	if err != nil {
		return nil, err
	}
	return done{}, nil
}
