package main

import "runtime/debug"

// item is all pointers, so that the collector has to follow each of them.
type item struct {
	left, right *item
	name        *string
}

var (
	heap    []*item
	garbage = make(chan []*item, 64)
)

func tree(depth int) *item {
	if depth == 0 {
		return nil
	}
	name := "item"
	return &item{tree(depth - 1), tree(depth - 1), &name}
}

// session allocates what a request allocates in a service that builds trees per request.
func session(rounds int) {
	hash(rounds)
	made := []*item{tree(8)}
	select {
	case garbage <- made:
	default:
		<-garbage
	}
}

// collect fills the heap with some million items and makes the collector run at each small growth.
func collect() {
	for i := 0; i < 256; i++ {
		heap = append(heap, tree(15))
	}
	debug.SetGCPercent(int(setting("GC_PERCENT", 1)))
	for {
		heap[len(garbage)%256] = tree(15)
	}
}
