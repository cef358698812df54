package layer

import (
	"strings"

	"github.com/rein-sh/rein/sandbox"
)

// Unpack and RemoveTree are what an installation does with an archive.
var (
	Unpack     = unpack
	RemoveTree = removeTree
	Older      = older
)

// KeyOf is the name of the lock of an installation.
func KeyOf(p Package, t Target) string {
	return keyOf("install", p.Name, p.Version, t.base(), t.Node, strings.Join(p.Scripts, " "))
}

// Words is npm's error in one line.
func Words(text string) string { return readWords(text).text() }

// Why is why an installation from a registry failed.
func Why(p Package, registry string, r sandbox.Result) (why, advice string) {
	return (&installation{p: p, registry: registry}).why(r)
}
