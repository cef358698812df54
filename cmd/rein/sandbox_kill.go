package main

import (
	"context"
	"errors"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
)

// kill ends one sandbox, recorded, however broken it is. One that is gone is
// success.
func (a *app) kill(ctx context.Context, h *host, id string) error {
	sb, err := a.attach(ctx, h, id)
	switch {
	case err == nil:
		return closeAfter(sb.Kill(ctx), sb)
	case sandbox.KindOf(err) == sandbox.KindNotFound:
		a.note("%s is gone already", id)
		return nil
	case isUsage(err):
		return err
	}
	// It cannot be used any more, but what is left of it must still go.
	return a.killBroken(ctx, h, id, err)
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.KillTimeout)
	defer cancel()
	killed := h.provider.Kill(ctx, id)
	outcome := map[string]any{"ok": killed == nil}
	if killed != nil {
		outcome["error"] = killed.Error()
	}
	_, err = log.Append(audit.Entry{Kind: audit.KindKilled, SandboxID: id, Data: outcome})
	return errors.Join(killed, err)
}
