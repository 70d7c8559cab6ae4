package cause

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"strings"
	"unicode/utf16"
)

// control matches the sequences with which programs color and move text on a terminal: CSI, OSC and short ones.
var control = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Za-z0-9]|[@-Z\\^_=>78])`)

// Plain returns an output as text that a person can read: in UTF-8, without the control sequences of a terminal and without
// control characters. A carriage return, with which programs replace a line of progress, becomes the end of a line.
func Plain(output []byte) string {
	text := string(output)
	if order := utf16Order(output); order != nil {
		units := make([]uint16, 0, len(output)/2)
		for ; len(output) >= 2; output = output[2:] {
			units = append(units, order.Uint16(output))
		}
		text = string(utf16.Decode(units))
	}
	text = control.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "")
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\uFEFF"), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n'
		case r == 0:
			return '\uFFFD'
		case r < ' ' && r != '\n' && r != '\t', r == 0x7f:
			return -1
		}
		return r
	}, text)
}

// utf16Order returns the byte order of a text in UTF-16, which the programs of Windows write, and nil for other texts. A
// text without a mark must have NUL in nearly each second byte, as text in English has.
func utf16Order(output []byte) binary.ByteOrder {
	switch {
	case len(output) < 4:
		return nil
	case bytes.HasPrefix(output, []byte{0xFF, 0xFE}):
		return binary.LittleEndian
	case bytes.HasPrefix(output, []byte{0xFE, 0xFF}):
		return binary.BigEndian
	}
	nul := [2]int{}
	for i, b := range output {
		if b == 0 {
			nul[i%2]++
		}
	}
	if most := len(output) / 2 * 8 / 10; max(nul[0], nul[1]) < most || min(nul[0], nul[1]) > 0 {
		return nil
	}
	if nul[0] > nul[1] {
		return binary.BigEndian
	}
	return binary.LittleEndian
}
