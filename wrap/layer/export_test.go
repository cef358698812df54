package layer

import "strings"

// Unpack and RemoveTree are what an installation does with an archive.
var (
	Unpack     = unpack
	RemoveTree = removeTree
	Older      = older
	LastWords  = lastWords
)

// KeyOf is the name of the lock of an installation.
func KeyOf(p Package, t Target) string {
	return keyOf("install", p.Name, p.Version, t.base(), t.Node, strings.Join(p.Scripts, " "))
}
