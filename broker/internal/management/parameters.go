package management

import (
	"encoding/json"
	"log/slog"

	"github.com/reprisemq/reprise/broker/internal/parameter"
)

func (h *Handler) parameters() {
	for _, path := range []string{"", "/{component}", "/{component}/{vhost}"} {
		h.handle("GET /api/parameters"+path, policymaker, getParameters)
	}
	const one = " /api/parameters/{component}/{vhost}/{name}"
	h.handle("GET"+one, policymaker, func(c *call) (any, error) { return c.getParameter(c.parameter()) })
	h.handle("PUT"+one, policymaker, func(c *call) (any, error) {
		if _, err := c.vhostToChange(); err != nil {
			return nil, err
		}
		return c.putParameter(c.parameter())
	})
	h.handle("DELETE"+one, policymaker, func(c *call) (any, error) { return c.deleteParameter(c.parameter()) })

	h.handle("GET /api/global-parameters", policymaker, func(c *call) (any, error) {
		return listParameters(c.node.Parameters, parameter.Key.IsGlobal), nil
	})
	const global = " /api/global-parameters/{name}"
	h.handle("GET"+global, policymaker, func(c *call) (any, error) { return c.getParameter(c.globalParameter()) })
	h.handle("PUT"+global, policymaker, func(c *call) (any, error) { return c.putParameter(c.globalParameter()) })
	h.handle("DELETE"+global, policymaker, func(c *call) (any, error) { return c.deleteParameter(c.globalParameter()) })
}

// parameter returns the key in the path.
func (c *call) parameter() parameter.Key {
	return parameter.Key{VHost: c.PathValue("vhost"), Component: c.PathValue("component"), Name: c.PathValue("name")}
}

func (c *call) globalParameter() parameter.Key { return parameter.Global(c.PathValue("name")) }

// describeParameter returns a parameter in the format that the API and definitions use.
func describeParameter(k parameter.Key, value json.RawMessage) fields {
	if k.IsGlobal() {
		return fields{"name": k.Name, "value": value}
	}
	return fields{"vhost": k.VHost, "component": k.Component, "name": k.Name, "value": value}
}

func listParameters(s *parameter.Store, wanted func(parameter.Key) bool) list {
	return func(yield func(element) bool) {
		for _, p := range s.All(wanted) {
			if !yield(func() fields { return describeParameter(p.Key, p.Value) }) {
				return
			}
		}
	}
}

// getParameters returns the parameters of the component and the virtual host in the path, in the virtual hosts that the
// user may see.
func getParameters(c *call) (any, error) {
	vhosts, err := c.visible()
	visible := make(map[string]bool)
	for _, v := range vhosts {
		if v != nil {
			visible[v.Name()] = true
		}
	}
	component := c.PathValue("component")
	all := listParameters(c.node.Parameters, func(k parameter.Key) bool {
		return !k.IsGlobal() && visible[k.VHost] && (component == "" || component == k.Component)
	})
	if err == nil && (component == "" || component == operatorComponent) {
		all = concat(listOperatorParameters(vhosts...), all)
	}
	return all, err
}

func (c *call) getParameter(k parameter.Key) (any, error) {
	if err := c.seesVHost(k); err != nil {
		return nil, err
	}
	value, found := c.node.Parameters.Get(k)
	if !found {
		return nil, notFound
	}
	return describeParameter(k, value), nil
}

func (c *call) putParameter(k parameter.Key) (any, error) {
	value, err := c.value()
	if err != nil {
		return nil, err
	}
	existed, err := c.node.SetParameter(parameter.Parameter{Key: k, Value: value})
	if err == nil {
		warnIdle(c.h.log, k)
	}
	return stored(existed), err
}

func (c *call) deleteParameter(k parameter.Key) (any, error) {
	if err := c.seesVHost(k); err != nil {
		return nil, err
	}
	if c.node.Parameters.Delete(func(other parameter.Key) bool { return other == k }) == 0 {
		return nil, notFound
	}
	return done{}, nil
}

// seesVHost returns an error if the user may not see the virtual host of a parameter.
func (c *call) seesVHost(k parameter.Key) error {
	if k.IsGlobal() {
		return nil
	}
	return vhostExists(c)
}

// warnIdle logs that a parameter of a federation or a shovel has no effect.
func warnIdle(log *slog.Logger, k parameter.Key) {
	if k.Idle() {
		log.Warn("parameter is stored but has no effect: this broker does not run federations or shovels",
			"component", k.Component, "vhost", k.VHost, "name", k.Name)
	}
}

// concat returns the elements of both lists.
func concat(a, b list) list {
	return func(yield func(element) bool) {
		for _, l := range []list{a, b} {
			for e := range l {
				if !yield(e) {
					return
				}
			}
		}
	}
}
