// Command rein-keep is the processes a local sandbox consists of on the host:
// "rein-keep keep" is its keeper, "rein-keep nest" the first process of its
// namespaces, which becomes the OCI runtime. It is started by package
// sandbox/local and by nobody else.
//
// It is a program of its own because each sandbox starts it twice and keeps one
// running: it holds nothing that a keeper does not need.
package main

import (
	"fmt"
	"os"

	"github.com/rein-sh/rein/sandbox/local"
)

func main() {
	body := func() error { return fmt.Errorf("it is started by rein, not by hand") }
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case "keep":
			body = local.Keep
		case "nest":
			body = local.Nest
		case "try": // the namespaces are there, and this program starts in them
			return
		}
	}
	if err := body(); err != nil {
		fmt.Fprintln(os.Stderr, "rein-keep:", err)
		os.Exit(1)
	}
}
