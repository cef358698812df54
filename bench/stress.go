package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// stress creates many sandboxes of each runtime in parallel, has each answer
// while all are alive, ends them all, and looks for what they left.
func stress(ctx context.Context, c config) error {
	for _, r := range runtimes {
		p, err := provider(c, r.runtime)
		if err != nil {
			return err
		}
		before, err := footprint(c)
		if err != nil {
			return err
		}
		if err := stressRuntime(ctx, c, p, r.name); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		after, err := footprint(c)
		if err != nil {
			return err
		}
		if left := leftover(before, after); len(left) > 0 {
			return fmt.Errorf("%s: left behind:\n  %s", r.name, strings.Join(left, "\n  "))
		}
		fmt.Println("  left behind: no process, mount, network namespace, cgroup or directory")
	}
	return nil
}

func stressRuntime(ctx context.Context, c config, p sandbox.Provider, name string) error {
	boxes := make([]box, c.parallel)
	start := time.Now()
	err := each(boxes, func(i int) (err error) {
		boxes[i], err = newBox(ctx, p)
		return err
	})
	created := time.Since(start)
	// Whatever happens, all of them end.
	defer each(boxes, func(i int) error {
		if boxes[i].sb == nil {
			return nil
		}
		return boxes[i].end(context.WithoutCancel(ctx))
	})
	if err != nil {
		return err
	}
	alive, err := p.List(ctx, nil)
	if err != nil {
		return err
	}
	running := slices.DeleteFunc(alive, func(i sandbox.Info) bool { return i.State != sandbox.StateRunning })
	if len(running) != c.parallel {
		return fmt.Errorf("%d of %d are running", len(running), c.parallel)
	}

	start = time.Now()
	err = each(boxes, func(i int) error {
		r, err := boxes[i].sb.Run(ctx, sandbox.Command{Tool: "bench", Shell: fmt.Sprintf("echo %d", i)})
		if want := fmt.Sprintf("%d\n", i); err == nil && (!r.OK() || string(r.Stdout.Head)+string(r.Stdout.Tail) != want) {
			err = fmt.Errorf("sandbox %d answered %+v", i, r.Outcome)
		}
		return err
	})
	if err != nil {
		return err
	}
	answered := time.Since(start)

	start = time.Now()
	if err := each(boxes, func(i int) error { return boxes[i].end(ctx) }); err != nil {
		return err
	}
	if alive, err = p.List(ctx, nil); err != nil || len(alive) > 0 {
		return errors.Join(err, fmt.Errorf("%d are still listed", len(alive)))
	}
	fmt.Printf("%s: %d sandboxes alive at once: created in %.1f s, all answered in %.1f s, all gone in %.1f s\n",
		name, c.parallel, created.Seconds(), answered.Seconds(), time.Since(start).Seconds())
	return nil
}

// each calls f for every box at once.
func each(boxes []box, f func(int) error) error {
	errs := make([]error, len(boxes))
	var wg sync.WaitGroup
	for i := range boxes {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// footprint lists everything a sandbox consists of on this host: processes,
// mounts, network namespaces, cgroups and files.
func footprint(c config) (map[string]bool, error) {
	found := map[string]bool{}
	all, err := processes()
	if err != nil {
		return nil, err
	}
	for pid, line := range all {
		if isOurs(line) {
			found[fmt.Sprintf("process %d: %s", pid, line)] = true
		}
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil {
			found["network namespace "+ns] = true
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		found["mount "+strings.Fields(line)[4]] = true
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			found["cgroup "+path] = true
		}
		return nil // a cgroup may go while we look
	})
	if err != nil {
		return nil, err
	}
	live, err := filepath.Glob(filepath.Join(c.stateDir, "rein-*", "live", "*"))
	for _, path := range live {
		found["directory "+path] = true
	}
	return found, err
}

func leftover(before, after map[string]bool) []string {
	var left []string
	for what := range after {
		if !before[what] {
			left = append(left, what)
		}
	}
	slices.Sort(left)
	return left
}
