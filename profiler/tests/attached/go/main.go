// A service with net/http as many are: a fast answer, a report that takes CPU, an account behind a
// mutex, and a price that another service knows.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
)

type item struct {
	Name  string
	Price int
}

var (
	books   sync.Mutex
	balance int
	backend string
)

func fast(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	io.WriteString(w, "well\n")
}

// buildReport makes and sorts some thousand rows.
func buildReport(rows int) []byte {
	items := make([]item, rows)
	for i := range items {
		items[i] = item{fmt.Sprintf("item %d", i*7919%rows), i}
	}
	sort.Slice(items, func(a, b int) bool { return items[a].Name < items[b].Name })
	text, _ := json.Marshal(items)
	return text
}

func report(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, len(buildReport(20000)))
}

// closeBooks holds the mutex for as long as a large report takes.
func closeBooks(started chan<- struct{}) {
	books.Lock()
	defer books.Unlock()
	close(started)
	balance += len(buildReport(50000))
}

func closing(w http.ResponseWriter, r *http.Request) {
	started := make(chan struct{})
	go closeBooks(started)
	<-started
	io.WriteString(w, "begun\n")
}

func account(w http.ResponseWriter, r *http.Request) {
	books.Lock()
	defer books.Unlock()
	balance++
	io.WriteString(w, "done\n")
}

func price(w http.ResponseWriter, r *http.Request) {
	answer, err := http.Get(backend)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	io.WriteString(w, strings.TrimSpace(string(body))+"\n")
}

func main() {
	backend = os.Args[2]
	http.HandleFunc("/fast", fast)
	http.HandleFunc("/report", report)
	http.HandleFunc("/closing", closing)
	http.HandleFunc("/account", account)
	http.HandleFunc("/price", price)
	fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
