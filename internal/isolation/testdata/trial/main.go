// Command trial tries what package isolation lists, on what its argument says,
// or its standard input, and prints what became of it.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rein-sh/rein/internal/isolation"
)

func main() {
	var in io.Reader = os.Stdin
	if len(os.Args) > 1 {
		in = strings.NewReader(os.Args[1])
	}
	if err := isolation.Main(in, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
