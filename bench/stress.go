package main

import (
	"context"
	"errors"
	"fmt"
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
		if err := stressRuntime(ctx, c, p, r.runtime, r.name); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

func stressRuntime(ctx context.Context, c config, p sandbox.Provider, runtime, name string) error {
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

	start = time.Now()
	if err := each(boxes, func(i int) error { return answer(ctx, boxes[i], i) }); err != nil {
		return err
	}
	answered := time.Since(start)
	ids, err := running(ctx, p)
	if err != nil {
		return err
	}
	if len(ids) != c.parallel {
		return fmt.Errorf("%d of %d are running", len(ids), c.parallel)
	}
	t, err := traceOf(stateOf(c, runtime), ids)
	if err != nil {
		return err
	}

	start = time.Now()
	if err := each(boxes, func(i int) error { return boxes[i].end(ctx) }); err != nil {
		return err
	}
	gone := time.Since(start)
	if ids, err = running(ctx, p); err != nil || len(ids) > 0 {
		return errors.Join(err, fmt.Errorf("%d are still listed", len(ids)))
	}
	left, err := t.left()
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
	}
	fmt.Printf("\n%s: %d sandboxes alive at once: created in %.1f s, all answered in %.1f s, all gone in %.1f s\n",
		name, c.parallel, created.Seconds(), answered.Seconds(), gone.Seconds())
	fmt.Printf("  of %d processes and %d network namespaces, and of mounts, cgroups and directories, nothing is left\n",
		len(t.processes), len(t.namespaces))
	return nil
}

// answer has a sandbox say which one it is.
func answer(ctx context.Context, b box, i int) error {
	r, err := b.sb.Run(ctx, sandbox.Command{Tool: "bench", Shell: fmt.Sprintf("echo %d", i)})
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("%d\n", i); !r.OK() || string(slices.Concat(r.Stdout.Head, r.Stdout.Tail)) != want {
		return fmt.Errorf("sandbox %d answered %+v", i, r.Outcome)
	}
	return nil
}

// running returns the ids of the sandboxes that are.
func running(ctx context.Context, p sandbox.Provider) ([]string, error) {
	all, err := p.List(ctx, nil)
	var ids []string
	for _, info := range all {
		if info.State == sandbox.StateRunning {
			ids = append(ids, info.ID)
		}
	}
	return ids, err
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
