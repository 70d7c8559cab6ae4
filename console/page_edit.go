package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
	"github.com/reprisemq/reprise/topology"
)

// maxEdited bounds the body that a form takes: browsers get slow with more.
const maxEdited = 1 << 20

// maxIndented bounds it once it is indented.
const maxIndented = 2 * maxEdited

// spareHeaders are empty rows for headers to be added.
const spareHeaders = 2

// editForm shows a form with what a replay would send now.
func (p *pages) editForm(c *call) error {
	m, err := c.editable()
	if err != nil {
		return err
	}
	return c.showEdit(m, newEditForm(m), nil)
}

// edit takes the form: to show what is different, or to keep it, or to replay it too.
func (p *pages) edit(c *call) error {
	m, err := c.editable()
	if err != nil {
		return err
	}
	if err := c.r.ParseForm(); err != nil {
		return badRequest("the form cannot be read: "+err.Error(), "send it as the page does")
	}
	form := readEditForm(c.r.PostForm, m)
	content, problem := form.content(m)
	do := c.r.PostForm.Get("do")
	if problem != nil || do != "save" && do != "replay" {
		return c.showEdit(m, form, problem)
	}
	ctx := c.r.Context()
	if !sameContent(content, m.Current()) {
		if sameContent(content, m.Content) {
			err = c.Archive.Revert(ctx, m.ID, c.who.actor)
		} else {
			err = c.Archive.Edit(ctx, m.ID, content, c.who.actor)
		}
		if err != nil {
			return err
		}
	}
	if do == "save" {
		return c.seeOther(messagePath(m.ID), map[string][]string{"did": {"edited"}})
	}
	replay, err := c.begin(failed.Plan{Filter: failed.Filter{IDs: []failed.ID{m.ID}}})
	if err != nil {
		return err
	}
	return c.seeOther(fmt.Sprintf("/replays/%d", replay.ID), nil)
}

// revert takes an edit back.
func (p *pages) revert(c *call) error {
	id, err := c.pathID()
	if err != nil {
		return err
	}
	if err := c.Archive.Revert(c.r.Context(), failed.ID(id), c.who.actor); err != nil {
		return err
	}
	return c.seeOther(messagePath(failed.ID(id)), map[string][]string{"did": {"reverted"}})
}

// editable is the message in the address, if whoever asks can edit it.
func (c *call) editable() (*failed.Message, error) {
	m, hidden, err := c.messageInPath()
	if err != nil {
		return nil, err
	}
	if m.State != failed.Failed {
		return nil, &failure{
			status: http.StatusConflict, text: fmt.Sprintf("message %d is %s", m.ID, m.State),
			advice: "only a message that waits for a person can be edited: cancel its replay, or restore it",
		}
	}
	if hidden {
		return nil, &failure{
			status: http.StatusForbidden, text: "this message contains secrets that you may not see, so that an edit of yours would overwrite them",
			advice: "ask somebody with the role admin to edit it; you can replay it as it is",
		}
	}
	return m, nil
}

func sameContent(a, b failed.Content) bool {
	return bytes.Equal(a.Body, b.Body) && reflect.DeepEqual(a.Properties, b.Properties) &&
		(len(a.Headers) == 0 && len(b.Headers) == 0 || reflect.DeepEqual(a.Headers, b.Headers))
}

func (c *call) showEdit(m *failed.Message, form *editFormView, problem error) error {
	data := struct {
		M       *failed.Message
		Form    *editFormView
		Problem string
		Diff    *editDiff
		Broken  bool // it was JSON, and is not
	}{M: m, Form: form}
	status := http.StatusOK
	if problem != nil {
		status, data.Problem = http.StatusUnprocessableEntity, sentence(problem.Error())
		if c.r.Header.Get("HX-Request") != "" {
			status = http.StatusOK // a problem is what was asked about
		}
	} else if content, err := form.content(m); err == nil {
		d := compare(m.Content, content)
		data.Diff = &d
		data.Broken = json.Valid(m.Content.Body) && !json.Valid(content.Body)
	}
	return c.render(status, "edit", page{Title: fmt.Sprintf("Edit message %d", m.ID), Nav: "groups"}, data)
}

// The ways in which a form has a body in it.
const (
	bodyText   = "text"   // as it is
	bodyIndent = "indent" // JSON on one line, indented to be read; kept on one line
	bodyHex    = "hex"    // bytes that are no text
	bodyNone   = "none"   // too long: it stays as it is
)

