package route

// refs contains the number of bindings to each destination.
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

// direct is the matcher of direct exchanges. A binding matches if its key equals the routing key.
type direct[Q comparable] map[string]refs[Q]

func (m direct[Q]) add(b Binding[Q]) {
	if m[b.Key] == nil {
		m[b.Key] = make(refs[Q])
	}
	m[b.Key].add(b.Destination)
}

func (m direct[Q]) remove(b Binding[Q]) {
	m[b.Key].remove(b.Destination)
	if len(m[b.Key]) == 0 {
		delete(m, b.Key)
	}
}

func (m direct[Q]) match(dst []Destination[Q], key string, _ Message) []Destination[Q] {
	return m[key].appendTo(dst)
}

// fanout is the matcher of fanout exchanges. All bindings match.
type fanout[Q comparable] refs[Q]

func (m fanout[Q]) add(b Binding[Q])    { refs[Q](m).add(b.Destination) }
func (m fanout[Q]) remove(b Binding[Q]) { refs[Q](m).remove(b.Destination) }

func (m fanout[Q]) match(dst []Destination[Q], _ string, _ Message) []Destination[Q] {
	return refs[Q](m).appendTo(dst)
}
