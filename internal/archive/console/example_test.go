package console_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http/httptest"

	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// This example creates a console for an archive, and sends a request to it. Without tokens, the console accepts only
// local requests.
func ExampleNew() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // otherwise, each connection would open a separate in-memory database
	archive, err := store.Open(context.Background(), db, store.Config{Dialect: store.SQLite})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := console.New(console.Config{Archive: archive})
	if err != nil {
		fmt.Println(err)
		return
	}

	request := httptest.NewRequest("GET", "http://localhost:8085/api/v1/me", nil)
	request.RemoteAddr = "127.0.0.1:40000"
	answer := httptest.NewRecorder()
	c.ServeHTTP(answer, request) // http.Serve(listener, c)
	fmt.Print(answer.Body)
	// Output: {"actor":"local","role":"admin"}
}

// Give the token to its owner. The configuration contains only the hash of the token.
func ExampleToken() {
	_, hash := console.NewToken()
	ann := console.Token{Name: "ann", Role: console.Operate, Hash: hash}
	fmt.Println(ann.Role)
	// Output: operate
}
