package browsertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// fail adds failures to the archive of a shop.
func fail(t *testing.T, shop *Shop, queue string, errors ...string) {
	t.Helper()
	for _, text := range errors {
		m := failed.Message{FailedQueue: queue + ".failed", Error: text, LastFailed: time.Now()}
		if _, err := shop.Archive.Add(t.Context(), []failed.Message{m}); err != nil {
			t.Fatal(err)
		}
	}
}

// eval evaluates a JavaScript expression on the page.
func eval[T any](t *testing.T, b *Browser, expression string) T {
	t.Helper()
	v, err := chromedp.Run(b.Tab, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// rowPosition is a JavaScript expression for the ID and the position of the third row of a list.
const rowPosition = "(r => r.id + ' at ' + r.getBoundingClientRect().top)(document.querySelectorAll('#rows > tr')[2])"

// A list of messages shows the number of new messages, and inserts them when the user presses the button. Until then, the rows
// do not move. The selection does not change.
func TestListShowsNewMessages(t *testing.T) {
	b := newBrowser(t)
	shop := newShop(t, ShopConfig{Seeded: true})
	do(t, b, chromedp.Navigate(shop.URL+"/messages?queue=emails"), chromedp.WaitVisible(chromedp.CSS("#rows")))
	shows(t, b, "#live", "Live")
	total := eval[string](t, b, "document.getElementById('total').innerText")
	first := eval[string](t, b, "document.querySelector('#rows > tr').id")
	do(t, b, chromedp.Click(chromedp.CSS("#rows tr:nth-child(3) input")))
	before := eval[string](t, b, rowPosition)

	fail(t, shop, "emails", "mailbox full", "no such host")
	shows(t, b, ".news button", "Show 2 new failures")
	shows(t, b, ".news [role=status]", "new failure")
	if now := eval[string](t, b, rowPosition); now != before {
		t.Errorf("third row: got %s, want %s", now, before)
	}
	if !eval[bool](t, b, "document.querySelector('#rows tr:nth-child(3) input').checked") {
		t.Error("row is not selected")
	}
	do(t, b, chromedp.Focus(chromedp.CSS(".news button")), chromedp.KeyEvent(kb.Enter))
	shows(t, b, "#rows tr:nth-child(1)", "no such host")
	shows(t, b, "#rows tr:nth-child(2)", "mailbox full")
	if id := eval[string](t, b, "document.querySelector('#rows > tr:nth-child(3)').id"); id != first {
		t.Errorf("first old row: got %s, want %s", id, first)
	}
	if !eval[bool](t, b, "document.querySelector('#rows tr:nth-child(5) input').checked && document.activeElement.closest('tr').rowIndex === 1") {
		t.Error("row is not selected, or the focus is not on the first new row")
	}
	if now := eval[string](t, b, "document.getElementById('total').innerText"); now == total {
		t.Errorf("number of messages is still %s", now)
	}
	if !eval[bool](t, b, "document.querySelector('.news button').hidden") {
		t.Error("button for new messages is visible")
	}
	// Messages that were inserted do not count as new again.
	fail(t, shop, "emails", "mailbox full")
	shows(t, b, ".news button", "Show 1 new failure")
	checkProblems(t, b)
}

// If the new messages need more than a page, or the list was empty, the button loads a new page.
func TestListShowsManyNewMessages(t *testing.T) {
	b := newBrowser(t)
	shop := newShop(t, ShopConfig{})
	do(t, b, chromedp.Navigate(shop.URL+"/messages"), chromedp.WaitVisible(chromedp.CSS(".empty")))
	shows(t, b, "#live", "Live")
	fail(t, shop, "orders", "one")
	shows(t, b, ".news button", "Show 1 new failure")
	do(t, b, chromedp.Click(chromedp.CSS(".news button")))
	shows(t, b, "#rows tr", "one")
	for i := range 50 + 5 {
		fail(t, shop, "orders", fmt.Sprint("number ", i))
	}
	shows(t, b, ".news button", "Show more than 50 new failures")
	do(t, b, chromedp.Click(chromedp.CSS(".news button")), chromedp.WaitVisible(chromedp.CSS("#rows tr:nth-child(50)")))
	shows(t, b, "#live", "Live") // otherwise the script of the new page may not handle the click yet
	do(t, b, chromedp.Click(link("Show more")), chromedp.WaitVisible(chromedp.CSS("#rows tr:nth-child(56)")))
	do(t, b, chromedp.Click(chromedp.CSS("#rows tr:nth-child(56) input")))
	shows(t, b, "[data-picked]", "1 selected")
	checkProblems(t, b)
}

// A list of groups updates its counts in place. It adds new groups on request.
func TestListShowsNewGroups(t *testing.T) {
	b := newBrowser(t)
	shop := newShop(t, ShopConfig{})
	fail(t, shop, "orders", "no stock", "no stock", "no price", "no price", "no name")
	do(t, b, chromedp.Navigate(shop.URL+"/groups"), chromedp.WaitVisible(chromedp.CSS("#rows")))
	shows(t, b, "#live", "Live")
	before := eval[string](t, b, rowPosition)
	fail(t, shop, "orders", "no name", "no name", "no name", "no address")
	shows(t, b, "#rows tr:nth-child(3)", "4")
	shows(t, b, "#waiting", "9")
	shows(t, b, ".news button", "Show 1 new group")
	if now := eval[string](t, b, rowPosition); now != before {
		t.Errorf("third row: got %s, want %s", now, before)
	}
	do(t, b, chromedp.Click(chromedp.CSS(".news button")))
	shows(t, b, "#rows tr:last-child", "no address")
	if n := eval[int](t, b, "document.querySelectorAll('#rows > tr').length"); n != 4 {
		t.Errorf("got %d groups, want 4", n)
	}
	checkProblems(t, b)
}

// A live update does not replace an element while the user presses a button, even if the request for the update started
// earlier. The element is replaced when the user releases the button.
func TestLiveUpdateWaitsForPress(t *testing.T) {
	b := newBrowser(t)
	shop := newShop(t, ShopConfig{})
	do(t, b, chromedp.Navigate(shop.URL), chromedp.WaitVisible(chromedp.CSS("#now")))
	shows(t, b, "#live", "Live")
	eval[bool](t, b, `(() => {
		addEventListener("htmx:beforeSwap", () => {
			window.part = document.getElementById("now");
			document.body.dispatchEvent(new PointerEvent("pointerdown"));
			setTimeout(() => { document.title = "pressed " + part.isConnected; });
		}, { capture: true, once: true });
		return true;
	})()`)
	fail(t, shop, "orders", "no stock")
	shows(t, b, "title", "pressed true")
	eval[bool](t, b, `document.body.dispatchEvent(new PointerEvent("pointerup"))`)
	shows(t, b, "#now", "no stock")
	checkProblems(t, b)
}
