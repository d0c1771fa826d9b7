package main

import (
	"math/rand"
	"net/http"
	"time"
)

// The mode "tokens" is a server of a language model: a batch of streams gets a token each in every
// step, and a stream begins when there is room in the batch.
const (
	batchSize  = 256
	stepTime   = 20 * time.Millisecond
	leastWords = 20
	mostWords  = 80
)

var (
	token   = []byte("data: a word\n\n")
	arrived = make(chan chan struct{}, 100000)
)

// serveBatch runs the steps. A stream's channel gets a value per token, and is closed after the
// last one.
func serveBatch() {
	left := map[chan struct{}]int{}
	for range time.Tick(stepTime) {
		for len(left) < batchSize && len(arrived) > 0 {
			left[<-arrived] = leastWords + rand.Intn(mostWords-leastWords+1)
		}
		for stream, words := range left {
			// A client that does not read misses its tokens, and holds up no one.
			select {
			case stream <- struct{}{}:
			default:
			}
			if left[stream] = words - 1; words == 1 {
				delete(left, stream)
				close(stream)
			}
		}
	}
}

func stream(w http.ResponseWriter, r *http.Request) {
	stream := make(chan struct{}, mostWords)
	arrived <- stream
	w.Header().Set("Content-Type", "text/event-stream")
	for range stream {
		if _, err := w.Write(token); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}
