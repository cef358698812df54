package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/spf13/cobra"
)

const egressHelp = `What sandboxes may reach on the network. Nothing, unless network: of their target,
--allow or --bundle says so; docs/egress.md describes rules.`

func (a *app) egressCommand() *cobra.Command {
	return group("egress", "what sandboxes may reach on the network", egressHelp, a.egressTestCommand(), a.egressSuggestCommand())
}

const egressTestHelp = `Says what the policy of a target does with a host, by which rule, which secrets
requests to it are given, and whether the host can receive data. Nothing is looked up,
and nothing is sent. Without PORT every port is judged that a rule for the host names,
and 443 and 80.

  rein egress test pypi.org --bundle pypi
  rein egress test 192.0.2.7:22 --target build

Exit codes: 0 allowed, on one of the ports at least · 3 denied · 6 a person would be
asked · 2 usage or configuration.`

func (a *app) egressTestCommand() *cobra.Command {
	var p place
	var asJSON bool
	cmd := &cobra.Command{Use: "test HOST[:PORT]", Short: "whether a host may be reached, and why", Long: egressTestHelp, Args: exactly("HOST[:PORT]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := a.load()
			if err != nil {
				return err
			}
			name, t, err := resolveTarget(f.Config, p)
			if err != nil {
				return err
			}
			compiled, err := policy.Compile(t.NetworkOf())
			if err != nil {
				return err
			}
			host, port, err := splitHost(args[0])
			if err != nil {
				return err
			}
			own, err := ownAddresses(t)
			if err != nil {
				return err
			}
			e, err := compiled.Explain(host, port, own)
			if err != nil {
				n, _ := errors.AsType[*policy.NameError](err)
				return usage(n.Hint, "%s", err)
			}
			secrets := givenTo(&e, f.Config, t)
			if asJSON {
				err = a.printJSON(struct {
					Target   string `json:"configured_target"`
					Provider string `json:"provider"`
					policy.Explanation
					Secrets []given `json:"secrets,omitempty"`
				}{name, t.Provider, e, secrets})
			} else {
				err = a.sayExplanation(e, secrets)
			}
			if err != nil {
				return err
			}
			return status(exitOf(e))
		}}
	cmd.Flags().StringVar(&p.target, "target", "", "`NAME` of a target of the configuration")
	p.openFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// ownAddresses are this host's, where sandboxes of a target reach the network from
// it; nil for another host's, which are not known.
func ownAddresses(t config.Target) (policy.Ranges, error) {
	if t.Provider != config.DefaultProvider {
		return nil, nil
	}
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	own := map[netip.Addr]bool{}
	for _, a := range found {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap()] = true
		}
	}
	return func(a netip.Addr) bool { return own[a.Unmap()] }, nil
}

// splitHost reads HOST[:PORT], of which HOST is a name or an address in any
// spelling.
func splitHost(text string) (string, uint16, error) {
	const hint = "rein egress test HOST[:PORT], such as api.example.com or [2001:db8::1]:443"
	if _, err := policy.ParseAddr(text); err == nil {
		return text, 0, nil
	}
	if strings.Contains(text, "://") {
		return "", 0, usage(cmp.Or(ofURL(text, false), hint), "%s is a URL", cleanLine(text))
	}
	host, port, ok := cutLast(text, ":")
	if !ok {
		return text, 0, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", 0, usage(hint, "%q is no port", port)
	}
	return host, uint16(n), nil
}

// exitOf is the exit code of an explanation: that of its most open port.
func exitOf(e policy.Explanation) int {
	best := policy.Deny
	for _, p := range e.Ports {
		best = max(best, p.Verdict.Action)
	}
	switch best {
	case policy.Allow:
		return exitOK
	case policy.Ask:
		return exitNeedsHuman
	}
	return exitDenied
}

// exitDenied is the code of a target that may not be reached.
const exitDenied = 3

