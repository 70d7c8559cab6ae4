// Package amqpwire is the codec of AMQP 0-9-1: frames, methods, content
// headers, properties and field tables, with the extensions RabbitMQ adds to
// them. It knows nothing of connections or channels; it turns bytes into values
// and values into bytes.
//
// # Connection
//
// A client opens with the eight bytes of [ProtocolHeader]. After that both
// sides send nothing but frames. All integers are big endian.
//
//	 0      1         3             7                 size+7  size+8
//	+------+---------+-------------+-------------------+------+
//	| type | channel |    size     |      payload      | 0xCE |
//	+------+---------+-------------+-------------------+------+
//	  1 B     2 B         4 B          size bytes        1 B
//
// The negotiated frame-max counts the whole frame, so a payload holds at most
// frame-max less [FrameOverhead] bytes. A [Reader] compares the size with that
// limit before it reads the payload, and its buffer grows with the bytes that
// arrive, never with the size that was announced.
//
// # Payloads
//
// A method frame holds a class, a method and the arguments:
//
//	+---------+----------+-----------------+
//	| class   | method   | arguments ...   |
//	+---------+----------+-----------------+
//	  2 B       2 B
//
// Consecutive bit arguments share octets, the first in the lowest bit; unused
// bits are written as zero and ignored when read. Bytes after the last argument
// are an error.
//
// A short string is a one byte length and that many bytes of UTF-8. Whether they
// are UTF-8 is checked where RabbitMQ does, in the arguments of the methods that
// carry no content; elsewhere anything passes.
//
// A method that carries content ([MethodID.HasContent]) is followed by one
// header frame and by body frames until body size bytes have come; there are
// none when the body is empty:
//
//	+---------+--------+-------------+-------+---------------------+
//	| class   | weight |  body size  | flags | property list ...   |
//	+---------+--------+-------------+-------+---------------------+
//	  2 B       2 B (0)    8 B         2 B
//
// The flags name the properties present, the highest bit the first. The lowest
// bit announces a further word of flags. No property is defined there, so a
// further word must be zero apart from its own lowest bit, and there are at
// most four words.
//
// A heartbeat frame has no payload and travels on channel 0.
//
// # Field tables
//
// A table is a four byte length and that many bytes of fields, each a short
// string, a type octet and a value. An array is the same without the names.
//
//	type  Go type       RabbitMQ's name   value
//	t     bool          bool              1 octet, any but 0 is true
//	b     int8          byte              1 octet
//	B     uint8         unsignedbyte      1 octet
//	s     int16         short             2 octets
//	u     uint16        unsignedshort     2 octets
//	I     int32         signedint         4 octets
//	i     uint32        unsignedint       4 octets
//	l, L  int64         long              8 octets
//	f     float32       float             4 octets, IEEE 754
//	d     float64       double            8 octets, IEEE 754
//	D     Decimal       decimal           1 octet scale, 4 octets value
//	S     string        longstr           4 octets length, content
//	x     []byte        binary            4 octets length, content
//	A     Array         array             4 octets length, values
//	T     Timestamp     timestamp         8 octets, seconds since 1970
//	F     Table         table             4 octets length, fields
//	V     nil           void              nothing
//
// These are RabbitMQ's readings, which differ from the letter of the
// specification: s is a 16 bit integer, not a short string, and L is as signed
// as l. What is read as L is written as l, and a true written as another octet
// than 1 is written as 1; every other table is written as it was read, byte for
// byte, with the order and the duplicates of its fields.
//
// # Limits
//
// No decoder panics, whatever it is given, and none allocates in proportion to
// a length that the input does not cover. Tables and arrays nest at most
// [MaxDepth] deep. Decoded strings and tables are copies and outlive the input;
// [Frame.Payload] and [ContentHeader.Properties] alias it.
package amqpwire
