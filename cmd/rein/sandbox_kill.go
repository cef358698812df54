package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/spf13/cobra"
)

const killHelp = `Ends sandboxes and returns when nothing of them is left. One that was there, as
records of this host say, and is gone already is success.`

// killed is what "rein sandbox kill --json" prints of each sandbox.
type killed struct {
	ID string `json:"id"`
	// Gone is true when there was nothing left to end.
	Gone bool `json:"gone_already"`
}

func (a *app) sandboxKillCommand() *cobra.Command {
	var p place
	var asJSON bool
	cmd := &cobra.Command{
		Use: "kill ID...", Short: "end sandboxes, whatever runs in them", Long: killHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("rein sandbox ls lists them", "%s takes one ID or more", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := a.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			all, failed := []killed{}, error(nil)
			for _, id := range args {
				k, err := a.kill(cmd.Context(), h, id)
				if err != nil {
					failed = errors.Join(failed, err)
					continue
				}
				all = append(all, k)
				switch {
				case asJSON:
				case k.Gone:
					a.note("%s is gone already", k.ID)
					fallthrough
				default:
					fmt.Fprintln(a.out, k.ID)
				}
			}
			if asJSON {
				failed = errors.Join(failed, a.printJSON(all))
			}
			return failed
		},
	}
	p.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// kill ends the sandbox that id names, recorded, however broken it is.
func (a *app) kill(ctx context.Context, h *host, id string) (killed, error) {
	full, err := h.find(ctx, id)
	if sandbox.KindOf(err) == sandbox.KindNotFound && h.recorded(full) {
		return killed{full, true}, nil
	}
	if err != nil && (full == "" || sandbox.KindOf(err) == sandbox.KindNotFound) {
		return killed{}, err
	}
	return a.end(ctx, h, full)
}

// end ends the sandbox with this id. One that is gone is success.
func (a *app) end(ctx context.Context, h *host, id string) (killed, error) {
	sb, err := a.attach(ctx, h, id)
	switch {
	case err == nil:
		return killed{ID: id}, closeAfter(sb.Kill(ctx), sb)
	case sandbox.KindOf(err) == sandbox.KindNotFound:
		return killed{id, true}, nil
	case isUsage(err):
		return killed{}, err
	}
	// It cannot be used any more, but what is left of it must still go.
	return killed{ID: id}, a.killBroken(ctx, h, id, err)
}

// recorded reports whether there was a sandbox of this id, made by hand or by a
// run.
func (h *host) recorded(id string) bool {
	if _, err := os.Stat(h.logPath(id)); err == nil {
		return true
	}
	logs, err := filepath.Glob(filepath.Join(h.stateDir, "runs", "*", run.AuditFile))
	for _, path := range logs {
		if err == nil && sandboxOf(path) == id {
			return true
		}
	}
	return false
}

// sandboxOf is the sandbox of a run's audit log, "" where it tells of none.
func sandboxOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for r, err := range audit.Records(f) {
		if err == nil && r.SandboxID != "" {
			return r.SandboxID
		}
	}
	return ""
}

// killBroken ends a sandbox that cannot be attached to.
func (a *app) killBroken(ctx context.Context, h *host, id string, why error) (err error) {
	log, err := a.openLog(h, id, audit.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if _, err := log.Append(audit.Entry{Kind: audit.KindKillIntent, SandboxID: id, Data: map[string]string{"because": why.Error()}}); err != nil {
		return err
	}
	ctx, cancel := sandbox.KillContext(ctx)
	defer cancel()
	killed := h.provider.Kill(ctx, id)
	outcome := map[string]any{"ok": killed == nil}
	if killed != nil {
		outcome["error"] = killed.Error()
	}
	_, err = log.Append(audit.Entry{Kind: audit.KindKilled, SandboxID: id, Data: outcome})
	return errors.Join(killed, err)
}
