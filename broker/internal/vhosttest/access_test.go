package vhosttest

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/registry"
)

// An invalid expression from an earlier version permits nothing, and the log names its user.
func TestLoadLogsInvalidPermissions(t *testing.T) {
	d := openData(t)
	for name, value := range map[string]string{
		"user/ada":           "{}",
		"permission/ada/%2F": `{"configure":".*","write":"a(b","read":""}`,
	} {
		d.must(d.store.Wait(context.Background(), d.store.SetDocument(name, []byte(value))))
	}
	d.registry.Close()
	var err error
	d.registry, err = registry.New(d.store)
	d.must(err)
	var log bytes.Buffer
	c, err := access.Load(d.registry, slog.New(slog.NewTextHandler(&log, nil)))
	d.must(err)
	if !c.Allowed("ada", "/", access.Configure, "q") || c.Allowed("ada", "/", access.Write, "q") {
		t.Error("user ada must have only the valid permission")
	}
	if got := log.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "user=ada") || !strings.Contains(got, "a(b") {
		t.Errorf("log: got %q, want one error with the user and the expression", got)
	}
}
