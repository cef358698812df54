package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/spf13/cobra"
)

const sandboxHelp = `Sandboxes outside a run. Each has its end from birth, and everything done to one
is recorded in $XDG_STATE_HOME/rein/sandboxes/ID/audit.jsonl. ID is a sandbox's id
or, from six characters on, a beginning that no other has.`

func (a *app) sandboxCommand() *cobra.Command {
	return group("sandbox", "sandboxes outside a run", sandboxHelp,
		a.sandboxCreateCommand(), a.sandboxListCommand(), a.sandboxExecCommand(), a.sandboxShellCommand(), a.sandboxCopyCommand(),
		a.sandboxPauseCommand(), a.sandboxResumeCommand(), a.sandboxRotateCommand(), a.sandboxKillCommand(), a.sandboxGCCommand())
}

// place says which target a command is about, and what is otherwise in it.
type place struct {
	target, runtime, image string
	opening
	makes bool // whether a sandbox is to be made
}

func (p *place) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.target, "target", "", "`NAME` of a target of the configuration")
	cmd.Flags().StringVar(&p.runtime, "runtime", "", "OCI `RUNTIME`: gvisor, runc, or a path")
}

// args are the flags again, for another process.
func (p *place) args() (out []string) {
	if p.target != "" {
		out = append(out, "--target", p.target)
	}
	if p.runtime != "" {
		out = append(out, "--runtime", p.runtime)
	}
	return out
}

// makingFlags are for commands that make a sandbox.
func (p *place) makingFlags(cmd *cobra.Command) {
	p.makes = true
	p.openFlags(cmd)
	cmd.Flags().StringVar(&p.image, "image", "", "`IMAGE` to make it from: host, or an OCI reference that the configuration allows")
}

// host is a provider opened for a target, with what is needed to record.
type host struct {
	provider sandbox.Provider
	target   config.Target
	file     *config.File
	stateDir string
	swept    []string // left-overs removed when it was opened
}

func (a *app) open(ctx context.Context, p place) (*host, error) {
	f, err := a.load()
	if err != nil {
		return nil, err
	}
	_, t, err := resolveTarget(f.Config, p)
	if err != nil {
		return nil, err
	}
	provider, err := a.provider(ctx, f, t, p.makes)
	if err != nil {
		return nil, err
	}
	dir, err := a.env.stateDir()
	return &host{provider: provider, target: t, file: f, stateDir: dir, swept: a.sweep(ctx, provider)}, err
}

// isSandboxID reports whether s may be the id of a sandbox. It becomes the name
// of a directory.
func isSandboxID(s string) bool {
	return s != "" && len(s) <= 128 && s[0] != '-' && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// logPath is the audit log of a sandbox outside a run.
func (h *host) logPath(id string) string {
	return filepath.Join(h.stateDir, "sandboxes", id, run.AuditFile)
}

// attached is a sandbox someone made before, with its log.
type attached struct {
	*sandbox.Sandbox
	log *audit.Log
}

// Close releases the connections and the log; the sandbox lives on.
func (s *attached) Close() error { return errors.Join(s.Sandbox.Close(), s.log.Close()) }

// minBeginning is how much of an id names a sandbox, in characters.
const minBeginning = 6

// find returns the id of the sandbox that id is, or is the only one to begin
// with.
func (h *host) find(ctx context.Context, id string) (string, error) {
	if !isSandboxID(id) {
		return "", usage("rein sandbox ls lists them", "%q is no id of a sandbox", id)
	}
	_, absent := h.provider.Get(ctx, id)
	if sandbox.KindOf(absent) != sandbox.KindNotFound || len(id) < minBeginning {
		return id, absent
	}
	list, err := h.provider.List(ctx, nil)
	if err != nil {
		return "", errors.Join(absent, err)
	}
	var found []string
	for _, s := range list {
		if strings.HasPrefix(s.ID, id) {
			found = append(found, s.ID)
		}
	}
	switch len(found) {
	case 0:
		return id, absent
	case 1:
		return found[0], nil
	}
	return "", usage("write more of it: "+strings.Join(found, ", "), "%d sandboxes begin with %q", len(found), id)
}

// attach opens the sandbox that id names. The caller closes it.
func (a *app) attach(ctx context.Context, h *host, id string) (*attached, error) {
	id, err := h.find(ctx, id) // before a log is made for a slip of the hand
	if err != nil {
		return nil, err
	}
	masker, err := a.masker(ctx, h.file.Config)
	if err != nil {
		return nil, err
	}
	log, err := a.openLog(h, id, audit.Options{Masker: masker})
	if err != nil {
		return nil, err
	}
	sb, err := sandbox.Attach(ctx, h.provider, id, sandbox.Options{Log: log, Masker: masker})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return &attached{sb, log}, nil
}

// closeAfter closes the sandbox's connections; the command's own end wins.
func closeAfter(err error, s *attached) error {
	closed := s.Close()
	if err != nil {
		return err
	}
	return closed
}

// withSandbox attaches to a sandbox for one act.
func (a *app) withSandbox(cmd *cobra.Command, p place, id string, act func(*attached) error) error {
	h, err := a.open(cmd.Context(), p)
	if err != nil {
		return err
	}
	sb, err := a.attach(cmd.Context(), h, id)
	if err != nil {
		return err
	}
	return closeAfter(act(sb), sb)
}

const createHelp = `Makes a sandbox from a target of the configuration and prints its id. It ends by
itself after --ttl; "rein sandbox kill ID" ends it before. What the target's network,
--allow and --bundle allow leaves it only while a rein is attached: exec, shell, cp.`

// maxTTL is how long a sandbox outside a run may live: as long as one of the
// longest preset's runs.
func maxTTL() time.Duration { return budget.Long().MaxWallTime + budget.Margin }

func (a *app) sandboxCreateCommand() *cobra.Command {
	var p place
	var asJSON bool
	ttl := config.Duration(30 * time.Minute)
	var labels []string
	cmd := &cobra.Command{
		Use: "create", Short: "make a sandbox and print its id", Long: createHelp, Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if time.Duration(ttl) > maxTTL() {
				return usage("--ttl "+config.Duration(maxTTL()).String()+" is the most",
					"--ttl %s: a sandbox outside a run lives at most %s", ttl, config.Duration(maxTTL()))
			}
			h, err := a.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			a.minted.place = p.args()
			secrets, err := a.vaultSecrets(cmd.Context(), h.file.Config, h.target)
			if err != nil {
				return err
			}
			spec := specOf(h.target, secrets...)
			spec.TTL = time.Duration(ttl)
			if spec.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			for _, n := range hostNotices(h.target, h.file.Config.Egress) {
				a.note("%s", n)
			}
			return a.create(cmd.Context(), h, spec, asJSON)
		},
	}
	p.flags(cmd)
	p.makingFlags(cmd)
	cmd.Flags().Var(textValue[config.Duration, *config.Duration]{&ttl, "duration"}, "ttl", "time to live, at most "+config.Duration(maxTTL()).String())
	cmd.Flags().StringArrayVar(&labels, "label", nil, "`KEY=VALUE` to find the sandbox by (repeatable)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func parseLabels(pairs []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, l := range pairs {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, usage("--label KEY=VALUE", "%q is no label", l)
		}
		labels[k] = v
	}
	return labels, nil
}

