package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
	"github.com/spf13/cobra"
)

const verifyHelp = `Checks the hash chain of a run's audit log: that no record was edited, removed or
reordered. That nothing was cut from its end can only be told from the head the
run printed last on stderr, or any later copy of it: give it with --head. The
head in the run's own report is checked, too, but lies beside the log: it proves
nothing to whom does not trust this directory.

The audit log holds the head of network.jsonl, the record of what the sandbox
tried on the network, and the hashes of the transcript's entries, of the report,
of the patch and of the artifacts. All are checked against it, and are as good
as the log is.

Exits 0 when all are intact, 1 when one is not, 2 for a usage error.`

func (a *app) runsVerifyCommand() *cobra.Command {
	var head string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify ID", Short: "check that a run's records were not changed", Long: verifyHelp, Args: exactly("ID"),
		RunE: func(_ *cobra.Command, args []string) error {
			head = strings.TrimSpace(head)
			if err := audit.CheckHead(head); err != nil {
				return usage("--head takes what the run printed last on stderr, NUMBER:HASH", "%s", err)
			}
			dir, err := a.runDir(args[0])
			if err != nil {
				return err
			}
			v, err := a.verify(dir, head)
			if err != nil {
				return err
			}
			return a.printVerdict(v, asJSON)
		},
	}
	cmd.Flags().StringVar(&head, "head", "", "the `HEAD` the run printed: proves that the end was not cut")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// verdict is what was found of a run's records.
type verdict struct {
	audit.Verdict                // of the audit log
	Network       networkVerdict `json:"network"`
	Files         filesVerdict   `json:"files"`
}

// filesVerdict is what was found of the run's other files.
type filesVerdict struct {
	Checked []string       `json:"checked"`
	Wrong   []run.Mismatch `json:"wrong,omitempty"`
}

func (v filesVerdict) String() string {
	switch {
	case len(v.Wrong) > 0:
		var list []string
		for _, w := range v.Wrong {
			list = append(list, w.Path+": "+w.Reason)
		}
		return "altered: " + strings.Join(list, "; ")
	case len(v.Checked) == 0:
		return "unknown: there is nothing to check: the audit log has the hash of none"
	}
	return "as the audit log says: " + strings.Join(v.Checked, ", ")
}

// networkVerdict is what was found of network.jsonl: Unknown when there is
// nothing to compare it with.
type networkVerdict struct {
	audit.Verdict
	faulty bool
}

func (a *app) verify(dir, head string) (verdict, error) {
	f, err := os.Open(filepath.Join(dir, run.AuditFile))
	if err != nil { // no slip of the hand: the run is there, its log is not
		return verdict{}, err
	}
	defer f.Close()
	report, err := run.ReadReport(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			a.note("warning: the report gives no head: %s", err)
		}
		report = &run.Report{}
	}
	v := verdict{Verdict: verifyAudit(f, head, report)}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return v, err
	}
	v.Network = verifyNetwork(dir, networkHead(f, report), v.Verdict)
	v.Files.Checked, v.Files.Wrong, err = run.Compare(dir)
	return v, err
}

// verifyAudit checks a log against head or, without one, that in the report
// beside it. Who can write the one can write the other, so the end is then
// still not proven.
func verifyAudit(log io.Reader, head string, r *run.Report) audit.Verdict {
	if head != "" {
		return audit.Verify(log, head)
	}
	if r.AuditHead == (audit.Head{}) {
		return audit.Verify(log, "")
	}
	v := audit.Verify(log, r.AuditHead.String())
	if v.State == audit.Intact {
		v.State = audit.Unproven
		v.Reason = fmt.Sprintf("the chain of %d records is intact and ends as the report beside it says; only a head from elsewhere proves that", v.Records)
	}
	return v
}

// networkEnd is what is known of the end of network.jsonl.
type networkEnd struct {
	head   string // audit.Head.String
	source string // who says so; empty: nobody
}

// records is the number in the head.
func (e networkEnd) records() string {
	n, _, _ := strings.Cut(e.head, ":")
	return n
}

// networkHead finds the head of network.jsonl in the audit log or, when its
// record is not there any more, in the report.
func networkHead(log io.Reader, r *run.Report) networkEnd {
	var end networkEnd
	for rec, err := range audit.Records(log) {
		var data struct{ Copy *audit.Head } // only the last record of this kind has it
		if err == nil && rec.Kind == audit.KindNetwork && json.Unmarshal(rec.Data, &data) == nil && data.Copy != nil {
			end = networkEnd{data.Copy.String(), "the audit log"}
		}
	}
	if end.source == "" && r.NetworkHead != "" {
		end = networkEnd{r.NetworkHead, "the report"}
	}
	return end
}

// verifyNetwork checks network.jsonl against its head, which is as good as the
// log it comes from.
func verifyNetwork(dir string, want networkEnd, log audit.Verdict) (v networkVerdict) {
	f, err := os.Open(filepath.Join(dir, run.NetworkFile))
	absent := errors.Is(err, fs.ErrNotExist)
	switch {
	case absent && (want.source == "" || want.records() == "0"):
		v.State, v.Reason = audit.Unknown, "there is nothing to check: the run has no record of its network"
		return v
	case absent:
		v.State, v.faulty = audit.Truncated, true
		v.Reason = fmt.Sprintf("%s is gone, which ended with record %s as %s says", run.NetworkFile, want.records(), want.source)
		return v
	case err != nil:
		v.State, v.Reason, v.faulty = audit.Unknown, err.Error(), true
		return v
	}
	defer f.Close()
	v.Verdict = audit.Verify(f, want.head)
	v.faulty = !v.OK()
	switch {
	case v.faulty:
	case want.source == "":
		v.State, v.Reason = audit.Unknown, "it cannot be checked: neither the audit log nor the report has its head"
	case v.State == audit.Extended: // it was complete
		v.State, v.faulty = audit.Altered, true
		v.Reason = fmt.Sprintf("records were added after number %s, where %s says it ends", want.records(), want.source)
	case !log.OK():
		v.State = audit.Unproven
		v.Reason = fmt.Sprintf("it is as %s says, but that was changed", want.source)
	case log.State != audit.Intact || want.source != "the audit log":
		v.State = audit.Unproven
		v.Reason = fmt.Sprintf("it is as %s beside it says", want.source)
	}
	return v
}

// printVerdict says what was found. Only records with a proven end are called
// intact without reservation.
func (a *app) printVerdict(v verdict, asJSON bool) error {
	if asJSON {
		if err := a.printJSON(v); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintf(a.out, "%s: %s\nnetwork %s: %s\nfiles %s\n", v.State, cleanLine(v.Reason),
		v.Network.State, cleanLine(v.Network.Reason), cleanLine(v.Files.String())); err != nil {
		return err
	}
	if !v.OK() || v.Network.faulty || len(v.Files.Wrong) > 0 {
		return exitStatus(exitFailure)
	}
	if v.State == audit.Unproven {
		fmt.Fprintln(a.err, a.style("hint:", styleHint), "--head with what the run printed last on stderr proves the end")
	}
	return nil
}
