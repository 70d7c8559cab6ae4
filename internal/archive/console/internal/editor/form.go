// Package editor converts a message to a form and back without loss, and compares two contents.
package editor

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// spareHeaders is the number of empty rows for new headers.
const spareHeaders = 2

// EditFormView is a form for editing a message.
type EditFormView struct {
	How        string
	Body       string
	Properties []editField
	Headers    []editHeader
	Kept       []show.HeaderRow // headers that the form cannot edit; see isKept
	Key        string           // name of the key of an encrypted body
}

// keepKind is the submitted type of a Fixed header.
const keepKind = "keep"

type editField struct {
	Name, Label, Value string
	Fixed              bool // not editable
}

// isPlain reports whether browsers submit s unchanged in a form field.
func isPlain(s string) bool { return brief.Visible(s) == s && !strings.ContainsAny(s, "\r\n") }

// isKept reports whether the form cannot edit the header with this name, because Reprise or the broker sets the header,
// or because a form field cannot contain the name.
func isKept(name string) bool { return show.IsBrokerHeader(name) || !isPlain(name) || name == "" }

type editHeader struct {
	Name, Kind, Value string
	Fixed             bool // the form cannot edit the value
	Index             int
}

// messageID is the name of the field for the message id.
const messageID = "message_id"

// editFields are the editable properties.
var editFields = []struct {
	name, label string
	of          func(*failed.Properties) *string
}{
	{"content_type", "Content type", func(p *failed.Properties) *string { return &p.ContentType }},
	{"content_encoding", "Content encoding", func(p *failed.Properties) *string { return &p.ContentEncoding }},
	{messageID, "Message id", func(p *failed.Properties) *string { return &p.MessageID }},
	{"correlation_id", "Correlation id", func(p *failed.Properties) *string { return &p.CorrelationID }},
	{"type", "Type", func(p *failed.Properties) *string { return &p.Type }},
	{"reply_to", "Reply to", func(p *failed.Properties) *string { return &p.ReplyTo }},
}

// PropertyNames returns the names of the form fields for the editable properties.
func PropertyNames() []string {
	var names []string
	for _, e := range editFields {
		names = append(names, e.name)
	}
	return names
}

func NewEditForm(m *failed.Message) *EditFormView {
	c := m.Current()
	f := &EditFormView{}
	f.How, f.Body = editableBody(c.Body)
	key, encrypted := failed.EncryptionKey(c.Headers)
	if encrypted {
		f.How, f.Body, f.Key = bodyEncrypted, "", brief.Visible(key)
	} else if c.IsReference() {
		f.How = bodyReference
	}
	for _, e := range editFields {
		v := *e.of(&c.Properties)
		f.Properties = append(f.Properties, editField{e.name, e.label, v, !isPlain(v) || encrypted && e.name == messageID})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		v := c.Headers[name]
		if isKept(name) {
			f.Kept = append(f.Kept, show.HeaderRow{Name: brief.Visible(name), Kind: show.HeaderKind(v), Value: show.HeaderValue(v)})
			continue
		}
		h := editHeader{Name: name, Kind: show.HeaderKind(v), Value: show.HeaderValue(v)}
		switch s := v.(type) {
		case string:
			h.Value, h.Fixed = s, !isPlain(s)
		case bool, byte, int8, int16, uint16, int32, uint32, int64, float32, float64:
		default:
			h.Fixed = true
		}
		if h.Fixed {
			h.Value = show.HeaderValue(v)
		}
		f.Headers = append(f.Headers, h)
	}
	f.spare()
	return f
}

// NewPublishForm returns the form for a new message, with a random message ID. The default content type is JSON.
func NewPublishForm() *EditFormView {
	f := NewEditForm(&failed.Message{})
	f.How = bodyIndent
	f.Properties[0].Value = "application/json"
	for i := range f.Properties {
		if f.Properties[i].Name == messageID {
			f.Properties[i].Value = rand.Text() // so that consumers recognize the duplicate if the form is submitted twice
		}
	}
	return f
}

