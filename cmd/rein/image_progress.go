package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/image"
)

// pullProgress shows an image coming in, on stderr: on a terminal as a bar over
// all layers, elsewhere as a line for each that is done.
type pullProgress struct {
	app *app
	now func() time.Time

	mu     sync.Mutex
	layers map[int]pulledLayer
	drawn  time.Time // zero while no bar is on the screen
	ended  bool
}

// pulledLayer is how far one layer is, in compressed bytes.
type pulledLayer struct{ total, fetched, unpacked int64 }

// barEvery is how often the bar is drawn at most.
const barEvery = 100 * time.Millisecond

func (a *app) newPullProgress() *pullProgress {
	return &pullProgress{app: a, now: time.Now, layers: map[int]pulledLayer{}}
}

// pullEvents shows the images that come in because a sandbox needs them.
func (a *app) pullEvents() func(image.Progress) {
	var p *pullProgress
	return func(e image.Progress) {
		if p == nil {
			p = a.newPullProgress()
		}
		p.event(e)
		if e.Stage == image.StageDone || e.Stage == image.StageFailed {
			p.end()
			p = nil
		}
	}
}

// end removes the bar. It may be called more than once.
func (p *pullProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	p.ended = true
}

// event shows one step. It is image.Options.Progress.
func (p *pullProgress) event(e image.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	switch e.Stage {
	case image.StageWait:
		p.erase()
		p.app.note("another process fetches %s; waiting for it", e.Reference)
	case image.StageFetch, image.StageUnpack:
		l := p.layers[e.Layer]
		l.total = e.Total
		if e.Stage == image.StageFetch {
			l.fetched = e.Done
		} else {
			l.fetched, l.unpacked = e.Total, e.Done
		}
		p.layers[e.Layer] = l
		if !p.app.err.terminal {
			p.line(e)
			return
		}
		if now := p.now(); now.Sub(p.drawn) >= barEvery {
			p.drawn = now
			fmt.Fprint(p.app.err, "\r\x1b[K"+p.app.style(p.bar(), styleDim))
		}
	}
}

// line tells of a layer that is done. The lock is held.
func (p *pullProgress) line(e image.Progress) {
	if e.Done == e.Total && e.Total > 0 {
		verb := map[image.Stage]string{image.StageFetch: "fetched", image.StageUnpack: "unpacked"}[e.Stage]
		p.app.note("layer %d of %d: %s, %s", e.Layer, len(p.layers), verb, bytesText(e.Total))
	}
}

// bar is the state of all layers. Fetching and unpacking are half of it each.
// The lock is held.
func (p *pullProgress) bar() string {
	var total, fetched, unpacked int64
	done := 0
	for _, l := range p.layers {
		total, fetched, unpacked = total+l.total, fetched+l.fetched, unpacked+l.unpacked
		if l.unpacked == l.total {
			done++
		}
	}
	text := fmt.Sprintf(" %s of %s · %d of %d layers unpacked", bytesText(fetched), bytesText(total), done, len(p.layers))
	const cells = 24
	full := 0
	if total > 0 {
		full = int((fetched + unpacked) * cells / (2 * total))
	}
	bar := strings.Repeat("█", full) + strings.Repeat("░", cells-full)
	if width := p.app.err.width; width > 1 && cells+len([]rune(text)) >= width {
		return short(text, width-1)
	}
	return bar + text
}

// erase takes the bar off the screen. The lock is held.
func (p *pullProgress) erase() {
	if !p.drawn.IsZero() {
		fmt.Fprint(p.app.err, "\r\x1b[K")
		p.drawn = time.Time{}
	}
}
