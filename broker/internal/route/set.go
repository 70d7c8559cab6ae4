package route

import "slices"

// set is a set of values in insertion order.
type set[T comparable] struct {
	list []T
	seen map[T]struct{} // nil while the list is short
}

const shortList = 16

// add adds a value, and reports whether the value is new.
func (s *set[T]) add(v T) bool {
	if s.seen == nil && len(s.list) < shortList {
		if slices.Contains(s.list, v) {
			return false
		}
		s.list = append(s.list, v)
		return true
	}
	if s.seen == nil {
		s.seen = make(map[T]struct{}, 2*len(s.list))
		for _, each := range s.list {
			s.seen[each] = struct{}{}
		}
	}
	if _, found := s.seen[v]; found {
		return false
	}
	s.seen[v] = struct{}{}
	s.list = append(s.list, v)
	return true
}