func (a *app) sayExplanation(e policy.Explanation, secrets []given) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", cleanLine(e.Target))
	if e.Registrable != "" && e.Registrable != e.Target {
		fmt.Fprintf(&b, ", of %s", cleanLine(e.Registrable))
	}
	if e.Class != "" {
		fmt.Fprintf(&b, ", %s", e.Class)
	}
	b.WriteString("\n")
	for _, p := range e.Ports {
		fmt.Fprintf(&b, "  port %-5d %s\n", p.Port, sayVerdict(p.Verdict))
	}
	sayGiven(&b, secrets)
	for _, why := range e.Odd {
		fmt.Fprintf(&b, "  look at it: %s\n", cleanLine(why))
	}
	switch {
	case e.Receives != "":
		fmt.Fprintf(&b, "  receives data: %s\n", cleanLine(e.Receives))
	case e.Known:
		b.WriteString("  receives data: no way is known by which others than its owner could\n")
	default:
		b.WriteString("  receives data: not known; whoever owns a host sees what it is sent\n")
	}
	for _, note := range e.Notes {
		fmt.Fprintf(&b, "  note: %s\n", cleanLine(note))
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

// sayVerdict is a verdict in words, with what decided.
func sayVerdict(v policy.Verdict) string {
	word := map[policy.Action]string{policy.Allow: "allowed", policy.Ask: "a person is asked", policy.Deny: "denied"}[v.Action]
	if v.Action != policy.Deny {
		word += " (" + string(v.Proto) + ")"
	}
	if v.Reported {
		word += ", and only because the policy reports"
	}
	said := cleanLine(v.Reason)
	if v.Rule == policy.RuleDefault {
		said += " (" + policy.RuleDefault + ")"
	}
	return word + ": " + said
}

const egressSuggestHelp = `Prints the smallest policy under which what a run tried on the network would be
allowed, for network: of a target: exact names and ports. Whether it should be is for
you to judge: read it line by line. Never in it are wildcards, metadata services,
addresses that are not public and names that look like data; they are listed after it.`

// suggestion is what "rein egress suggest" prints as JSON.
type suggestion struct {
	RunID string `json:"run_id"`
	policy.Suggestion
}

func (a *app) egressSuggestCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "suggest [RUN]", Short: "the smallest policy for what a run tried on the network", Long: egressSuggestHelp, Args: oneOrNewest,
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := a.runDir(orNewest(args))
			if err != nil {
				return err
			}
			seen, err := tried(filepath.Join(dir, run.NetworkFile))
			if errors.Is(err, fs.ErrNotExist) {
				return usage("it is written at the end of a run whose provider keeps such a record", "run %s has no record of the network", filepath.Base(dir))
			}
			if err != nil {
				return err
			}
			s := suggestion{filepath.Base(dir), policy.Suggest(seen)}
			if asJSON {
				return a.printJSON(s)
			}
			_, err = io.WriteString(a.out, s.yaml())
			return err
		}}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// tried reads what a run tried on the network.
func tried(path string) ([]policy.Seen, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var seen []policy.Seen
	had := map[policy.Seen]bool{}
	for rec, err := range audit.Records(f) {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var n sandbox.NetworkRecord
		if err := json.Unmarshal(rec.Data, &n); err != nil {
			return nil, fmt.Errorf("%s: record %d: %w", path, rec.Seq, err)
		}
		if n.Seq == 0 { // of what it is a copy
			continue
		}
		one := policy.Seen{Name: n.Name, Port: uint16(n.Port), Proto: policy.Proto(n.Proto)} // #nosec: a port is one
		if addr, err := netip.ParseAddr(n.Address); err == nil {
			one.Addr = addr
		}
		if strings.HasPrefix(n.Rule, "address.") {
			one.Refused = n.Reason
		}
		if !had[one] {
			had[one] = true
			seen = append(seen, one)
		}
	}
	return seen, nil
}

// yaml is what can be pasted below a target.
func (s suggestion) yaml() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# what run %s tried on the network\n", cleanLine(s.RunID))
	for _, note := range s.Notes {
		fmt.Fprintf(&b, "# look at it: %s\n", cleanLine(note))
	}
	switch {
	case len(s.Document.Rules) == 0 && len(s.Left) > 0:
		b.WriteString("network: {}   # nothing can be suggested\n")
	case len(s.Document.Rules) == 0:
		b.WriteString("network: {}   # nothing is needed\n")
	default:
		b.WriteString("network:\n  rules:\n")
	}
	for _, r := range s.Document.Rules {
		if r.CIDR != "" {
			fmt.Fprintf(&b, "    - cidr: %q\n", r.CIDR)
		} else {
			fmt.Fprintf(&b, "    - host: %s\n", r.Host)
		}
		if len(r.Ports) > 0 {
			fmt.Fprintf(&b, "      ports: [%s]\n", strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Ports), " ", ", "), "[]"))
		}
		if r.Proto != "" {
			fmt.Fprintf(&b, "      proto: %s\n", r.Proto)
		}
	}
	for _, l := range s.Left {
		fmt.Fprintf(&b, "# left out: %s: %s\n", cleanLine(sayTarget(l.Seen)), cleanLine(l.Reason))
	}
	return b.String()
}

func sayTarget(s policy.Seen) string {
	target := s.Name
	if target == "" && s.Addr.IsValid() {
		target = s.Addr.String()
	}
	if s.Port != 0 {
		target += " port " + strconv.Itoa(int(s.Port))
	}
	return strings.TrimSpace(string(s.Proto) + " " + short(target, 100))
}
