package amqpvalue

import "strings"

// TopicMatches reports whether a pattern matches a key: "*" matches one word, "#" any number of words (AMQP 0-9-1,
// §3.1.3.3). After a mismatch, the most recent "#" takes one more word, and the comparison continues after it. An earlier
// "#" never needs to take more words.
func TopicMatches(pattern, key string) bool {
	p, k := words(pattern), words(key)
	hash, taken := -1, 0 // index of the most recent "#", and the end of the words that it takes
	i, j := 0, 0
	for j < len(k) {
		switch {
		case i < len(p) && p[i] == "#":
			hash, taken = i, j
			i++
		case i < len(p) && (p[i] == "*" || p[i] == k[j]):
			i++
			j++
		case hash >= 0:
			taken++
			i, j = hash+1, taken
		default:
			return false
		}
	}
	for i < len(p) && p[i] == "#" {
		i++
	}
	return i == len(p)
}

// words splits a key into words, by the rules of RabbitMQ. The empty key has no words, and "." has two empty words.
func words(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}
