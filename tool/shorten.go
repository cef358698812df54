package tool

import (
	"strings"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/sandbox"
)

// Shortened returns the result with no more than so many bytes of output or
// content shown, cut from what the command printed or the file holds, with
// exact counts and the place to read on. Of a result that came from a record,
// what is shown is cut again.
func (r Result) Shortened(bytes int) Result {
	switch {
	case bytes <= 0 || len(r.Stdout)+len(r.Stderr) <= bytes:
	case r.shorten != nil:
		r.shorten(&r, bytes)
	default:
		shown := evidence.Show(evidence.Text([]byte(r.Stdout)), evidence.Text([]byte(r.Stderr)), evidence.Options{Bytes: bytes, AsIs: true})
		r.Stdout, r.Stderr, r.Truncated = shown.Stdout.Text, shown.Stderr.Text, true
		if r.Spill == nil {
			r.Spill = r.Kept
		}
	}
	return r
}

// shortenOutput shows less of a command's output: of the last lines where those
// alone were asked for.
func (b *builtin) shortenOutput(c Call, from sandbox.Result, last int) func(*Result, int) {
	return func(r *Result, bytes int) {
		stdout, stderr := from.Printed()
		shown := evidence.Show(evidence.Stream(stdout), evidence.Stream(stderr),
			evidence.Options{Bytes: min(bytes, c.limits.OutputBytes), Lines: c.limits.OutputLines, Last: last, Masker: b.Sandbox.Masker()})
		r.Stdout, r.Stderr = shown.Stdout.Text, shown.Stderr.Text
		r.account(shown)
		if r.Truncated && r.Spill == nil {
			r.Spill = r.Kept
		}
	}
}

// shortenContent shows fewer lines of a file, from the first one asked for.
func shortenContent(first int64) func(*Result, int) {
	return func(r *Result, bytes int) {
		if len(r.Stdout) <= bytes {
			return
		}
		end := strings.LastIndexByte(r.Stdout[:bytes], '\n') + 1
		if end == 0 { // one line that is longer: its two ends, and no place to read on
			r.Stdout = evidence.Show(evidence.Text([]byte(r.Stdout)), evidence.Stream{}, evidence.Options{Bytes: bytes, AsIs: true}).Stdout.Text
			r.Truncated = true
			return
		}
		file := *r.File
		file.SHA256 = ""
		file.NextOffset = first + int64(strings.Count(r.Stdout[:end], "\n"))
		r.Stdout, r.File, r.Truncated = r.Stdout[:end], &file, true
	}
}
