package management

import (
	"encoding/json"

	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// policies adds the endpoints for policies, which policymakers may change, and for operator policies, which only
// administrators may change.
func (h *Handler) policies() {
	for path, operator := range map[string]bool{"policies": false, "operator-policies": true} {
		may := policymaker
		if operator {
			may = administrator
		}
		h.handle("GET /api/"+path, anyone, func(c *call) (any, error) {
			vhosts, err := c.visible()
			return listPolicies(operator, vhosts...), err
		})
		h.handle("GET /api/"+path+"/{vhost}", anyone, func(c *call) (any, error) {
			v, err := c.vhost()
			if err != nil {
				return nil, err
			}
			return listPolicies(operator, v), nil
		})
		h.handle("GET /api/"+path+"/{vhost}/{name}", anyone, func(c *call) (any, error) {
			v, p, err := c.policy(operator)
			if err != nil {
				return nil, err
			}
			return describePolicy(v, p), nil
		})
		h.handle("PUT /api/"+path+"/{vhost}/{name}", may, func(c *call) (any, error) { return putPolicy(c, operator) })
		h.handle("DELETE /api/"+path+"/{vhost}/{name}", may, func(c *call) (any, error) {
			v, p, err := c.policy(operator)
			if err != nil {
				return nil, err
			}
			v.DeletePolicy(p.Name, operator)
			return done{}, nil
		})
	}
}

// describePolicy returns a policy in the format of the API and of definitions.
func describePolicy(v *vhost.VHost, p *vhost.Policy) fields {
	return fields{
		"vhost": v.Name(), "name": p.Name, "pattern": p.Pattern, "apply-to": p.ApplyTo, "definition": p.Definition, "priority": p.Priority,
	}
}

// listPolicies returns the policies or the operator policies of virtual hosts.
func listPolicies(operator bool, vhosts ...*vhost.VHost) list {
	return func(yield func(element) bool) {
		for _, v := range vhosts {
			for _, p := range v.Policies(operator) {
				if !yield(func() fields { return describePolicy(v, p) }) {
					return
				}
			}
		}
	}
}

// listOperatorParameters returns the operator policies of virtual hosts as parameters, which is their format in definitions.
func listOperatorParameters(vhosts ...*vhost.VHost) list {
	return func(yield func(element) bool) {
		for _, v := range vhosts {
			for _, p := range v.Policies(true) {
				value := describePolicy(v, p)
				delete(value, "vhost")
				delete(value, "name")
				if !yield(func() fields {
					return fields{"vhost": v.Name(), "component": operatorComponent, "name": p.Name, "value": value}
				}) {
					return
				}
			}
		}
	}
}

// effectiveDefinition returns the definition that applies to an object. It is empty if there is none.
func effectiveDefinition(a vhost.Applied) vhost.Definition {
	if d := a.Definition(); d != nil {
		return d
	}
	return vhost.Definition{}
}

// operatorComponent is the component of the parameters that are operator policies.
const operatorComponent = "operator_policy"

// policy returns the policy in the path.
func (c *call) policy(operator bool) (*vhost.VHost, *vhost.Policy, error) {
	v, err := c.vhost()
	if err != nil {
		return nil, nil, err
	}
	p := v.Policy(c.PathValue("name"), operator)
	if p == nil {
		return nil, nil, notFound
	}
	return v, p, nil
}

// policySettings is the body of a request that sets a policy, and a part of a policy in definitions.
type policySettings struct {
	Pattern    string           `json:"pattern"`
	ApplyTo    *string          `json:"apply-to"`
	Priority   float64          `json:"priority"`
	Definition vhost.Definition `json:"definition"`
}

// set adds or replaces a policy.
func (s *policySettings) set(v *vhost.VHost, name string, operator bool) (replaced bool, err error) {
	p := vhost.Policy{Name: name, Operator: operator, Pattern: s.Pattern, ApplyTo: "all", Priority: s.Priority, Definition: s.Definition}
	if s.ApplyTo != nil {
		p.ApplyTo = *s.ApplyTo
	}
	return v.SetPolicy(p)
}

func putPolicy(c *call, operator bool) (any, error) {
	v, err := c.vhostToChange()
	if err != nil {
		return nil, err
	}
	var s policySettings
	if err := c.decode(&s, "pattern", "definition"); err != nil {
		return nil, err
	}
	replaced, err := s.set(v, c.PathValue("name"), operator)
	return stored(replaced), err
}

// importedPolicy is a policy in definitions.
type importedPolicy struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
	policySettings
}

func (im *importer) addPolicy(p *importedPolicy) error {
	v, err := im.host(p.VHost)
	if err != nil {
		return err
	}
	_, err = p.set(v, p.Name, false)
	return withObject("policy", p.Name, err)
}

// addOperatorPolicy adds an operator policy. Definitions contain operator policies as parameters.
func addOperatorPolicy(v *vhost.VHost, p *importedParameter) error {
	var s policySettings
	if err := decodeObject(p.Value, &s, []string{"pattern", "definition"}); err != nil {
		return withObject("operator policy", p.Name, err)
	}
	_, err := s.set(v, p.Name, true)
	return withObject("operator policy", p.Name, err)
}

// importedParameter is a runtime parameter in definitions.
type importedParameter struct {
	Name      string          `json:"name"`
	VHost     string          `json:"vhost"`
	Component string          `json:"component"`
	Value     json.RawMessage `json:"value"`
}
