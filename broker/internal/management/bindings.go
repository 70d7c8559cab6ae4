package management

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"iter"
	"net/url"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

func (h *Handler) bindings() {
	h.handle("GET /api/bindings", anyone, listBindings)
	h.handle("GET /api/bindings/{vhost}", anyone, listBindings)
	for to, toExchange := range map[string]bool{"q": false, "e": true} {
		between := func(answer func(*call, bool) (any, error)) endpoint {
			return func(c *call) (any, error) { return answer(c, toExchange) }
		}
		path := "/api/bindings/{vhost}/e/{source}/" + to + "/{destination}"
		h.handle("GET "+path, anyone, between(listBetween))
		h.handle("POST "+path, anyone, between(postBinding))
		h.handle("GET "+path+"/{props}", anyone, between(getBinding))
		h.handle("DELETE "+path+"/{props}", anyone, between(deleteBinding))
	}
}

// describeBinding returns an element of GET /api/bindings. The properties key identifies the binding among all
// bindings with the same source and destination.
func describeBinding(v *vhost.VHost, b vhost.BindingInfo) fields {
	kind := "queue"
	if b.ToExchange {
		kind = toExchangeType
	}
	return fields{
		"source": b.Source, "vhost": v.Name(), "destination": b.Destination, "destination_type": kind,
		"routing_key": b.Key, "arguments": arguments(b.Arguments), "properties_key": propertiesKey(b.Key, b.Arguments),
	}
}

const toExchangeType = "exchange"

// propertiesKey returns the escaped routing key and, if there are arguments, a hash of the arguments. It returns "~"
// if the key is empty and there are no arguments. The hash differs from RabbitMQ's, which is the hash of an Erlang term.
// The difference is harmless, because clients only copy properties keys from a list into a request.
func propertiesKey(key string, args amqpwire.Table) string {
	escaped := strings.ReplaceAll(url.QueryEscape(key), "~", "%7E")
	if len(args) == 0 {
		return cmp.Or(escaped, "~")
	}
	encoded, _ := args.Append(nil) // cannot fail: Bind has already encoded the arguments
	sum := fnv.New32a()
	_, _ = sum.Write(encoded)
	return escaped + "~" + base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
}

// bindingsIn yields the bindings in a virtual host for which wanted returns true. The bindings of the default
// exchange, one per queue, come first.
func bindingsIn(v *vhost.VHost, wanted func(vhost.BindingInfo) bool) iter.Seq[vhost.BindingInfo] {
	return func(yield func(vhost.BindingInfo) bool) {
		for _, q := range v.Queues() {
			if b := (vhost.BindingInfo{Destination: q.Name(), Key: q.Name()}); wanted(b) && !yield(b) {
				return
			}
		}
		for _, b := range v.BindingsWhere(wanted) {
			if !yield(b) {
				return
			}
		}
	}
}

func describeBindings(v *vhost.VHost, bindings iter.Seq[vhost.BindingInfo]) list {
	return func(yield func(element) bool) {
		for b := range bindings {
			if !yield(func() fields { return describeBinding(v, b) }) {
				return
			}
		}
	}
}

func listBindings(c *call) (any, error) {
	vhosts, err := c.visible()
	if err != nil {
		return nil, err
	}
	return list(func(yield func(element) bool) {
		for _, v := range vhosts {
			for b := range describeBindings(v, bindingsIn(v, func(vhost.BindingInfo) bool { return true })) {
				if !yield(b) {
					return
				}
			}
		}
	}), nil
}

func queueBindings(c *call) (any, error) {
	v, q, err := c.queue()
	if err != nil {
		return nil, err
	}
	return describeBindings(v, bindingsIn(v, func(b vhost.BindingInfo) bool {
		return !b.ToExchange && b.Destination == q.Name()
	})), nil
}

func exchangeBindings(wanted func(b vhost.BindingInfo, name string) bool) endpoint {
	return func(c *call) (any, error) {
		v, x, err := c.exchange()
		if err != nil {
			return nil, err
		}
		return describeBindings(v, bindingsIn(v, func(b vhost.BindingInfo) bool { return wanted(b, x.Name) })), nil
	}
}

// between returns the bindings from the source to the destination that the path specifies. If either does not exist,
// between returns an error.
func (c *call) between(toExchange bool) (*vhost.VHost, iter.Seq[vhost.BindingInfo], error) {
	v, err := c.vhost()
	if err != nil {
		return nil, nil, err
	}
	source, destination := exchangeName(c.PathValue("source")), c.PathValue("destination")
	known := v.FindQueue(destination) != nil
	if toExchange {
		_, known = v.Exchange(destination)
	}
	if _, sourceKnown := v.Exchange(source); !known || !sourceKnown {
		return nil, nil, notFound
	}
	return v, bindingsIn(v, func(b vhost.BindingInfo) bool {
		return b.Source == source && b.Destination == destination && b.ToExchange == toExchange
	}), nil
}

func listBetween(c *call, toExchange bool) (any, error) {
	v, found, err := c.between(toExchange)
	return describeBindings(v, found), err
}

// binding returns the binding that the path specifies. The mux has already unescaped the properties key once.
func (c *call) binding(toExchange bool) (*vhost.VHost, vhost.BindingInfo, error) {
	v, all, err := c.between(toExchange)
	if err != nil {
		return nil, vhost.BindingInfo{}, err
	}
	wanted := c.PathValue("props")
	for b := range all {
		key := propertiesKey(b.Key, b.Arguments)
		unescaped, _ := url.PathUnescape(key)
		if key == wanted || unescaped == wanted || strings.ReplaceAll(unescaped, "+", " ") == wanted {
			return v, b, nil
		}
	}
	return nil, vhost.BindingInfo{}, notFound
}

func getBinding(c *call, toExchange bool) (any, error) {
	v, b, err := c.binding(toExchange)
	if err != nil {
		return nil, err
	}
	return describeBinding(v, b), nil
}

// bindingSettings is the body of a request that creates a binding.
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
	args := amqpwire.Table(s.Arguments)
	b := vhost.BindingInfo{
		Source: exchangeName(c.PathValue("source")), Destination: exchangeName(c.PathValue("destination")), ToExchange: toExchange,
		Key: s.RoutingKey, Arguments: args,
	}
	if err := c.mayBind(v, b); err != nil {
		return nil, err
	}
	return created{url.PathEscape(b.Destination) + "/" + url.PathEscape(propertiesKey(b.Key, args))}, v.Bind(b, httpOwner{})
}

func (c *call) mayBind(v *vhost.VHost, b vhost.BindingInfo) error {
	may := c.may
	if b.ToExchange {
		may = c.mayExchange
	}
	return cmp.Or(may(v, access.Write, b.Destination), c.mayExchange(v, access.Read, b.Source),
		session.MayTopics(c.node.Access, v, c.user.Name, access.Read, b.Source, b.Key))
}

func deleteBinding(c *call, toExchange bool) (any, error) {
	v, b, err := c.binding(toExchange)
	if err != nil {
		return nil, err
	}
	if err := c.mayBind(v, b); err != nil {
		return nil, err
	}
	return done{}, v.Unbind(b, httpOwner{})
}
