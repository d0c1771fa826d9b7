package main

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

var (
	steps float64 = 1000
	sink  atomic.Uint64
)

// burn takes so many ms of a CPU, in steps counted once: a span of time would shrink whenever the
// thread loses its CPU.
func burn(ms float64) {
	x := uint64(88172645463325252)
	for i := 0; i < int(steps*ms); i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	sink.Store(x)
}

// calibrate counts the steps of a ms by the fastest of 40 trials.
func calibrate() {
	best := 0.0
	for i := 0; i < 40; i++ {
		start := time.Now()
		burn(1000)
		best = max(best, 1000*steps/(float64(time.Since(start).Nanoseconds())/1e6))
	}
	steps = best
}

var began atomic.Int64

// begin starts the clock of the mode "slow".
func begin() { began.Store(time.Now().UnixNano()) }

// slowness is 3 between the seconds SLOW=FROM,UNTIL after the beginning, else 1.
func slowness() float64 {
	from, until, found := strings.Cut(os.Getenv("SLOW"), ",")
	if !found {
		return 1
	}
	f, _ := strconv.ParseFloat(from, 64)
	u, _ := strconv.ParseFloat(until, 64)
	since := time.Since(time.Unix(0, began.Load())).Seconds()
	if since >= f && since < u {
		return 3
	}
	return 1
}
