package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/topology"
)

// timeout is the maximum duration of each step on a page.
const timeout = 2 * time.Minute

// newBrowser starts a browser for a test, which runs in parallel with other tests, because it mostly waits for pages.
func newBrowser(t *testing.T) *Browser {
	t.Helper()
	needsBrowser(t)
	t.Parallel()
	return openBrowser(t)
}

// needsBrowser skips the test if it must not or cannot start a browser.
func needsBrowser(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the test starts a browser")
	}
	if _, err := exec.LookPath("chromium"); err != nil && os.Getenv("CHROMIUM") == "" {
		t.Skip("needs Chromium: apt-get install chromium, or run make test")
	}
}

func openBrowser(t *testing.T) *Browser {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	b, err := NewBrowser(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Look(1280, 800, "light", 1); err != nil {
		t.Fatal(err)
	}
	return b
}

// newShop opens a shop for a test.
func newShop(t *testing.T, cfg ShopConfig) *Shop {
	t.Helper()
	cfg.Dir = t.TempDir()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// do runs steps in the browser, with a timeout.
func do(t *testing.T, b *Browser, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.Tab, timeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		text, _ := chromedp.Run(b.Tab, chromedp.Evaluate[string]("location.pathname + ': ' + document.body.innerText"))
		t.Fatalf("%v\npage: %.2000s", err, text)
	}
}

// shows waits until the content of an element contains a string.
func shows(t *testing.T, b *Browser, selector, text string) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		got, err := chromedp.Run(b.Tab, chromedp.Evaluate[string]("(document.querySelector("+quoted(selector)+") || {innerText: ''}).innerText"))
		if err == nil && strings.Contains(got, text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: got %.1000q, want %q (%v)", selector, got, text, err)
		}
		ctx, cancel := context.WithTimeout(b.Tab, 50*time.Millisecond)
		<-ctx.Done()
		cancel()
	}
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "\\'") + "'" }

// link finds the first link or button whose label contains text.
func link(text string) chromedp.Search {
	return chromedp.Search("//*[self::a or self::button][contains(normalize-space(.), '" + text + "')]")
}

// click clicks a link or button that opens another page. It finds and clicks the element in one step, because a live page can
// replace the element between two steps.
func click(t *testing.T, b *Browser, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.Tab, timeout)
	defer cancel()
	press := func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		find := fmt.Sprintf("document.evaluate(%q, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE, null).singleNodeValue", link(text))
		_, err := chromedp.Evaluate[bool](find+".click() || true")(ctx, target)
		return chromedp.Void{}, err
	}
	if _, err := chromedp.RunResponse(ctx, chromedp.WaitVisible(link(text)), press); err != nil {
		page, _ := chromedp.Run(b.Tab, chromedp.Evaluate[string]("location.pathname + ': ' + document.body.innerText"))
		t.Fatalf("cannot click %q: %v\npage: %.2000s", text, err, page)
	}
}

func checkProblems(t *testing.T, b *Browser) {
	t.Helper()
	for _, p := range b.Problems() {
		t.Errorf("browser reports: %s", p)
	}
}

