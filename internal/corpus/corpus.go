// Package corpus reads the logs of evidence/testdata/corpus, which
// scripts/corpus makes with real tools, and counts what of their decisive lines
// a preview shows.
package corpus

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Log is what a real tool printed, with the lines that state what the tool's
// structured output states.
type Log struct {
	Name     string `json:"name"`
	Tool     string `json:"tool"`
	HeldOut  bool   `json:"held_out"`    // no pattern may name the tool
	Source   string `json:"marked_from"` // where the decisive lines are from
	Bytes    int    `json:"bytes"`
	Lines    int    `json:"lines"`
	Decisive []int  `json:"decisive"` // numbers of lines, from 1
	Text     []byte `json:"-"`
}

// Read reads all logs in a directory, sorted by name. None is an error.
func Read(dir string) ([]Log, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no logs in " + dir)
	}
	logs := make([]Log, len(files))
	for i, name := range files {
		if err := logs[i].read(name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return logs, nil
}

func (l *Log) read(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, l); err != nil {
		return err
	}
	f, err := os.Open(strings.TrimSuffix(name, ".json") + ".log.gz")
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if l.Text, err = io.ReadAll(z); err != nil {
		return err
	}
	for _, at := range l.Decisive {
		if at < 1 || at > bytes.Count(l.Text, []byte("\n"))+1 {
			return fmt.Errorf("it has no line %d", at)
		}
	}
	return nil
}

var (
	controls = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\r")
	leftOut  = regexp.MustCompile(`^\[\.\.\. \d+ bytes(?:, (\d+) lines)? left out, from line (\d+) \.\.\.\]$`)
)

// Kept counts the decisive lines that a preview of the log shows whole, each
// where it stands: the same words elsewhere do not count. Colours do not matter.
func (l *Log) Kept(preview string) (n int) {
	all, there := bytes.Split(l.Text, []byte("\n")), shown(preview)
	for _, at := range l.Decisive {
		if line, ok := there[at]; ok && line == string(controls.ReplaceAll(all[at-1], nil)) {
			n++
		}
	}
	return n
}

// shown is what a preview shows of each line, by the numbers that its markers
// say.
func shown(preview string) map[int]string {
	there, at := map[int]string{}, 1
	for line := range strings.SplitSeq(preview, "\n") {
		m := leftOut.FindStringSubmatch(line)
		if m == nil {
			there[at] = controls.ReplaceAllString(line, "")
			at++
			continue
		}
		lines, _ := strconv.Atoi(m[1]) // none is 0
		from, _ := strconv.Atoi(m[2])  // digits
		if at != from {                // of line from the beginning is shown
			from++
		}
		at = from + lines
	}
	return there
}

// Ends counts the decisive lines that are whole in size bytes, so many percent
// of them from the beginning and the rest from the end.
func (l *Log) Ends(size, percent int) (n int) {
	head := size * percent / 100
	tail := len(l.Text) - (size - head)
	at := 0
	for i, line := range bytes.SplitAfter(l.Text, []byte("\n")) {
		end := at + len(line)
		if (end <= head || at >= tail) && slices.Contains(l.Decisive, i+1) {
			n++
		}
		at = end
	}
	return n
}
