package erlang

import "encoding/binary"

// Hash returns erlang:phash2([first | more], 1 bsl 27), the hash of a list of binaries.
func Hash(first string, more ...string) uint32 {
	h := hashBinary(first, 0)
	for _, b := range more {
		h = hashBinary(b, h)
	}
	const endOfList = 2 * goldenRatio % (1 << 32)
	_, _, h = mix(endOfList+2, endOfList, h)
	return h % (1 << 27)
}

const goldenRatio = 0x9e3779b9

// hashBinary returns the hash of Bob Jenkins (https://www.burtleburtle.net/bob/hash/evahash.html) for a text that
// follows terms with the given hash.
func hashBinary(text string, hash uint32) uint32 {
	const binaryTerm = 13 * goldenRatio % (1 << 32)
	initial := hash + binaryTerm
	if text == "" {
		return initial
	}
	a, b, c := uint32(goldenRatio), uint32(goldenRatio), initial
	rest := text
	var words [12]byte
	for len(rest) >= len(words) {
		copy(words[:], rest)
		rest = rest[len(words):]
		a += binary.LittleEndian.Uint32(words[0:])
		b += binary.LittleEndian.Uint32(words[4:])
		c += binary.LittleEndian.Uint32(words[8:])
		a, b, c = mix(a, b, c)
	}
	clear(words[copy(words[:], rest):])
	a += binary.LittleEndian.Uint32(words[0:])
	b += binary.LittleEndian.Uint32(words[4:])
	c += binary.LittleEndian.Uint32(words[8:])<<8 + uint32(len(text)) // the lowest byte is the length
	_, _, c = mix(a, b, c)
	return c
}

func mix(a, b, c uint32) (x, y, z uint32) {
	for _, shift := range [][3]uint{{13, 8, 13}, {12, 16, 5}, {3, 10, 15}} {
		a = (a - b - c) ^ c>>shift[0]
		b = (b - c - a) ^ a<<shift[1]
		c = (c - a - b) ^ b>>shift[2]
	}
	return a, b, c
}
