package amqpwire

import "unsafe"

// Footprint returns the approximate size of t in memory, in bytes. It can be twenty times the size of the encoded table.
func (t Table) Footprint() int64 {
	n := int64(cap(t)) * int64(unsafe.Sizeof(Field{}))
	for _, f := range t {
		n += textFootprint(len(f.Name)) + valueFootprint(f.Value)
	}
	return n
}

// slot is the granularity of small allocations. An allocation of 9 to 16 bytes needs a slot, an allocation of up to 8
// bytes half a slot.
const slot = 16

// allocation returns the memory that an allocation of n bytes needs.
func allocation(n int) int64 {
	if n <= slot/2 {
		return int64(n+slot/2-1) / (slot / 2) * (slot / 2)
	}
	return int64(n+slot-1) / slot * slot
}

// textFootprint returns the memory for a string of n bytes. Strings of one byte need no memory, because the runtime
// shares them.
func textFootprint(n int) int64 {
	if n <= 1 {
		return 0
	}
	return allocation(n)
}

// valueFootprint returns the memory for a value, without the interface that contains it.
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
	return slot / 2 // numbers
}