// A user finds a failed message, corrects and replays it, and the replay succeeds.
func TestEditAndReplay(t *testing.T) {
	b := newBrowser(t)
	done := make(chan string, 10)
	shop := newShop(t, ShopConfig{Attempts: 2, Handlers: map[string]reprise.Handler{
		"orders": reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if strings.Contains(string(m.Body), `"quantity":"two"`) {
				return errors.New("decode order 4711: quantity is not a number")
			}
			done <- string(m.Body)
			return nil
		}),
	}})
	err := shop.Client.Publish(t.Context(), &reprise.Message{
		RoutingKey: "orders", ContentType: "application/json", Body: []byte(`{"order":4711,"quantity":"two"}`),
	})
	if err != nil {
		t.Fatal(err)
	}

	do(t, b, chromedp.Navigate(shop.URL))
	// The live page displays the failure without a reload.
	shows(t, b, "main", "decode order *: quantity is not a number")
	click(t, b, "decode order")
	shows(t, b, "h1", "decode order *")
	do(t, b, chromedp.Click(chromedp.CSS("#rows a.row")), chromedp.WaitVisible(chromedp.CSS(".journey")))
	shows(t, b, ".journey", "Attempt 2 failed")
	shows(t, b, "pre", `"quantity": "two"`)

	click(t, b, "Edit")
	do(t, b, chromedp.SetValue(chromedp.ID("f-body"), "{\n  \"order\": 4711,\n  \"quantity\": 2\n}"),
		chromedp.SendKeys(chromedp.ID("f-body"), " "))
	shows(t, b, "#changes .add", `"quantity": 2`)
	shows(t, b, "#changes .del", `"quantity": "two"`)
	if !eval[bool](t, b, leavingAsks) {
		t.Error("no confirmation before the user leaves unsaved changes")
	}
	eval[bool](t, b, `(f => { f.value = f.defaultValue; return true; })(document.getElementById("f-body"))`)
	if eval[bool](t, b, leavingAsks) {
		t.Error("unexpected confirmation before the user leaves an unchanged editor")
	}
	do(t, b, chromedp.SetValue(chromedp.ID("f-body"), "{\n  \"order\": 4711,\n  \"quantity\": 2\n}"))
	click(t, b, "Save and replay")
	shows(t, b, "h1", "Replay 1")
	shows(t, b, "main", "1 of 1 sent")
	shows(t, b, ".stats .good", "1")
	shows(t, b, "main", "done")
	select {
	case body := <-done:
		if want := `{"order":4711,"quantity":2}`; body != want {
			t.Errorf("worker received %s, want %s", body, want)
		}
	case <-time.After(timeout):
		t.Error("worker did not receive the message")
	}
	do(t, b, chromedp.Navigate(shop.URL+"/messages/1"))
	shows(t, b, ".sub", "replayed")
	shows(t, b, ".journey", "Edited, revision 1")
	do(t, b, chromedp.Navigate(shop.URL+"/audit"))
	shows(t, b, "tbody", "edit")
	checkProblems(t, b)
}

// leavingAsks is a JavaScript expression that reports whether the page asks for confirmation before the user leaves it.
const leavingAsks = `!window.dispatchEvent(new Event("beforeunload", {cancelable: true}))`

