package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func setting(name string, otherwise float64) float64 {
	if value, err := strconv.ParseFloat(os.Getenv(name), 64); err == nil {
		return value
	}
	return otherwise
}

// handlers returns the work of one request in this mode.
func handlers(mode string) func(context.Context) error {
	rounds := int(setting("COST_MS", 1) * roundsPerMillisecond())
	burn := func(context.Context) error { hash(rounds); return nil }
	switch mode {
	case "lock", "lock-busy":
		var stock sync.Mutex
		wait := time.Duration(setting("COST_MS", 20) * float64(time.Millisecond))
		return func(context.Context) error {
			stock.Lock()
			defer stock.Unlock()
			if mode == "lock" {
				time.Sleep(wait)
			} else {
				hash(rounds)
			}
			return nil
		}
	case "disk":
		return journal(os.Getenv("DATA"))
	case "downstream":
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
		busy := int(setting("BURN_MS", 0.1) * roundsPerMillisecond())
		pool := make(chan struct{}, int(setting("POOL", 1e6)))
		return func(ctx context.Context) error {
			pool <- struct{}{}
			defer func() { <-pool }()
			r, err := client.Get("http://" + os.Getenv("BACKEND") + "/price")
			if err == nil {
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
			hash(busy)
			return err
		}
	case "dns":
		return func(ctx context.Context) error {
			_, err := net.DefaultResolver.LookupHost(ctx, os.Getenv("NAME"))
			return err
		}
	case "pauses":
		return func(context.Context) error { session(rounds); return nil }
	case "background":
		go background()
	}
	return burn
}

// roundsPerMillisecond takes the fastest of some measurements, as others may
// have had the CPU in the rest.
func roundsPerMillisecond() float64 {
	best := time.Hour
	for i := 0; i < 10; i++ {
		start := time.Now()
		hash(2000)
		if took := time.Since(start); took < best {
			best = took
		}
	}
	return 2000 / (float64(best) / float64(time.Millisecond))
}

var sink atomic.Uint32

func hash(rounds int) {
	sum := sha256.Sum256([]byte("price"))
	for i := 0; i < rounds; i++ {
		sum = sha256.Sum256(sum[:])
	}
	sink.Add(uint32(sum[0]))
}

// journal answers a request only when its page is on the disk.
func journal(folder string) func(context.Context) error {
	var files [64]*os.File
	for i := range files {
		files[i], _ = os.OpenFile(fmt.Sprintf("%s/journal-%d", folder, i), os.O_RDWR|os.O_CREATE, 0o600)
	}
	var next atomic.Uint32
	return func(context.Context) error {
		file := files[next.Add(1)%64]
		if _, err := file.WriteAt(make([]byte, 4096), 0); err != nil {
			return err
		}
		return file.Sync()
	}
}

func waitForNews(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(30 * time.Second):
	case <-r.Context().Done():
	}
	fmt.Fprintln(w, "no news")
}

// background takes what the requests leave: a thread of its own with the lowest priority.
func background() {
	runtime.LockOSThread()
	syscall.Setpriority(syscall.PRIO_PROCESS, syscall.Gettid(), 19)
	for {
		hash(1000)
	}
}
