package upcmd

import (
	"bytes"
	"log/slog"
	"testing"
)

func TestQuietBroker(t *testing.T) {
	var b bytes.Buffer
	level := new(slog.LevelVar)
	base := slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	log := slog.New(quietBroker{Handler: base})
	log.Info("connection opened", "peer", "127.0.0.1:1")
	log.Warn("closing a channel", "peer", "memory:1")
	log.With("peer", "memory:1").Warn("closing a channel")
	log.Warn("closing a channel", "peer", "127.0.0.1:1")
	log.Error("broken", "peer", "memory:1")
	want := "level=WARN msg=\"closing a channel\" peer=127.0.0.1:1\nlevel=ERROR msg=broken peer=memory:1\n"
	if got := b.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	b.Reset()
	level.Set(slog.LevelDebug)
	log.Warn("closing a channel", "peer", "memory:1")
	if got := b.String(); got != "level=DEBUG msg=\"closing a channel\" peer=memory:1\n" {
		t.Errorf("level debug: got %s, want %s", got, "level=DEBUG msg=\"closing a channel\" peer=memory:1\n")
	}
}
