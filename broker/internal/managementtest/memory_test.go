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

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// manyDefinitions returns definitions with n queues, exchanges and bindings.
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

// memoryRecorder is a response writer that measures the memory use of the process while a response is being written.
type memoryRecorder struct {
	header        http.Header
	status        int
	written, next int
	most          uint64
}

func (w *memoryRecorder) Header() http.Header    { return w.header }
func (w *memoryRecorder) WriteHeader(status int) { w.status = status }

func (w *memoryRecorder) Write(b []byte) (int, error) {
	if w.written += len(b); w.written >= w.next {
		w.next = w.written + 1<<20
		w.most = max(w.most, held())
	}
	return len(b), nil
}

// held returns the memory in use, in bytes, after a garbage collection.
func held() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func ask(b http.Handler, w http.ResponseWriter, path string) {
	b.ServeHTTP(w, fromGuest("GET", path, ""))
}

// The API builds the elements of a list one by one while it writes the list. Before that, it stores only names and sort
// keys.
func TestHandlerStreamsLists(t *testing.T) {
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
		t.Run(path, func(t *testing.T) { checkHeld(t, b, path, bound) })
	}
}

// checkHeld checks that the memory use grows by at most the number bound while a response is being written.
func checkHeld(t *testing.T, b *broker.Broker, path string, bound uint64) {
	ask(b.Management(), httptest.NewRecorder(), path) // create the entries for the rates
	before := held()
	w := &memoryRecorder{header: http.Header{}}
	ask(b.Management(), w, path)
	switch {
	case w.status != http.StatusOK && w.status != 0:
		t.Errorf("status: got %d, want 200", w.status)
	case w.most > before+bound:
		t.Errorf("memory: got %d bytes while %d bytes were written, want at most %d", w.most-before, w.written, bound)
	}
}

// The description of a queue or channel includes its consumers, whose number is not limited.
func TestHandlerStreamsConsumers(t *testing.T) {
	const n = 5000
	b, _ := handler(t, broker.Config{})
	ch := get[*amqp.Channel](t)(inMemory(t, b).Channel())
	get[amqp.Queue](t)(ch.QueueDeclare("q", true, false, false, false, nil))
	for i := range n {
		get[<-chan amqp.Delivery](t)(ch.Consume("q", fmt.Sprint(i), true, false, false, false, nil))
	}
	for _, path := range []string{"/api/consumers", "/api/queues/%2F/q", "/api/channels/memory:1%20-%3E%20memory:0%20(1)"} {
		t.Run(path, func(t *testing.T) { checkHeld(t, b, path, 200*n) })
	}
}

// The API decodes messages one by one while it writes them. The size limit for the messages in a response includes
// their headers.
func TestHandlerLimitsMemoryOfHeaders(t *testing.T) {
	b, _ := handler(t, broker.Config{})
	ch := get[*amqp.Channel](t)(inMemory(t, b).Channel())
	for _, name := range []string{"words", "text"} {
		_, err := ch.QueueDeclare(name, true, false, false, false, nil)
		must(t, err)
	}
	take := func(queue string) *memoryRecorder {
		w := &memoryRecorder{header: http.Header{}}
		b.Management().ServeHTTP(w, fromGuest("POST", "/api/queues/%2F/"+queue+"/get", `{"ackmode":"ack_requeue_false","encoding":"auto","count":10000}`))
		return w
	}

	words := make([]any, 10_000)
	for i := range words {
		words[i] = "word"
	}
	const many = 100
	for range many {
		must(t, ch.Publish("", "words", false, false, amqp.Publishing{Headers: amqp.Table{"h": words}}))
	}
	_, err := ch.QueueDeclarePassive("words", true, false, false, false, nil) // returns when all messages are in the queue
	must(t, err)
	before := held()
	if w := take("words"); w.written < many*70_000 || w.most > before+5<<20 {
		t.Errorf("got %d written bytes and %d additional bytes in memory, want at least %d and at most %d", w.written, int64(w.most)-int64(before), many*70_000, 5<<20)
	}

	const large, limit = 100 << 10, 64 << 20
	for range limit/large + 50 {
		must(t, ch.Publish("", "text", false, false, amqp.Publishing{Headers: amqp.Table{"h": strings.Repeat("x", large)}}))
	}
	_, err = ch.QueueDeclarePassive("text", true, false, false, false, nil)
	must(t, err)
	w := take("text")
	if q, err := ch.QueueDeclarePassive("text", true, false, false, false, nil); err != nil || q.Messages < 40 || w.written < limit*9/10 {
		t.Errorf("got %d written bytes and %d messages in the queue, want at least %d and 40: %v", w.written, q.Messages, limit*9/10, err)
	}
}

