package browsertest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Browser is a Chromium without a window, with one tab.
type Browser struct {
	Tab  context.Context // for chromedp's functions
	stop func()          // at once
	once sync.Once

	mu       sync.Mutex
	problems []string
}

// NewBrowser starts one. ctx bounds its life; Close ends it.
func NewBrowser(ctx context.Context) (*Browser, error) {
	// It runs as root here and there, and sees no page but ours.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU)
	if path := os.Getenv("CHROMIUM"); path != "" {
		options = append(options, chromedp.ExecPath(path))
	}
	alloc, stopAlloc := chromedp.NewExecAllocator(ctx, options...)
	tab, stopTab := chromedp.NewContext(alloc)
	b := &Browser{Tab: tab, stop: func() { stopTab(); stopAlloc() }}
	if err := b.begin(); err != nil {
		b.stop()
		return nil, fmt.Errorf("chromium (Debian: apt-get install chromium fonts-dejavu-core, or set CHROMIUM to its path): %w", err)
	}
	return b, nil
}

func (b *Browser) begin() error {
	if err := chromedp.Listen(b.Tab, b.listen); err != nil {
		return err
	}
	if _, err := chromedp.Call(b.Tab, cdplog.Enable, cdp.Empty{}); err != nil {
		return err
	}
	_, err := chromedp.Call(b.Tab, runtime.Enable, cdp.Empty{})
	return err
}

// Close ends the browser, in order: one that is killed leaves a directory among the
// temporary files.
func (b *Browser) Close() {
	b.once.Do(func() {
		asked, cancel := context.WithTimeout(b.Tab, 10*time.Second)
		defer cancel()
		_ = chromedp.Cancel(asked)
		b.stop()
	})
}

// listen notes what a browser complains of: scripts that fail, and what the content
// security policy keeps a page from.
func (b *Browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Source == "security" {
			b.problems = append(b.problems, e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprintf("%s %s:%d", e.ExceptionDetails.Text, e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber))
	case *page.EventJavascriptDialogOpening:
		b.problems = append(b.problems, "a dialog opened: "+e.Message)
	}
}

// Problems returns what the browser complained of since it was asked last.
func (b *Browser) Problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.problems
	b.problems = nil
	return p
}

// Do does things in its tab.
func (b *Browser) Do(steps ...chromedp.Action[chromedp.Void]) error {
	return chromedp.Do(b.Tab, steps...)
}

// Look makes it as wide as a screen, light or dark, with so many pixels to a CSS one.
func (b *Browser) Look(width, height int, scheme string, scale float64) error {
	if err := b.Do(chromedp.EmulateViewport(int64(width), int64(height), chromedp.EmulateScale(scale))); err != nil {
		return err
	}
	_, err := chromedp.Call(b.Tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	return err
}
