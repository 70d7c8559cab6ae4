package amqpwire

import "unsafe"

// Footprint returns about how many bytes of memory the table takes once it is
// decoded, which can be twenty times what it takes on the wire.
func (t Table) Footprint() int64 {
	n := int64(cap(t)) * int64(unsafe.Sizeof(Field{}))
	for _, f := range t {
		n += textFootprint(len(f.Name)) + valueFootprint(f.Value)
	}
	return n
}

// slot is the granularity of small allocations. Memory of 9 to 16 bytes takes
// a slot, of 8 bytes or less half of one.
const slot = 16

// allocation returns how much memory an allocation of n bytes takes.
func allocation(n int) int64 {
	if n <= slot/2 {
		return int64(n+slot/2-1) / (slot / 2) * (slot / 2)
	}
	return int64(n+slot-1) / slot * slot
}

// textFootprint is that of n bytes of text. The runtime has all texts of one
// byte once.
func textFootprint(n int) int64 {
	if n <= 1 {
		return 0
	}
	return allocation(n)
}

// valueFootprint is what a value takes beside the interface that holds it.
func valueFootprint(v any) int64 {
	const header = int(unsafe.Sizeof([]byte(nil)))
	switch v := v.(type) {
	case nil, bool, int8, uint8:
		return 0
	case string:
		return allocation(int(unsafe.Sizeof(v))) + textFootprint(len(v))
	case []byte:
		return allocation(header) + allocation(cap(v))
	case Table:
		return allocation(header) + v.Footprint()
	case Array:
		n := allocation(header) + int64(cap(v))*int64(unsafe.Sizeof(v[0]))
		for _, element := range v {
			n += valueFootprint(element)
		}
		return n
	}
	return slot / 2 // a number
}