// ReadPublishForm reads the submitted form for a new message. It indents a JSON body.
func ReadPublishForm(v url.Values) *EditFormView {
	f := ReadEditForm(v, &failed.Message{})
	f.How = bodyIndent
	if indented, ok := api.Indent([]byte(f.Body), maxIndented); ok {
		f.Body = string(indented)
	}
	return f
}

func (f *EditFormView) spare() {
	for range spareHeaders {
		f.Headers = append(f.Headers, editHeader{Kind: "text"})
	}
	for i := range f.Headers {
		f.Headers[i].Index = i + 1
	}
}

// ReadEditForm reads a submitted form. It derives the representation of the body from m, because the submitted value
// cannot be trusted.
func ReadEditForm(v url.Values, m *failed.Message) *EditFormView {
	f := NewEditForm(m)
	f.Body = strings.ReplaceAll(v.Get("body"), "\r\n", "\n")
	for i, e := range f.Properties {
		if v.Has(e.Name) && !e.Fixed {
			f.Properties[i].Value = v.Get(e.Name)
		}
	}
	names, kinds, values := v["header_name"], v["header_kind"], v["header_value"]
	f.Headers = nil
	for i := range min(len(names), len(kinds), len(values)) {
		if names[i] == "" && values[i] == "" {
			continue
		}
		h := editHeader{Name: names[i], Kind: kinds[i], Value: strings.ReplaceAll(values[i], "\r\n", "\n")}
		if h.Kind == keepKind {
			was := m.Current().Headers[h.Name]
			h.Fixed, h.Kind, h.Value = true, show.HeaderKind(was), show.HeaderValue(was)
		}
		f.Headers = append(f.Headers, h)
	}
	f.spare()
	return f
}

// Content returns the content of m with the changes that the form contains. A body and headers that the form cannot
// edit remain unchanged.
func (f *EditFormView) Content(m *failed.Message) (failed.Content, error) {
	before := m.Current()
	after := before
	body, err := f.bytes(before.Body)
	if err != nil {
		return after, err
	}
	after.Body = body
	for i, e := range editFields {
		*e.of(&after.Properties) = f.Properties[i].Value
		if n := len(f.Properties[i].Value); n > 255 {
			return after, fmt.Errorf("%s must have at most 255 bytes: got %d", strings.ToLower(e.label), n)
		}
	}
	after.Headers = topology.Table{}
	for name, v := range before.Headers {
		if isKept(name) {
			after.Headers[name] = v
		}
	}
	for _, h := range f.Headers {
		if h.Name == "" {
			continue // the user removed the header or left the row empty
		}
		if show.IsBrokerHeader(h.Name) {
			return after, fmt.Errorf("header %s is reserved for Reprise or the broker (use another name)", brief.Quoted(h.Name))
		}
		if _, twice := after.Headers[h.Name]; twice {
			return after, fmt.Errorf("duplicate header %s (remove one)", brief.Quoted(h.Name))
		}
		if len(h.Name) > 128 {
			return after, fmt.Errorf("name of header %s must have at most 128 bytes: got %d", brief.Quoted(h.Name), len(h.Name))
		}
		was, known := before.Headers[h.Name]
		if h.Fixed {
			if !known {
				return after, fmt.Errorf("cannot rename header %s here (use “reprise failed edit”)", brief.Quoted(h.Name))
			}
			after.Headers[h.Name] = was
			continue
		}
		if known && show.HeaderKind(was) == h.Kind && unchanged(was, h) {
			after.Headers[h.Name] = was
			continue
		}
		v, err := show.ParseHeader(h.Kind, h.Value, was)
		if err != nil {
			return after, fmt.Errorf("header %s: %w", brief.Quoted(h.Name), err)
		}
		after.Headers[h.Name] = v
	}
	return before.EditedTo(after)
}

// unchanged reports whether h still has the value that the form showed for the header before the edit.
func unchanged(was any, h editHeader) bool {
	if s, ok := was.(string); ok && s == h.Value {
		return true
	}
	return show.HeaderValue(was) == h.Value
}
