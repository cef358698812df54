package tool

// Examine is the cause that a line of output shows, "" for none.
func Examine(line string) string {
	d, _ := match(line)
	if d == nil {
		return ""
	}
	return d.cause
}
