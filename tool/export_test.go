package tool

import (
	"maps"
	"slices"
)

// Examine is the cause that a line of output shows, "" for none.
func Examine(line string) string {
	d, _ := match(line)
	if d == nil {
		return ""
	}
	return d.cause
}

// Codes are all codes of the table of classes, sorted.
func Codes() []string {
	all := map[string]bool{}
	for code := range always {
		all[code] = true
	}
	for _, codes := range byOp {
		for code := range codes {
			all[code] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Causes are the causes of diagnoses, in the order of the table.
func Causes() []string {
	var all []string
	for _, s := range symptoms {
		all = append(all, s.cause)
	}
	return append(all, "pipe", "signal")
}
