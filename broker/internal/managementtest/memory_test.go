package managementtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker"
)

// manyDefinitions are definitions with so many queues, exchanges and bindings.
func manyDefinitions(n int) []byte {
	var queues, exchanges, bindings []string
	for i := range n {
		queues = append(queues, fmt.Sprintf(`{"name":"q%d","vhost":"/"}`, i))
		exchanges = append(exchanges, fmt.Sprintf(`{"name":"x%d","vhost":"/","type":"topic"}`, i))
		bindings = append(bindings, fmt.Sprintf(`{"vhost":"/","source":"x%d","destination":"q%d","destination_type":"queue","routing_key":"k"}`, i, i))
	}
	return fmt.Appendf(nil, `{"vhosts":[{"name":"/"}],"queues":[%s],"exchanges":[%s],"bindings":[%s],`+
		`"users":[{"name":"guest","password":"guest","tags":["administrator"]}],`+
		`"permissions":[{"user":"guest","vhost":"/","configure":".*","write":".*","read":".*"}]}`,
		strings.Join(queues, ","), strings.Join(exchanges, ","), strings.Join(bindings, ","))
}

// weigher is a response that looks, while it is written, how much memory is held.
type weigher struct {
	header        http.Header
	status        int
	written, next int
	most          uint64
}

func (w *weigher) Header() http.Header    { return w.header }
func (w *weigher) WriteHeader(status int) { w.status = status }

func (w *weigher) Write(b []byte) (int, error) {
	if w.written += len(b); w.written >= w.next {
		w.next = w.written + 1<<20
		w.most = max(w.most, held())
	}
	return len(b), nil
}

// held returns the bytes of memory that are in use.
func held() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func ask(b http.Handler, w http.ResponseWriter, path string) {
	r := httptest.NewRequest("GET", path, nil)
	r.SetBasicAuth("guest", "guest")
	b.ServeHTTP(w, r)
}

// A list is made while it is written: what is held meanwhile are names and keys to sort by, and no list of answers.
func TestListsAreNotHeld(t *testing.T) {
	const n = 10_000
	b, err := broker.New(broker.Config{Definitions: manyDefinitions(n)})
	must(t, err)
	defer func() { must(t, b.Shutdown(t.Context())) }()
	for path, bound := range map[string]uint64{
		"/api/queues": 50 * n,
		"/api/queues?sort=name&sort_reverse=true": 150 * n,
		"/api/bindings":        150 * n,
		"/api/definitions":     250 * n,
		"/api/definitions/%2F": 250 * n,
		"/metrics/per-object":  250 * n,
	} {
		t.Run(path, func(t *testing.T) {
			ask(b.Management(), httptest.NewRecorder(), path) // after which rates are known
			before := held()
			w := &weigher{header: http.Header{}}
			ask(b.Management(), w, path)
			switch {
			case w.status != http.StatusOK && w.status != 0:
				t.Errorf("status %d", w.status)
			case w.most > before+bound:
				t.Errorf("%d bytes were held while %d were written, want %d at the most", w.most-before, w.written, bound)
			}
		})
	}
}

