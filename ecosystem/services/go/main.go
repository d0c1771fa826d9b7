// A service on net/http whose requests do what MODE says. Usage: service PORT MODE.
package main

import (
	"log"
	"math/rand"
	"net/http"
	"os"
	"sync"
	"time"
)

// Answers have 100 bytes.
var answer = make([]byte, 100)

// The lock of the mode "lock", and the places of the mode "pool".
var (
	lock  sync.Mutex
	slots = make(chan struct{}, 8)
)

var routes = map[string]float64{"/a": 0.1, "/b": 0.5, "/c": 2, "/d": 10}

func pause(ms float64) { time.Sleep(time.Duration(ms * float64(time.Millisecond))) }

func request(mode, path string) {
	switch mode {
	case "cpu", "pauses":
		burn(1)
	case "exp":
		burn(rand.ExpFloat64())
	case "bimodal":
		if rand.Intn(10) == 0 {
			burn(8)
		} else {
			burn(0.2)
		}
	case "wait":
		pause(20)
		burn(1)
	case "lock":
		if rand.Intn(2) == 0 {
			lock.Lock()
			pause(2)
			lock.Unlock()
		} else {
			burn(0.1)
		}
	case "slow":
		burn(slowness())
	case "routes":
		burn(routes[path])
	case "pool":
		slots <- struct{}{}
		pause(8)
		<-slots
		burn(0.2)
	case "rare":
		if rand.Intn(100) == 0 {
			pause(1000)
		} else {
			burn(1)
		}
	}
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: service PORT MODE")
	}
	for i := range answer {
		answer[i] = 'x'
	}
	calibrate()
	http.HandleFunc("/-/begin", func(w http.ResponseWriter, r *http.Request) { begin() })
	if os.Args[2] == "tokens" {
		go serveBatch()
		http.HandleFunc("/stream", stream)
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		request(os.Args[2], r.URL.Path)
		w.Write(answer)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
