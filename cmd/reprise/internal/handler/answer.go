package handler

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/cause"
	"github.com/reprisemq/reprise/internal/brief"
)

// maxAnswer is the maximum length, in bytes, of a line from a handler process without a reply.
const maxAnswer = 1 << 20

// maxAnswer returns the maximum length of a line. Escapes, or base64, make a reply longer than its result.
func (p *Process) maxAnswer() int {
	if p.cfg.Results == nil {
		return maxAnswer
	}
	return maxAnswer + 2*p.cfg.Results.Max
}

// writeMessage appends the line for one attempt to b. Its names are those of the environment variables of [Exec], in lower
// case and without the prefix.
func writeMessage(ctx context.Context, b *bytes.Buffer, id uint64, m *reprise.Delivery) {
	b.WriteString(`{"id":`)
	b.WriteString(strconv.FormatUint(id, 10))
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	add := func(name string, value any) {
		b.WriteString(`,"` + name + `":`)
		_ = enc.Encode(value) // cannot fail: strings, and the result of plain
		b.Truncate(b.Len() - 1)
	}
	for _, f := range properties(m) {
		name := strings.ReplaceAll(strings.ToLower(f.name), "-", "_")
		if f.json {
			b.WriteString(`,"` + name + `":` + f.value)
		} else {
			add(name, f.value)
		}
	}
	for name, value := range maps.Collect(traceHeaders(ctx, m)) {
		add(name, value)
	}
	if len(m.Headers) > 0 {
		add("headers", plain(m.Headers))
	}
	if utf8.Valid(m.Body) {
		add("body", string(m.Body))
	} else {
		add("body_base64", base64.StdEncoding.EncodeToString(m.Body))
	}
	b.WriteString("}\n")
}

// answer is a line from a handler process: that it is ready, the progress or the result of one message.
type answer struct {
	Ready      bool    `json:"ready"`
	ID         *uint64 `json:"id"`
	Result     string  `json:"result"`
	Error      string  `json:"error"`
	RetryAfter float64 `json:"retry_after"` // in seconds

	Reply       json.RawMessage `json:"reply"` // the result of the message: a string, or another value as JSON
	ReplyBase64 *string         `json:"reply_base64"`

	Progress *float64 `json:"progress"` // without a result: a report while the handler works
	Text     string   `json:"text"`
	Alive    bool     `json:"alive"`

	invalid error // an error of the other fields, for an answer with an ID
}

// errNoise is the error of a line that cannot contain an answer, such as a line of a log.
var errNoise = errors.New("the line is not an answer")

// parseAnswer parses a line. The error is errNoise, or an [*AnswerError] if the line may contain an answer, but not its ID.
func parseAnswer(line []byte) (answer, error) {
	a, err := decodeAnswer(line, true)
	if err != nil {
		if lenient, other := decodeAnswer(line, false); other == nil && lenient.ID != nil {
			lenient.invalid = err
			return lenient, nil
		}
	}
	switch {
	case err == nil && (a.ID != nil) != a.Ready:
		return a, nil
	case !bytes.Contains(line, []byte(`"result"`)) && !bytes.Contains(line, []byte(`'result'`)):
		return answer{}, errNoise
	case err == nil:
		err = errors.New("the id is missing")
	}
	return answer{}, &AnswerError{text: fmt.Sprintf(`cannot read an answer: %v: %s (write one line such as {"id":1,"result":"done"}, with the id of the message)`, err, excerpt(line))}
}

func decodeAnswer(line []byte, strict bool) (a answer, err error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(&a); err != nil {
		return answer{}, errors.New(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "json: "), "Go struct field answer.", ""))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return answer{}, errors.New("more text follows the object")
	}
	return a, nil
}

// excerpt returns the beginning of a line for an error.
func excerpt(line []byte) string {
	text := clean(line[:min(len(line), 1<<10)])
	if short := cut(text, 256); short != text {
		return short + " …"
	}
	return text
}

// isReport reports whether the line is a sign of life, not an answer.
func (a answer) isReport() bool {
	return a.Result == "" && a.invalid == nil && (a.Progress != nil || a.Alive)
}

// result returns the result of the message, if any.
func (a answer) result() (r Result, found bool) {
	if a.ReplyBase64 != nil {
		body, _ := base64.StdEncoding.DecodeString(*a.ReplyBase64) // outcome has reported an error
		return Result{Body: body}, true
	}
	var text string
	switch {
	case !a.replies():
		return Result{}, false
	case json.Unmarshal(a.Reply, &text) == nil:
		return Result{Body: []byte(text)}, true
	}
	return Result{Body: a.Reply, ContentType: "application/json"}, true
}

// checkReply returns the reason why the reply is invalid.
func (a answer) checkReply(results *Results) error {
	if !a.replies() && a.ReplyBase64 == nil {
		return nil
	}
	switch {
	case results == nil:
		return errors.New("reply must be absent: the worker has no results in its configuration")
	case a.Result != "done" || a.replies() && a.ReplyBase64 != nil:
		return errors.New("reply must be in an answer with the result done, and only one of reply and reply_base64")
	case a.ReplyBase64 != nil:
		if _, err := base64.StdEncoding.DecodeString(*a.ReplyBase64); err != nil {
			return fmt.Errorf("reply_base64 is not base64: %w", err)
		}
	}
	return nil
}

// replies reports whether the answer has the key reply with a value.
func (a answer) replies() bool { return len(a.Reply) > 0 && string(a.Reply) != "null" }

// outcome returns the result of the attempt. If pause is set, the delay of a retry is a pause of the worker. An answer may have a reply
// only if results is not nil.
func (a answer) outcome(pause bool, results *Results) error {
	if a.invalid == nil && a.Result != "retry" && a.Result != "park" && (a.Result != "done" || a.Error != "") {
		a.invalid = fmt.Errorf("result must be done without an error, retry or park: got %q", cut(a.Result, 64))
	}
	if a.invalid == nil {
		a.invalid = a.checkReply(results)
	}
	if a.invalid != nil {
		return &AnswerError{text: strings.TrimSuffix(fmt.Sprintf("invalid answer: %v: %s", a.invalid, cut(a.Error, 256)), ": ")}
	}
	if a.Result == "done" {
		return nil
	}
	err := &AnswerError{text: answerText(cmp.Or(clean([]byte(a.Error)), "the handler answered "+a.Result+" without an error"))}
	if a.Result == "park" {
		return reprise.Park(err)
	}
	switch delay := time.Duration(min(max(0, a.RetryAfter), maxRetryAfter.Seconds()) * float64(time.Second)); {
	case delay > 0 && pause:
		return reprise.PauseFor(delay, err)
	case delay > 0:
		return reprise.RetryAfter(delay, err)
	}
	return err
}

// answerText returns the text of an error: the cause, and the whole text of the handler below it.
func answerText(text string) string {
	found, text := cause.OfBody("text/plain", []byte(text))
	if found == "" || found == text {
		return brief.Excerpt(text, maxErrorText)
	}
	return found + "\n" + brief.Excerpt(text, maxErrorText-len(found)-1)
}

// AnswerError is the error that a handler process has answered, or the error of an invalid answer.
type AnswerError struct{ text string }

// Error returns the cause of the failure. The next lines contain the whole text of the handler.
func (e *AnswerError) Error() string { return e.text }
