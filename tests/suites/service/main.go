// A service on net/http that the suites ask through the proxy and directly, in HTTP/1.1 and in
// HTTP/2 with prior knowledge. Usage: service ADDRESS. Does not contain a judgement of answers.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

// What /file serves: one MiB that no part of which repeats at a multiple of 256.
var file = make([]byte, 1<<20)

// Answers with the request as it arrived: its line, its headers, and the hash of its body.
func echo(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	size, err := io.Copy(hash, r.Body)
	w.Header().Set("content-type", "text/plain")
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%s %s %s\nbody: %d %x\nhost: %s\n", r.Method, r.RequestURI, r.Proto, size, hash.Sum(nil), r.Host)
	for name, values := range r.Header {
		fmt.Fprintf(w, "%s: %s\n", strings.ToLower(name), strings.Join(values, ", "))
	}
	for name, values := range r.Trailer {
		fmt.Fprintf(w, "trailer %s: %s\n", strings.ToLower(name), strings.Join(values, ", "))
	}
}

// Answers /status/N with N, and a body where one may be.
func status(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.Atoi(r.PathValue("number"))
	if err != nil || number < 200 || number > 599 {
		number = http.StatusBadRequest
	}
	w.WriteHeader(number)
	if number != http.StatusNoContent && number != http.StatusNotModified {
		io.WriteString(w, "status\n")
	}
}

// Sends 103 with a link before its answer.
func early(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("link", "</style.css>; rel=preload")
	w.WriteHeader(http.StatusEarlyHints)
	io.WriteString(w, "final\n")
}

// Sends an answer in pieces, a trailer at its end.
func trailers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("trailer", "x-sum")
	for range 3 {
		io.WriteString(w, "piece\n")
		w.(http.Flusher).Flush()
	}
	w.Header().Set("x-sum", "18")
}

// Answers /slow/N after N ms.
func slow(w http.ResponseWriter, r *http.Request) {
	ms, _ := strconv.Atoi(r.PathValue("ms"))
	time.Sleep(time.Duration(min(max(ms, 0), 10_000)) * time.Millisecond)
	io.WriteString(w, "slow\n")
}

// Refuses without reading the body.
func refuse(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("connection", "close")
	http.Error(w, "too large", http.StatusRequestEntityTooLarge)
}

// Sends an event each 20 ms, five in all.
func events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("content-type", "text/event-stream")
	for at := range 5 {
		fmt.Fprintf(w, "data: %d\n\n", at)
		w.(http.Flusher).Flush()
		time.Sleep(20 * time.Millisecond)
	}
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: service ADDRESS")
	}
	for at := range file {
		file[at] = byte(at ^ at>>8)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/status/{number}", status)
	mux.HandleFunc("/slow/{ms}", slow)
	mux.HandleFunc("/early", early)
	mux.HandleFunc("/trailers", trailers)
	mux.HandleFunc("/refuse", refuse)
	mux.HandleFunc("/events", events)
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("etag", `"one"`)
		http.ServeContent(w, r, "file.bin", time.Unix(1_700_000_000, 0), bytes.NewReader(file))
	})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	// Other paths are echoed as they are: ServeMux redirects those that are not clean.
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" && r.URL.Path == path.Clean(r.URL.Path) {
			mux.ServeHTTP(w, r)
		} else {
			echo(w, r)
		}
	})
	server := &http.Server{Addr: os.Args[1], Handler: handler, Protocols: protocols, MaxHeaderBytes: 1 << 20}
	log.Fatal(server.ListenAndServe())
}
