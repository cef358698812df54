package script

import "github.com/rein-sh/rein/internal/spelling"

// didYouMean is the hint that names the nearest candidate, or "".
func didYouMean(word string, candidates []string) string {
	if n := spelling.Nearest(word, candidates); n != "" {
		return `did you mean "` + n + `"?`
	}
	return ""
}