// A message that fails again stops its replay, and the page of the replay lists the message.
func TestReplayStopsAtFailure(t *testing.T) {
	b := newBrowser(t)
	shop := newShop(t, ShopConfig{Attempts: 1, Handlers: map[string]reprise.Handler{
		"orders": reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return errors.New("no stock") }),
	}})
	for range 30 {
		if err := shop.Client.Publish(t.Context(), &reprise.Message{RoutingKey: "orders", Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	do(t, b, chromedp.Navigate(shop.URL+"/groups"))
	do(t, b, chromedp.Navigate(shop.URL+"/groups/1"))
	shows(t, b, ".stats", "30")
	do(t, b, chromedp.Reload())
	click(t, b, "Replay all…")
	do(t, b, chromedp.SetValue(chromedp.ID("f-rate"), "5"))
	click(t, b, "Replay 30 messages")
	shows(t, b, "main", "The canary stopped the replay")
	shows(t, b, "main", "Failed again\n1")
	checkProblems(t, b)
}

// A live update of a page keeps the focus.
func TestLiveKeepsFocus(t *testing.T) {
	b := newBrowser(t)
	shop := newShop(t, ShopConfig{Seeded: true})
	// The script finds and focuses the link in one step, because a live update can replace the link between two steps.
	focus := chromedp.Evaluate[string](`document.querySelector("a[href*='queue=emails']").focus(); ""`)
	do(t, b, chromedp.Navigate(shop.URL))
	if _, err := chromedp.Run(b.Tab, focus); err != nil {
		t.Fatal(err)
	}
	shows(t, b, "#live", "Live")
	// Counts do not identify the update, because the seeded replay runs and changes them.
	if _, err := shop.Archive.Add(t.Context(), []failed.Message{{Queue: "refunds", FailedQueue: "refunds.failed", Error: "x"}}); err != nil {
		t.Fatal(err)
	}
	shows(t, b, "main", "refunds")
	got, err := chromedp.Run(b.Tab, chromedp.Evaluate[string]("document.activeElement.getAttribute('href') || ''"))
	if err != nil || !strings.Contains(got, "queue=emails") {
		t.Errorf("focus is on %q, want \"queue=emails\": %v", got, err)
	}
	checkProblems(t, b)
}

// A user selects messages, discards them with a reason, and restores them with undo.
func TestDiscardAndUndo(t *testing.T) {
	b := newBrowser(t)
	shop := newShop(t, ShopConfig{Seeded: true})
	do(t, b, chromedp.Navigate(shop.URL+"/messages?queue=emails&state=failed"), chromedp.WaitVisible(chromedp.CSS("#rows")))
	do(t, b, chromedp.Click(chromedp.CSS("#rows tr:nth-child(1) input")), chromedp.Click(chromedp.CSS("#rows tr:nth-child(2) input")))
	shows(t, b, "[data-picked]", "2 selected")
	click(t, b, "Discard…")
	shows(t, b, "h1", "Discard 2 messages")
	do(t, b, chromedp.SendKeys(chromedp.ID("f-reason"), "no such people"))
	click(t, b, "Discard")
	shows(t, b, ".note", "2 messages discarded.")
	click(t, b, "Undo")
	shows(t, b, ".note", "2 messages restored.")
	checkProblems(t, b)
}

// A list appends more rows without loading a new page.
func TestShowMore(t *testing.T) {
	b := newBrowser(t)
	shop := newShop(t, ShopConfig{Seeded: true})
	do(t, b, chromedp.Navigate(shop.URL+"/messages?state=all"), chromedp.Click(link("Show more")), chromedp.WaitVisible(chromedp.CSS("#rows tr:nth-child(100)")))
	checkProblems(t, b)
}

// With hostile messages, no page has axe findings, elements wider than the screen, or violations of the content
// security policy. The test covers light and dark mode on a wide screen, and light mode on a narrow phone.
func TestPages(t *testing.T) {
	b := newBrowser(t)
	script, err := os.ReadFile(filepath.Join("axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Skip("needs the npm package axe-core: run npm ci in internal/tools/browsertest/axe, or make test")
	}
	shop := newShop(t, ShopConfig{Seeded: true, Handlers: map[string]reprise.Handler{
		"orders":     reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil }),
		"thumbnails": reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil }),
	}, Breakers: map[string]breaker.State{"orders": breaker.Open}})
	pages, err := Pages(t.Context(), shop.Archive)
	if err != nil {
		t.Fatal(err)
	}
	// A long queue name must not widen the page.
	queue := strings.Repeat("of-a-team-with-long-names.", 8)
	ids, err := shop.Archive.Add(t.Context(), []failed.Message{{
		FailedQueue: queue + ".failed", Error: strings.Repeat("unbroken", 80), LastFailed: time.Now(),
		Content: failed.Content{Properties: failed.Properties{MessageID: strings.Repeat("0123456789", 20)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := shop.Archive.Get(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := shop.Client.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: queue}, {Name: strings.Repeat("unbroken", 25)}}}); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"/groups/%d", "/groups/merge?id=%[1]d&id=1", "/discard?group=%d", "/erase?group=%d", "/replays/new?group=%d"} {
		pages = append(pages, Page{"long", fmt.Sprintf(form, m.Group)})
	}
	pages = append(pages, Page{"message-long", fmt.Sprint("/messages/", ids[0])}, Page{"edit-long", fmt.Sprintf("/messages/%d/edit", ids[0])},
		Page{"groups-long", "/groups?order=last&queue=" + queue}, Page{"purge-long", "/queues/purge?queue=" + queue})
	for _, look := range []struct {
		width  int
		scheme string
		rules  string
	}{{1280, "light", allRules}, {1280, "dark", contrast}, {320, "light", allRules}} {
		if err := b.Look(look.width, 800, look.scheme, 1); err != nil {
			t.Fatal(err)
		}
		for _, p := range pages {
			do(t, b, chromedp.Navigate(shop.URL+p.Path), chromedp.WaitVisible(chromedp.CSS("main")))
			check(t, b, string(script), look.rules, p.Path, look.width, look.scheme)
			if look.width == 320 {
				if !eval[bool](t, b, `document.documentElement.scrollWidth <= innerWidth`) {
					t.Errorf("%s is wider than a phone", p.Path)
				}
				for _, wide := range eval[[]string](t, b, scrolling) {
					t.Errorf("%s requires horizontal scrolling on a phone: %s", p.Path, wide)
				}
			}
			if p.Name == "audit" && !eval[bool](t, b, `[...document.querySelectorAll("[data-label=Actor]")].some(e => e.checkVisibility() && e.innerText.includes("anna"))`) {
				t.Errorf("%s with width %d does not show the actor", p.Path, look.width)
			}
			if !p.IsError() {
				checkProblems(t, b)
			}
			b.Problems()
		}
	}
}

