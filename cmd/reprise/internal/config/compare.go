package config

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/reprisemq/reprise/internal/brief"
)

// Changed returns the top-level keys whose values differ from those of an earlier configuration, except cron, exchanges and
// workers. The Source of a Worker tells whether it has changed.
func (c *Config) Changed(earlier *Config) []string {
	keys := map[string]bool{}
	for key, source := range c.sources {
		keys[key] = keys[key] || earlier.sources[key] != source
	}
	for key := range earlier.sources {
		keys[key] = keys[key] || c.sources[key] == ""
	}
	maps.DeleteFunc(keys, func(key string, changed bool) bool { return !changed || slices.Contains(repeatable, key) })
	return slices.Sorted(maps.Keys(keys))
}

// contents returns a text that is equal for equal values. It depends on the contents of references, and hides them.
func (v value) contents() string {
	var b strings.Builder
	v.write(&b, 0)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(b.String())))
}

// files returns the sizes and times of the files in the command of a process, such as the script of an interpreter. p may be nil.
func (p *Process) files() (all []string) {
	if p == nil {
		return nil
	}
	for _, path := range p.Command {
		if !filepath.IsAbs(path) {
			path = filepath.Join(p.Dir, path)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			all = append(all, fmt.Sprint(path, info.Size(), info.ModTime().UnixNano()))
		}
	}
	return all
}

// write appends the text of a value. An alias may refer to itself.
func (v value) write(b *strings.Builder, depth int) {
	if depth > maxDepth {
		return
	}
	switch n := v.node.(type) {
	case ast.MapNode:
		b.WriteByte('{')
		for pairs := n.MapRange(); pairs.Next(); {
			p := pairs.KeyValue()
			b.WriteString(brief.Quoted(p.Key.GetToken().Value) + ":")
			v.value("", p.Value).write(b, depth+1)
			b.WriteByte(',')
		}
		b.WriteByte('}')
	case *ast.SequenceNode:
		b.WriteByte('[')
		for _, x := range n.Values {
			v.value("", x).write(b, depth+1)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	default:
		s, isText := textOf(v.node)
		if !isText && v.node != nil {
			s = v.notation()
		}
		if text, _, err := v.replace(s, func(_ int, content string) string { return content }); err == nil { // readers report errors
			s = text
		}
		fmt.Fprintf(b, "%s %q", v.kind(), s)
	}
}