// The API builds only the elements of the requested page.
func TestPageBuildsOnlyItsElements(t *testing.T) {
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
		t.Errorf("page: got %d items of %d, want 100 of %d", len(page.Items), page.Total, n)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 300*n {
		t.Errorf("allocations for a page of 100 of %d queues: got %d bytes, want at most %d", n, got, 300*n)
	}
}

// A request for one object does not build a list of all objects.
func TestLookupDoesNotListAllObjects(t *testing.T) {
	const n = 10_000
	b, err := broker.New(broker.Config{Definitions: manyDefinitions(n)})
	must(t, err)
	defer func() { must(t, b.Shutdown(t.Context())) }()
	for _, path := range []string{"/api/overview", "/api/bindings/%2F/e/x7/q/q7/k", "/api/vhosts/%2F"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := httptest.NewRecorder()
		ask(b.Management(), w, path)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; w.Code != 200 || got > 60*n {
			t.Errorf("%s: got status %d and %d allocated bytes, want 200 and at most %d", path, w.Code, got, 60*n)
		}
	}
}

// If an error occurs in the middle of a response, the server cuts the connection. Otherwise, the client could mistake
// the incomplete list for a complete list.
func TestFailedResponseIsCutOff(t *testing.T) {
	b, err := broker.New(broker.Config{Definitions: manyDefinitions(2000)})
	must(t, err)
	defer func() { must(t, b.Shutdown(t.Context())) }()
	whole := httptest.NewRecorder()
	ask(b.Management(), whole, "/api/queues")
	var queues []any
	if must(t, json.Unmarshal(whole.Body.Bytes(), &queues)); len(queues) != 2000 {
		t.Errorf("queues: got %d, want 2000", len(queues))
	}
	for _, left := range []int{0, 1, 2} {
		w := &failingResponse{ResponseRecorder: httptest.NewRecorder(), left: left}
		func() {
			defer func() {
				if ended := recover(); ended != http.ErrAbortHandler {
					t.Errorf("response that fails after %d parts: got panic %v, want ErrAbortHandler", left, ended)
				}
			}()
			ask(b.Management(), w, "/api/queues")
		}()
	}
}

// failingResponse is a response writer whose client disconnects after some parts of the response.
type failingResponse struct {
	*httptest.ResponseRecorder
	left int
}

func (f *failingResponse) Write(b []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, fmt.Errorf("client disconnected")
	}
	return f.ResponseRecorder.Write(b)
}

// The API decodes a list of definitions element by element, because three bytes of JSON can decode to a definition of a
// hundred bytes.
func TestImportDecodesDefinitionsIncrementally(t *testing.T) {
	_, call := handler(t, broker.Config{})
	const n = 20_000
	body := `{"queues":[` + strings.Repeat(`{"name":"q","vhost":"/"},`, n) + `{"name":"q","vhost":"nosuch"}]}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := call("POST", "/api/definitions", body)
	runtime.ReadMemStats(&after)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "prior to importing") {
		t.Errorf("import: got %d %s, want 400 with \"prior to importing\"", w.Code, w.Body)
	}
	if w := call("GET", "/api/queues", ""); w.Body.String() != "[]" {
		t.Errorf("rejected import created objects: %s", w.Body)
	}
	// 60 bytes for each byte of JSON, and 71 with the race detector.
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(80*len(body)); got > most {
		t.Errorf("allocated %d bytes for %d bytes of JSON, want at most %d", got, len(body), most)
	}
}

// The API forgets the rates of deleted queues. Otherwise, its memory use would grow with each queue that clients
// create, request and delete.
func TestRatesOfDeletedQueuesUseNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, call := handler(t, broker.Config{})
		const n = 200
		var before uint64
		for round := range 60 { // takes five minutes
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
			t.Errorf("memory grew from %d bytes after 20 rounds to %d bytes after 60 rounds", before, after)
		}
	})
}

// The memory use of decoding arguments grows linearly with their number, and not quadratically.
func TestArgumentsUseLinearMemory(t *testing.T) {
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
		t.Fatalf("PUT: got %d, want 201: %s", w.Code, w.Body)
	}
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(100*len(body)); got > most {
		t.Errorf("allocated %d bytes for %d bytes of JSON, want at most %d", got, len(body), most)
	}
	var q struct{ Arguments map[string]any }
	must(t, json.Unmarshal(call("GET", "/api/queues/%2F/q", "").Body.Bytes(), &q))
	if len(q.Arguments) != n+1 || q.Arguments["a0"] != "again" || q.Arguments["a7"] != 7.0 {
		t.Errorf("got %d arguments, a0 %v and a7 %v, want %d, again and 7", len(q.Arguments), q.Arguments["a0"], q.Arguments["a7"], n+1)
	}
}