// After the login with a token, the user sees the requested page.
func TestSignIn(t *testing.T) {
	b := newBrowser(t)
	secret, hash := archive.NewToken()
	shop := newShop(t, ShopConfig{Seeded: true, Tokens: []archive.Token{{Name: "anna", Role: "view", Hash: hash}}})
	do(t, b, chromedp.Navigate(shop.URL+"/groups"))
	shows(t, b, "h1", "Sign in")
	do(t, b, chromedp.SendKeys(chromedp.ID("f-token"), "guess"))
	click(t, b, "Sign in")
	shows(t, b, "[role=alert]", "token")
	b.Problems() // the browser reports the error status
	do(t, b, chromedp.SendKeys(chromedp.ID("f-token"), secret))
	click(t, b, "Sign in")
	shows(t, b, "h1", "Failed groups")
	shows(t, b, ".who", "anna")
	shows(t, b, "#live", "Live")
	click(t, b, "Sign out")
	shows(t, b, "h1", "Sign in")
	checkProblems(t, b)
}

// stickingOut is a JavaScript expression for the elements that extend beyond the screen, and to which the user cannot
// scroll.
const stickingOut = `[...document.querySelectorAll("body *")]
	.filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.parentElement.closest(".scroll, .skip, .graph, .tabs, .nav, .crumbs, .from, pre, svg"))
	.map(e => e.outerHTML.slice(0, 200))`

// scrolling is a JavaScript expression for the elements, except code, whose content needs horizontal scrolling.
const scrolling = `[...document.querySelectorAll("body *:not(pre, textarea, input, select, .diff, .crumbs li, .clip1, .only-read)")]
	.filter(e => e.scrollWidth > e.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(e).overflowX))
	.map(e => e.outerHTML.slice(0, 200))`

// Options of axe. Dark mode differs from light mode only in the colors.
const (
	allRules = `{resultTypes: ["violations"]}`
	contrast = `{resultTypes: ["violations"], runOnly: ["color-contrast"]}`
)

