// Package spelling finds the name that was meant by one that does not exist.
package spelling

import "strings"

// longest is how many bytes a word has that is compared at all. Names are
// shorter; a longer word may come from anybody, and must cost nothing.
const longest = 64

// Nearest returns the one of names that is most like word, upper and lower case
// being the same, or "" when none is similar enough to be what was meant: at
// most two slips, or one in three letters of a long word.
func Nearest(word string, names []string) string {
	if len(word) > longest {
		return ""
	}
	best, least := "", max(2, len(word)/3)+1
	for _, n := range names {
		if d := distance(strings.ToLower(word), strings.ToLower(n)); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance counts insertions, deletions, substitutions and swaps of neighbours
// that turn a into b.
func distance(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