// create makes one sandbox. Its log begins before its id is known, under a
// name of its own that is kept when no sandbox came of it.
func (a *app) create(ctx context.Context, h *host, spec sandbox.Spec, asJSON bool) (err error) {
	masker, err := a.masker(ctx, h.file.Config)
	if err != nil {
		return err
	}
	dir := filepath.Join(h.stateDir, "sandboxes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return withHint(err, "choose a directory you can write with XDG_STATE_HOME")
	}
	before := filepath.Join(dir, fmt.Sprintf("create-%d-%d.jsonl", time.Now().UnixNano(), os.Getpid()))
	log, err := audit.Create(before, audit.Options{Masker: masker})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	sb, err := sandbox.Create(ctx, h.provider, spec, sandbox.Options{Log: log, Masker: masker})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	after := h.logPath(sb.ID())
	if err := errors.Join(os.MkdirAll(filepath.Dir(after), 0o700), os.Rename(before, after)); err != nil {
		return errors.Join(err, sb.Kill(context.WithoutCancel(ctx)))
	}
	if err := a.minted.outlive(sb.ID()); err != nil {
		return errors.Join(err, sb.Kill(context.WithoutCancel(ctx)))
	}
	info := sb.Info()
	if asJSON {
		return a.printJSON(info)
	}
	if _, err := fmt.Fprintln(a.out, info.ID); err != nil {
		return errors.Join(err, sb.Kill(context.WithoutCancel(ctx))) // nobody will know its id
	}
	a.note("%s/%s, image %s, separation %s, ends %s", info.Provider, info.Runtime, info.Image, info.Separation, info.ExpiresAt.Local().Format(time.DateTime))
	for _, n := range info.Notes {
		a.note("note: %s", n)
	}
	if config.Asks(spec.Network) {
		a.note("note: nobody is asked outside a run: what the network's policy asks about is denied")
	}
	return nil
}

func (a *app) sandboxListCommand() *cobra.Command {
	var p place
	var asJSON bool
	var labels []string
	cmd := &cobra.Command{
		Use: "ls", Short: "list the sandboxes, newest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := a.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			want, err := parseLabels(labels)
			if err != nil {
				return err
			}
			list, err := h.provider.List(cmd.Context(), want)
			if err != nil {
				return err
			}
			if asJSON {
				if list == nil {
					list = []sandbox.Info{}
				}
				return a.printJSON(list)
			}
			return a.printSandboxes(list)
		},
	}
	p.flags(cmd)
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only those with `KEY=VALUE` (repeatable)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) printSandboxes(list []sandbox.Info) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SANDBOX\tSTATE\tRUNTIME\tIMAGE\tCREATED\tENDS IN\tLABELS")
	for _, s := range list {
		state := string(s.State)
		if s.Reason != "" {
			state += " (" + s.Reason + ")"
		}
		var labels []string
		for k, v := range s.Labels {
			labels = append(labels, k+"="+v)
		}
		slices.Sort(labels)
		left := "-"
		if d := time.Until(s.ExpiresAt).Round(time.Second); d > 0 {
			left = config.Duration(d).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cleanLine(s.ID), cleanLine(state), cleanLine(s.Runtime), cleanLine(s.Image),
			s.CreatedAt.Local().Format(time.DateTime), left, cleanLine(strings.Join(labels, " ")))
	}
	return w.Flush()
}
