package console

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// If two users edit the same message, the console shows both versions to the second user. It saves or replays the edit
// of the second user only after this user has confirmed it.
func TestEditDetectsConflict(t *testing.T) {
	replayer := &fakeReplayer{}
	c := newConsole(t, Config{Replayer: replayer})
	id := add(t, c.cfg.Archive, nil)
	form := ask(t, c, "GET", "/messages/1/edit", nil).Body.String()
	if !strings.Contains(form, `name="base" value="0"`) || !strings.Contains(form, `name="revision" value="0"`) {
		t.Fatalf("form does not contain the base and the revision: %s", form)
	}
	if err := c.cfg.Archive.Edit(t.Context(), id, 0, failed.Content{Body: []byte(`{"order":"ann's"}`)}, "ann"); err != nil {
		t.Fatal(err)
	}
	mine := url.Values{"base": {"0"}, "revision": {"0"}, "body": {`{"order":"ben's"}`}}
	for _, do := range []string{"save", "replay"} {
		mine.Set("do", do)
		status, _, body := post(t, c, "/messages/1/edit", mine)
		if status != http.StatusConflict || !strings.Contains(body, "ann has edited this message since") {
			t.Fatalf("%s: got status %d, want 409; body %s", do, status, body)
		}
		for _, want := range []string{"ann&#39;s", "ben&#39;s", `name="base" value="0"`, `name="revision" value="1"`, `href="/messages/1/revisions/1"`} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: page does not contain %s", do, want)
			}
		}
		m, err := c.cfg.Archive.Get(t.Context(), id)
		if err != nil || m.State != failed.Failed || string(m.Current().Body) != `{"order":"ann's"}` {
			t.Fatalf("%s: got state %s, want %s; body %s, error %v", do, m.State, failed.Failed, m.Current().Body, err)
		}
	}
	if status, _, _ := post(t, c, "/messages/1/revert", url.Values{"revision": {"0"}}); status != http.StatusConflict {
		t.Errorf("revert of an unseen revision: got status %d, want 409", status)
	}
	mine.Set("revision", "1")
	if status, _, body := post(t, c, "/messages/1/edit", mine); status != http.StatusSeeOther {
		t.Fatalf("edit of the displayed revision: got status %d, want 303; body %s", status, body)
	}
	m, err := c.cfg.Archive.Get(t.Context(), id)
	if err != nil || string(m.Current().Body) != `{"order":"ben's"}` || m.State != failed.Replaying {
		t.Errorf("message: got state %s, want %s; body %s, error %v", m.State, failed.Replaying, m.Current().Body, err)
	}
	if status, _, _ := post(t, c, "/messages/1/edit", url.Values{"do": {"save"}}); status == http.StatusSeeOther {
		t.Error("form without a revision was accepted")
	}
}

// An act of another user between the check of the message and the edit does not lose the form, and does not break the page.
func TestEditDetectsConcurrentAct(t *testing.T) {
	for name, concurrent := range map[string]struct {
		act  func(t *testing.T, c *Console, id failed.ID) error
		want string
	}{
		"discard": {func(t *testing.T, c *Console, id failed.ID) error {
			_, err := c.cfg.Archive.Discard(t.Context(), failed.Filter{IDs: []failed.ID{id}}, "a test", "ann")
			return err
		}, "Message 1 is discarded"},
		"edit": {func(t *testing.T, c *Console, id failed.ID) error {
			return c.cfg.Archive.Edit(t.Context(), id, 0, failed.Content{Body: []byte("ann's")}, "ann")
		}, "ann has edited this message since"},
	} {
		for _, do := range []string{"save", "replay"} {
			t.Run(name+", "+do, func(t *testing.T) {
				c := newConsole(t, Config{Replayer: &fakeReplayer{}})
				id := add(t, c.cfg.Archive, nil)
				mine := url.Values{"base": {"0"}, "revision": {"0"}, "body": {"ben's"}, "do": {do}}
				status, _, body := post(t, c, "/messages/1/edit", mine, func(r *http.Request) {
					// The page reads the form after the message.
					r.Body = &interruptedBody{r.Body, func() {
						if err := concurrent.act(t, c, id); err != nil {
							t.Error(err)
						}
					}}
				})
				if status != http.StatusConflict || !strings.Contains(body, concurrent.want) {
					t.Errorf("got status %d, want 409 and %q; body %s", status, concurrent.want, body)
				}
			})
		}
	}
}

// interruptedBody is the body of a request that calls act before its first byte.
type interruptedBody struct {
	io.ReadCloser
	act func()
}

func (b *interruptedBody) Read(p []byte) (int, error) {
	if b.act != nil {
		b.act()
		b.act = nil
	}
	return b.ReadCloser.Read(p)
}
