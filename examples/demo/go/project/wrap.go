// Package wrap breaks text into lines.
package wrap

import "strings"

// Lines breaks text at spaces into lines of at most width characters. A word
// longer than that has a line of its own.
func Lines(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
