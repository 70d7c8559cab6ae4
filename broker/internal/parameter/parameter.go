// Package parameter stores runtime parameters: JSON values that configure components of a broker
// (https://www.rabbitmq.com/docs/parameters). The limits of virtual hosts are also parameters.
package parameter

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/quota"
	"github.com/reprisemq/reprise/broker/internal/registry"
)

// Key identifies a parameter. Global parameters have neither a virtual host nor a component.
type Key struct{ VHost, Component, Name string }

// Global returns the key of a global parameter.
func Global(name string) Key { return Key{Name: name} }

// IsGlobal reports whether the key belongs to a global parameter.
func (k Key) IsGlobal() bool { return k.Component == "" }

// LimitsOf returns the key of the limits of a virtual host.
func LimitsOf(vhost string) Key { return Key{vhost, vhostLimits, "limits"} }

const vhostLimits = "vhost-limits"

// Parameter is a runtime parameter.
type Parameter struct {
	Key
	Value json.RawMessage
}

// Store contains the parameters of a broker. A Store is safe for concurrent use.
type Store struct {
	registry *registry.Registry // saves changes, while mu is held

	mu     sync.RWMutex
	all    map[Key]json.RawMessage
	limits map[string]quota.Limits // of virtual hosts
}

// New returns a Store that contains only the global parameter cluster_tags, and that does not save changes.
func New() *Store {
	return &Store{
		// RabbitMQ sets this parameter on each start. Its value comes from the configuration file.
		all:    map[Key]json.RawMessage{Global("cluster_tags"): json.RawMessage("[]")},
		limits: make(map[string]quota.Limits),
	}
}

// kind is the kind of the documents in the registry. The names of a document are the fields of the Key.
const kind = "parameter"

// Load returns a Store with the parameters in the registry. It removes parameters of missing virtual hosts: the previous
// process exited while it was deleting them.
func Load(r *registry.Registry, exists func(vhost string) bool, log *slog.Logger) (*Store, error) {
	s := New()
	for d, err := range registry.All[json.RawMessage](r, kind, 3) {
		if err != nil {
			return nil, err
		}
		p := Parameter{Key{d.Names[0], d.Names[1], d.Names[2]}, d.Value}
		if !p.IsGlobal() && !exists(p.VHost) {
			r.Delete(kind, d.Names...)
			continue
		}
		if err := s.Set(p); err != nil {
			return nil, d.Damaged(err)
		}
	}
	s.registry = r
	return s, nil
}

// Clone returns a copy that does not save changes.
func (s *Store) Clone() *Store {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return &Store{all: maps.Clone(s.all), limits: maps.Clone(s.limits)}
}

// Set adds a parameter, or replaces the parameter with the same key. If the value is invalid or the component is unknown,
// Set returns an error with RabbitMQ's text.
func (s *Store) Set(p Parameter) error {
	limits, err := p.check()
	if err != nil {
		return err
	}
	var value bytes.Buffer
	if err := json.Compact(&value, p.Value); err != nil {
		return err
	}
	if value.String() == "{}" {
		value = *bytes.NewBufferString("[]") // as in RabbitMQ
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[p.Key] = value.Bytes()
	if p.Component == vhostLimits {
		s.limits[p.VHost] = limits
	}
	s.registry.Set(s.all[p.Key], kind, p.VHost, p.Component, p.Name)
	return nil
}

// check returns an error for a parameter that RabbitMQ refuses, and otherwise the limits of the virtual host, if any.
func (p *Parameter) check() (quota.Limits, error) {
	switch {
	case p.IsGlobal(), p.Idle():
		return nil, nil
	case p.Key == LimitsOf(p.VHost):
		limits, problems := quota.Parse(p.Name, p.Value, quota.MaxConnections, quota.MaxQueues)
		if problems != nil {
			return nil, exception.Invalid(problems)
		}
		return limits, nil
	case p.Component == vhostLimits:
		return nil, fmt.Errorf("the name of a parameter of component %s must be limits: got %q", vhostLimits, p.Name)
	}
	switch p.Component {
	case "policy":
		return nil, errors.New("policies may not be set using this method")
	case "operator_policy":
		return nil, errors.New("operator policies may not be set using this method")
	}
	return nil, exception.Invalid{"component " + p.Component + " not found"}
}

// Idle reports whether the parameter configures a federation or a shovel. The broker stores such a parameter, but does not
// have these components.
func (k Key) Idle() bool {
	return slices.Contains([]string{"federation", "federation-upstream", "federation-upstream-set", "shovel"}, k.Component)
}

// Get returns the value of a parameter, and reports whether the parameter exists.
func (s *Store) Get(k Key) (json.RawMessage, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value, found := s.all[k]
	return value, found
}

// All returns the parameters for which wanted returns true, sorted by key.
func (s *Store) All(wanted func(Key) bool) []Parameter {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []Parameter
	for k, value := range s.all {
		if wanted(k) {
			all = append(all, Parameter{k, value})
		}
	}
	slices.SortFunc(all, func(a, b Parameter) int {
		return cmp.Or(cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.Component, b.Component), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Limits returns the limits of a virtual host. The caller must not change the map.
func (s *Store) Limits(vhost string) quota.Limits {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.limits[vhost]
}

// Delete removes the parameters for which which returns true, and returns their number.
func (s *Store) Delete(which func(Key) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.all {
		if !which(k) {
			continue
		}
		n++
		delete(s.all, k)
		if k.Component == vhostLimits {
			delete(s.limits, k.VHost)
		}
		s.registry.Delete(kind, k.VHost, k.Component, k.Name)
	}
	return n
}