// editFormView is the form.
type editFormView struct {
	How        string
	Body       string
	Properties []editField
	Headers    []editHeader
	Kept       []headerRow // those that cannot be edited: see isKept
}

// keepKind is what the form has in place of the type of a header that is Fixed.
const keepKind = "keep"

type editField struct {
	Name, Label, Value string
	Fixed              bool // it is not in the form
}

// isPlain reports whether a field of a form gives a text back as it was given it.
func isPlain(s string) bool { return visible(s) == s && !strings.ContainsAny(s, "\r\n") }

// isKept reports whether a header is none of the form's: it is Reprise's or the
// broker's, or has a name that no form can hold.
func isKept(name string) bool { return isBrokerHeader(name) || !isPlain(name) || name == "" }

type editHeader struct {
	Name, Kind, Value string
	Fixed             bool // its value cannot be changed here, and is not in the form
	Index             int
}

// editFields are the properties that can be edited.
var editFields = []struct {
	name, label string
	of          func(*failed.Properties) *string
}{
	{"content_type", "Content type", func(p *failed.Properties) *string { return &p.ContentType }},
	{"content_encoding", "Content encoding", func(p *failed.Properties) *string { return &p.ContentEncoding }},
	{"message_id", "Message id", func(p *failed.Properties) *string { return &p.MessageID }},
	{"correlation_id", "Correlation id", func(p *failed.Properties) *string { return &p.CorrelationID }},
	{"type", "Type", func(p *failed.Properties) *string { return &p.Type }},
	{"reply_to", "Reply to", func(p *failed.Properties) *string { return &p.ReplyTo }},
}

func newEditForm(m *failed.Message) *editFormView {
	c := m.Current()
	f := &editFormView{}
	f.How, f.Body = editableBody(c.Body)
	for _, e := range editFields {
		v := *e.of(&c.Properties)
		f.Properties = append(f.Properties, editField{e.name, e.label, v, !isPlain(v)})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		v := c.Headers[name]
		if isKept(name) {
			f.Kept = append(f.Kept, headerRow{visible(name), headerKind(v), headerValue(v)})
			continue
		}
		h := editHeader{Name: name, Kind: headerKind(v), Value: headerValue(v)}
		switch s := v.(type) {
		case string:
			h.Value, h.Fixed = s, !isPlain(s)
		case bool, byte, int8, int16, uint16, int32, uint32, int64, float32, float64:
		default:
			h.Fixed = true
		}
		if h.Fixed {
			h.Value = headerValue(v)
		}
		f.Headers = append(f.Headers, h)
	}
	f.spare()
	return f
}

func (f *editFormView) spare() {
	for range spareHeaders {
		f.Headers = append(f.Headers, editHeader{Kind: "text"})
	}
	for i := range f.Headers {
		f.Headers[i].Index = i + 1
	}
}

// editableBody is a body as a form can hold it without losing a byte. Browsers turn
// every line break of a form into CR LF, so that a body with such is only text if all
// of its line breaks are.
func editableBody(body []byte) (how, text string) {
	switch {
	case len(body) > maxEdited:
		return bodyNone, ""
	case !isText(body) || visible(string(body)) != string(body) || mixedBreaks(string(body)):
		if len(body) > maxHexShown {
			return bodyNone, ""
		}
		return bodyHex, hexLines(body)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, body) == nil && bytes.Equal(compact.Bytes(), body) {
		if indented, ok := api.Indent(body, maxIndented); ok && bytes.ContainsRune(indented, '\n') {
			return bodyIndent, string(indented)
		}
	}
	return bodyText, string(body)
}

func mixedBreaks(s string) bool {
	crlf := strings.Count(s, "\r\n")
	return strings.Count(s, "\r") != crlf || crlf > 0 && strings.Count(s, "\n") != crlf
}

