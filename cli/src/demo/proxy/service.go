// The service of `leeward demo --proxy`: net/http, a fixed amount of work per request, and no
// overload control. Prints its port, and ends when its input ends. Does not contain a queue.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func work(answer http.ResponseWriter, _ *http.Request) {
	sum := uint64(1)
	for number := uint64(0); number < 2_000_000; number++ {
		sum = sum*31 + number
	}
	fmt.Fprintln(answer, sum)
}

func main() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, http.HandlerFunc(work)))
}