// A page is made of its own elements alone.
func TestAPageCostsWhatIsOnIt(t *testing.T) {
	const n = 10_000
	b, err := broker.New(broker.Config{Definitions: manyDefinitions(n)})
	must(t, err)
	defer func() { must(t, b.Shutdown(t.Context())) }()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := httptest.NewRecorder()
	ask(b.Management(), w, "/api/queues?page=50&page_size=100")
	runtime.ReadMemStats(&after)
	var page struct {
		Items []struct{ Name string }
		Total int `json:"total_count"`
	}
	must(t, json.Unmarshal(w.Body.Bytes(), &page))
	if len(page.Items) != 100 || page.Total != n {
		t.Errorf("%d items of %d", len(page.Items), page.Total)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 300*n {
		t.Errorf("%d bytes were allocated for 100 of %d queues", got, n)
	}
}

// An answer that fails in the middle is cut off. A client that took it for a whole one would believe that queues are gone.
func TestAnAnswerIsWholeOrCutOff(t *testing.T) {
	b, err := broker.New(broker.Config{Definitions: manyDefinitions(2000)})
	must(t, err)
	defer func() { must(t, b.Shutdown(t.Context())) }()
	whole := httptest.NewRecorder()
	ask(b.Management(), whole, "/api/queues")
	var queues []any
	if must(t, json.Unmarshal(whole.Body.Bytes(), &queues)); len(queues) != 2000 {
		t.Errorf("%d queues", len(queues))
	}
	for _, left := range []int{0, 1, 2} {
		w := &failing{ResponseRecorder: httptest.NewRecorder(), left: left}
		func() {
			defer func() {
				if ended := recover(); ended != http.ErrAbortHandler {
					t.Errorf("after %d parts the answer ended with %v", left, ended)
				}
			}()
			ask(b.Management(), w, "/api/queues")
		}()
	}
}

// failing is a response to a client that has gone after some parts.
type failing struct {
	*httptest.ResponseRecorder
	left int
}

func (f *failing) Write(b []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, fmt.Errorf("the client has gone")
	}
	return f.ResponseRecorder.Write(b)
}

// A list of definitions is decoded element by element: an empty queue is three bytes of text, and a hundred in memory.
func TestDefinitionsAreNotDecodedAtOnce(t *testing.T) {
	_, call := handler(t, broker.Config{})
	const n = 200_000
	body := `{"queues":[` + strings.Repeat(`{},`, n) + `{"name":"q","vhost":"nosuch"}]}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := call("POST", "/api/definitions", body)
	runtime.ReadMemStats(&after)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "prior to importing") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := call("GET", "/api/queues", ""); w.Body.String() != "[]" {
		t.Errorf("something was imported: %s", w.Body)
	}
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(20*len(body)); got > most {
		t.Errorf("%d bytes were allocated for %d of text, want %d at the most", got, len(body), most)
	}
}

// Rates are remembered of what is there. Queues that come and go, and are looked at meanwhile, leave nothing behind.
func TestRatesOfDeletedQueuesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, call := handler(t, broker.Config{})
		const n = 200
		var before uint64
		for round := range 60 { // in five minutes
			for i := range n {
				call("PUT", fmt.Sprintf("/api/queues/%%2F/q%d", i), "")
			}
			call("GET", "/api/queues", "")
			for i := range n {
				call("DELETE", fmt.Sprintf("/api/queues/%%2F/q%d", i), "")
			}
			if round == 20 {
				before = held()
			}
			time.Sleep(5 * time.Second)
		}
		if after := held(); after > before+2<<20 {
			t.Errorf("%d bytes were held after 20 rounds, and %d after 60", before, after)
		}
	})
}

// Arguments are read in the time and memory of their text, not of its square.
func TestManyArgumentsTakeLittleMemory(t *testing.T) {
	_, call := handler(t, broker.Config{})
	const n = 5000
	var args []string
	for i := range n {
		args = append(args, fmt.Sprintf(`"a%d":%d`, i, i))
	}
	body := `{"arguments":{` + strings.Join(append(args, `"a0":"again"`), ",") + `}}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := call("PUT", "/api/queues/%2F/q", body)
	runtime.ReadMemStats(&after)
	if w.Code != http.StatusCreated {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(100*len(body)); got > most {
		t.Errorf("%d bytes were allocated for %d of text, want %d at the most", got, len(body), most)
	}
	var q struct{ Arguments map[string]any }
	must(t, json.Unmarshal(call("GET", "/api/queues/%2F/q", "").Body.Bytes(), &q))
	if len(q.Arguments) != n+1 || q.Arguments["a0"] != "again" || q.Arguments["a7"] != 7.0 {
		t.Errorf("%d arguments, a0 is %v and a7 %v", len(q.Arguments), q.Arguments["a0"], q.Arguments["a7"])
	}
}