// hexLines writes bytes as pairs of digits, 16 to a line.
func hexLines(body []byte) string {
	var b strings.Builder
	for i, c := range body {
		switch {
		case i == 0:
		case i%16 == 0:
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%02x", c)
	}
	return b.String()
}

// readEditForm is the form as it was sent. What it says of how the body is in it is
// not believed: the message says that.
func readEditForm(v map[string][]string, m *failed.Message) *editFormView {
	f := newEditForm(m)
	get := func(name string) string {
		if len(v[name]) == 0 {
			return ""
		}
		return v[name][0]
	}
	f.Body = strings.ReplaceAll(get("body"), "\r\n", "\n")
	for i, e := range f.Properties {
		if _, sent := v[e.Name]; sent && !e.Fixed {
			f.Properties[i].Value = get(e.Name)
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
			h.Fixed, h.Kind, h.Value = true, headerKind(was), headerValue(was)
		}
		f.Headers = append(f.Headers, h)
	}
	f.spare()
	return f
}

// content is what the form says, with all that it does not show left as it is.
func (f *editFormView) content(m *failed.Message) (failed.Content, error) {
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
			return after, fmt.Errorf("%s is %d bytes long: AMQP has room for 255", strings.ToLower(e.label), n)
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
			continue // taken out, or never put in
		}
		if isBrokerHeader(h.Name) {
			return after, fmt.Errorf("header %q is Reprise's or the broker's: choose another name", clip(visible(h.Name), 40))
		}
		if _, twice := after.Headers[h.Name]; twice {
			return after, fmt.Errorf("header %q is there twice: take one out", clip(visible(h.Name), 40))
		}
		if len(h.Name) > 128 {
			return after, fmt.Errorf("header %q has a name of %d bytes: at most 128 are possible", clip(visible(h.Name), 40), len(h.Name))
		}
		was, known := before.Headers[h.Name]
		if h.Fixed {
			if !known {
				return after, fmt.Errorf("header %q cannot get another name here: use “reprise failed edit”", clip(visible(h.Name), 40))
			}
			after.Headers[h.Name] = was
			continue
		}
		if known && headerKind(was) == h.Kind && unchanged(was, h) {
			after.Headers[h.Name] = was
			continue
		}
		v, err := parseHeader(h.Kind, h.Value, was)
		if err != nil {
			return after, fmt.Errorf("header %q: %w", clip(visible(h.Name), 40), err)
		}
		after.Headers[h.Name] = v
	}
	return after, nil
}

// unchanged reports whether a header is in the form as the form showed it.
func unchanged(was any, h editHeader) bool {
	if s, ok := was.(string); ok && s == h.Value {
		return true
	}
	return headerValue(was) == h.Value
}

// bytes is the body that the form has in it.
func (f *editFormView) bytes(before []byte) ([]byte, error) {
	switch f.How {
	case bodyNone:
		return before, nil
	case bodyHex:
		digits := strings.Join(strings.Fields(f.Body), "")
		if len(digits)%2 != 0 {
			return nil, fmt.Errorf("the body has an odd number of digits: write two for each byte")
		}
		body := make([]byte, 0, len(digits)/2)
		for i := 0; i < len(digits); i += 2 {
			b, err := strconv.ParseUint(digits[i:i+2], 16, 8)
			if err != nil {
				return nil, fmt.Errorf("%q in the body is no byte: write two digits from 0 to f", digits[i:i+2])
			}
			body = append(body, byte(b))
		}
		return body, nil
	case bodyIndent:
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(f.Body)) == nil {
			return compact.Bytes(), nil
		}
		return []byte(f.Body), nil
	}
	if bytes.Contains(before, []byte("\r\n")) {
		return []byte(strings.ReplaceAll(f.Body, "\n", "\r\n")), nil
	}
	return []byte(f.Body), nil
}

// editDiff is what an edit changes.
type editDiff struct {
	Body, Headers []diffLine
	Same          bool
}

// compare compares two contents as people read them.
func compare(before, after failed.Content) editDiff {
	d := editDiff{
		Body:    diff(diffText(before.Body), diffText(after.Body), 3),
		Headers: diff(fieldText(before), fieldText(after), 1),
	}
	d.Same = d.Body == nil && d.Headers == nil
	if d.Same && !sameContent(before, after) {
		d.Same = false
		d.Body = []diffLine{{"add", "It differs in what does not show, such as spaces or the type of a header."}}
	}
	return d
}

// diffText is a body in lines: JSON indented, bytes in hexadecimal.
func diffText(body []byte) string {
	if len(body) > maxEdited {
		return fmt.Sprintf("%s, too long to be compared", byteSize(len(body)))
	}
	if indented, ok := api.Indent(body, maxIndented); ok {
		body = indented
	} else if !isText(body) {
		return hexLines(body)
	}
	return visible(string(body))
}

// fieldText is properties and the application's headers in lines.
func fieldText(c failed.Content) string {
	var b strings.Builder
	for _, e := range editFields {
		if v := *e.of(&c.Properties); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", e.label, visible(v))
		}
	}
	own, _ := splitHeaders(c.Headers)
	for _, h := range own {
		fmt.Fprintf(&b, "%s (%s): %s\n", h.Name, h.Kind, strings.ReplaceAll(h.Value, "\n", " "))
	}
	return strings.TrimSuffix(b.String(), "\n")
}
