// Command rein-runsc is the gVisor OCI runtime, built from the module that
// go.mod pins, so that a machine needs nothing but rein's own binaries.
//
// It must be linked statically: the runtime re-executes itself inside an
// empty root directory, where no dynamic loader exists.
package main

import "gvisor.dev/gvisor/runsc/cli/maincli"

func main() { maincli.Main() }
