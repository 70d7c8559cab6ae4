package failed

import "github.com/reprisemq/reprise/topology"

// EncodeTable returns a table as the JSON that Export writes, on one line, with the
// exact types: text, true, null and arrays as they are, all else as an object that
// names its type, such as {"int32": 5}, {"bytes": "AAE="}, {"time": 1767225600}
// (seconds since 1970) or {"table": {…}}. ErrUnstorable if AMQP has no such type,
// or it nests too deep.
func EncodeTable(t topology.Table) (string, error) { return encodeTable(t) }

// DecodeTable reads what EncodeTable returned, or a person wrote like it. The error
// is ErrInvalid and says what to write.
func DecodeTable(text string) (topology.Table, error) { return decodeTable(text) }
