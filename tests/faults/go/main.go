// A shop's price service on net/http. Usage: service MODE PORT; the mode says what a request does.
package main

import (
	"encoding/json"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

type answer struct {
	Path  string `json:"path"`
	Price int    `json:"price"`
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: service MODE PORT")
	}
	mode := os.Args[1]
	work := handlers(mode)
	large := []byte(strings.Repeat("x", 4<<20))
	var once sync.Once

	http.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(large)))
		w.Write(large)
	})
	http.HandleFunc("/poll", waitForNews)
	http.HandleFunc("/collect", func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { go collect() })
	})
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if err := work(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		json.NewEncoder(w).Encode(answer{r.URL.Path, len(r.URL.Path) * 7})
	})

	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	if limit := int(setting("LIMIT", 0)); limit > 0 {
		listener = &limited{listener, make(chan struct{}, limit)}
	}
	log.Fatal(http.Serve(listener, nil))
}

// limited accepts no connection while `free` is full, as netutil.LimitListener does.
type limited struct {
	net.Listener
	free chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	l.free <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &counted{Conn: c, release: func() { <-l.free }}, nil
}

type counted struct {
	net.Conn
	once    sync.Once
	release func()
}

func (c *counted) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.release)
	return err
}