// check checks a page with axe. The options of axe select the rules.
func check(t *testing.T, b *Browser, script, options, path string, width int, scheme string) {
	t.Helper()
	// The debugger injects axe, because the content security policy does not apply to the debugger.
	wrong, err := chromedp.Run(b.Tab, chromedp.Evaluate[[]string](script+`;
		axe.run(document, `+options+`).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + v.help + ": " + n.html.slice(0, 200) + " " + (n.failureSummary || ""))))`,
		chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("axe on %s: %v", path, err)
	}
	for _, w := range wrong {
		t.Errorf("%s with width %d, %s: %s", path, width, scheme, w)
	}
	for _, over := range eval[[]string](t, b, stickingOut) {
		t.Errorf("%s with width %d: wider than the screen: %s", path, width, over)
	}
}

func TestBrowserRemovesTemporaryFiles(t *testing.T) {
	needsBrowser(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	b := openBrowser(t)
	do(t, b, chromedp.Navigate("about:blank"))
	b.Close()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("browser left temporary files %v, want none; error %v", left, err)
	}
}

// An operator publishes a message to a queue, and purges the queue.
func TestPublishAndPurge(t *testing.T) {
	b := newBrowser(t)
	shop := newShop(t, ShopConfig{Seeded: true})
	do(t, b, chromedp.Navigate(shop.URL+"/topology"), chromedp.WaitVisible(chromedp.CSS(".topology")))
	press(t, b, `document.querySelector('a[aria-label="Publish to imports"]')`)
	do(t, b, chromedp.WaitVisible(chromedp.ID("f-body")))
	if eval[bool](t, b, leavingAsks) {
		t.Error("unexpected confirmation before the user leaves an empty form")
	}
	do(t, b, chromedp.SendKeys(chromedp.ID("f-body"), `{"row":12,`))
	shows(t, b, "#changes", "not valid JSON")
	do(t, b, chromedp.SendKeys(chromedp.ID("f-body"), `"new":true}`))
	shows(t, b, "#changes", `"new": true`)
	if !eval[bool](t, b, leavingAsks) {
		t.Error("no confirmation before the user leaves the form")
	}
	click(t, b, "Format")
	if got, want := eval[string](t, b, `document.getElementById("f-body").value`), "{\n  \"row\": 12,\n  \"new\": true\n}"; got != want {
		t.Errorf("formatted body: got %q, want %q", got, want)
	}
	if !eval[bool](t, b, leavingAsks) {
		t.Error("no confirmation before the user leaves the formatted form")
	}
	press(t, b, `document.querySelector("#changes button")`)
	shows(t, b, ".note.good", "Message published.")

	do(t, b, chromedp.Navigate(shop.URL+"/publish?queue=imports"), chromedp.WaitVisible(chromedp.ID("f-later")))
	do(t, b, chromedp.SendKeys(chromedp.ID("f-body"), `{}`), chromedp.SendKeys(chromedp.ID("f-later"), "soon"))
	shows(t, b, "#changes [role=alert]", "Enter a time from now")
	do(t, b, chromedp.SetValue(chromedp.ID("f-later"), "2d"))
	press(t, b, `document.querySelector("#changes button")`)
	shows(t, b, ".note.good", "Message scheduled. It is due at 20")

	do(t, b, chromedp.Navigate(shop.URL+"/topology"), chromedp.WaitVisible(chromedp.CSS(".topology")))
	press(t, b, `document.querySelector('a[aria-label="Purge imports"]')`)
	do(t, b, chromedp.WaitVisible(chromedp.ID("f-name")))
	shows(t, b, "h1", "Purge 13 messages")
	do(t, b, chromedp.SendKeys(chromedp.ID("f-reason"), "a test"), chromedp.SendKeys(chromedp.ID("f-name"), "import"))
	click(t, b, "Purge 13 messages")
	shows(t, b, "[role=alert]", "Enter the name of the queue.")
	do(t, b, chromedp.SetValue(chromedp.ID("f-name"), "imports"))
	b.Problems() // the browser reports the error status
	click(t, b, "Purge 13 messages")
	shows(t, b, ".note.good", "13 messages saved in the archive and purged.")
	checkProblems(t, b)
}

// A user selects messages that wait for a retry, and applies an action to them.
func TestSelectRetrying(t *testing.T) {
	b := newBrowser(t)
	shop := newShop(t, ShopConfig{Seeded: true})
	do(t, b, chromedp.Navigate(shop.URL+"/retrying?queue=orders"), chromedp.WaitVisible(chromedp.CSS("#rows")))
	// The first rows are due within minutes, and leave the list.
	do(t, b, chromedp.Click(chromedp.CSS("#rows tr:nth-child(10) input")), chromedp.Click(chromedp.CSS("#rows tr:nth-child(12) input")))
	shows(t, b, "[data-picked]", "2 selected")
	press(t, b, `document.querySelector("[data-picked] button[value=postpone]")`)
	shows(t, b, "h1", "Postpone: 2 messages")
	checkProblems(t, b)
}
