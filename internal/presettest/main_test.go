package presettest

import (
	"os"
	"testing"

	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Waiting{M: m}.Run()) }
