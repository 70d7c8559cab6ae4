package route

// refs counts how many bindings lead to each destination.
type refs[Q comparable] map[Destination[Q]]int

func (r refs[Q]) add(d Destination[Q]) { r[d]++ }

func (r refs[Q]) remove(d Destination[Q]) {
	if r[d]--; r[d] <= 0 {
		delete(r, d)
	}
}

func (r refs[Q]) appendTo(dst []Destination[Q]) []Destination[Q] {
	for d := range r {
		dst = append(dst, d)
	}
	return dst
}

// direct matches a routing key that equals the binding key.
type direct[Q comparable] map[string]refs[Q]

func (m direct[Q]) add(key string, d Destination[Q]) {
	if m[key] == nil {
		m[key] = make(refs[Q])
	}
	m[key].add(d)
}

func (m direct[Q]) remove(key string, d Destination[Q]) {
	m[key].remove(d)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

func (m direct[Q]) match(dst []Destination[Q], key string) []Destination[Q] {
	return m[key].appendTo(dst)
}

// fanout matches every routing key.
type fanout[Q comparable] refs[Q]

func (m fanout[Q]) add(_ string, d Destination[Q])    { refs[Q](m).add(d) }
func (m fanout[Q]) remove(_ string, d Destination[Q]) { refs[Q](m).remove(d) }

func (m fanout[Q]) match(dst []Destination[Q], _ string) []Destination[Q] {
	return refs[Q](m).appendTo(dst)
}
