package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/lab/leak"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
)

// search looks for the keys inside, while a request that has one waits for its
// answer.
func (c *cage) search(ctx context.Context, b caged) {
	type outcome struct {
		rows []leak.Row
		err  error
	}
	waited := make(chan outcome, 1)
	go func() { // ends with the answer, which comes below
		rows, err := c.try(ctx, b, leak.PartWait, "")
		waited <- outcome{rows, err}
	}()
	c.step("a request is under way", "the vendor has it, with the key", func() (string, bool) {
		select {
		case <-c.vendor.came:
			return "it waits for its answer", true
		case o := <-waited:
			waited <- o
			return fmt.Sprintf("it ended: %+v, %v", o.rows, o.err), false
		case <-ctx.Done():
			return ctx.Err().Error(), false
		}
	})
	c.part(ctx, b, "", leak.PartSearch, "")
	c.asRoot(ctx, b)
	close(c.vendor.late)
	o := <-waited
	if o.err != nil {
		c.step("the request that was under way", "it is answered", func() (string, bool) { return o.err.Error(), false })
	}
	for _, r := range o.rows {
		c.judgeRow(r, "")
	}
}

// asRoot says whether the search was root's: commands are not root but where one id
// is all there is.
func (c *cage) asRoot(ctx context.Context, b caged) {
	const name = "search: as root of the sandbox"
	if b.box.Info().Separation == "full" {
		c.add(Step{Name: name, NotTried: true, Got: "not tried: no command is root here, and none can become it"})
		return
	}
	c.step(name, "commands are root's, as the search was", func() (string, bool) {
		r, err := b.box.Run(ctx, sandbox.Command{Tool: "lab", Shell: "id -u"})
		if err != nil {
			return err.Error(), false
		}
		return "uid " + strings.TrimSpace(string(r.Stdout.Head)), string(r.Stdout.Head) == "0\n"
	})
}

// searchHost looks for the keys where rein keeps what it writes, and in what its
// processes were started with, while the sandboxes live.
func (c *cage) searchHost(name string) {
	trap := filepath.Join(c.env.StateDir, "lab", "honeypot-"+c.token)
	finder := leak.NewFinder(c.wanted(caged{}).Traces...)
	c.step(name, "the keys in no file of the state directory, and in no environment or argument of a process of rein's, unless the kernel shows it to nobody but root; a honeypot is found", func() (string, bool) {
		if err := os.WriteFile(trap, []byte("x "+c.honey), 0o600); err != nil {
			return err.Error(), false
		}
		defer os.Remove(trap)
		honey, files, closed := false, 0, 0
		var faults []string
		look := func(name string) {
			f, err := os.Open(name)
			if errors.Is(err, fs.ErrPermission) {
				closed++
			}
			if err != nil {
				return // it has gone, or is a socket
			}
			defer f.Close()
			_, found, err := finder.Find(f)
			if errors.Is(err, fs.ErrPermission) { // of /proc, which asks again when it is read
				closed++
				return
			}
			files++ // what could be read of it
			for key := range found {
				if key == leak.Honeypot {
					honey = true
					continue
				}
				faults = append(faults, "the key "+key+" is in "+name)
			}
		}
		err := filepath.WalkDir(c.env.StateDir, func(name string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				if info, err := e.Info(); err == nil && info.ModTime().After(c.since) {
					look(name)
				}
			}
			return nil // what cannot be listed is another's
		})
		written, processes := files, rein()
		for _, dir := range processes {
			look(dir + "/environ")
			look(dir + "/cmdline")
		}
		got := fmt.Sprintf("%d files; of %d processes %d environments and arguments, and %d closed to uid %d; honeypot found: %v, %v %v",
			written, len(processes), files-written, closed, os.Geteuid(), honey, faults, err)
		read := files > written && (closed == 0 || os.Geteuid() != 0)
		return got, len(faults) == 0 && honey && read && err == nil
	})
}

// rein are the directories in /proc of keepers, runtimes and execds.
func rein() (list []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // a good pattern
	for _, name := range lines {
		b, err := os.ReadFile(name)
		if err == nil && (strings.Contains(string(b), "rein-keep") || strings.Contains(string(b), "runsc") || strings.Contains(string(b), "rein-execd") || strings.Contains(string(b), "rein-lab")) {
			list = append(list, filepath.Dir(name))
		}
	}
	return list
}

// denied asks the provider what it saw of the ways: for each rule by which one was
// refused, as many records as refusals, or more.
func (c *cage) denied(ctx context.Context, id string) {
	c.step("recorded", "the network record has each refusal, by its rule, and nothing that passed but to the vendors", func() (string, bool) {
		log, err := sandbox.NetworkRecords(ctx, c.env.Provider, id, 0)
		if err != nil {
			return err.Error(), false
		}
		counts, passed := map[string]int{}, []string{}
		for _, r := range log.Records {
			switch {
			case r.Verdict == "deny":
				counts[ruleKind(r.Rule)] += r.Count
			case !slices.ContainsFunc(c.hosts, func(h vendorHost) bool { return h.name == r.Name }):
				passed = append(passed, fmt.Sprintf("%s %s:%d (%s)", r.Name, r.Address, r.Port, r.Verdict))
			}
		}
		want := map[string]int{}
		for _, r := range c.rows {
			outcome, _, _ := strings.Cut(r.Seen, ": ")
			if kind := refusedAs(r.Seen, outcome); kind != "" {
				want[kind]++
			}
		}
		var missing []string
		for kind, n := range want {
			if counts[kind] < n {
				missing = append(missing, fmt.Sprintf("%s: %d refusals, %d on record", kind, n, counts[kind]))
			}
		}
		got := fmt.Sprintf("%v in %d records, head %s", counts, len(log.Records), log.Head)
		if len(missing)+len(passed) > 0 || len(want) == 0 {
			return fmt.Sprintf("missing: %v; passed: %v; %s", missing, passed, got), false
		}
		return got, true
	})
}

// ruleKind is a rule as a way sees it: in its vendor's words it does not say which of
// those about bodies it was.
func ruleKind(rule string) string {
	switch rule {
	case "models.hosted", "models.url", "models.price", "models.form", "models.asked":
		return "models.asked"
	}
	return rule
}

// refusedAs is the kind of the rule that a way was refused by; empty where it cannot
// be told.
func refusedAs(seen, outcome string) string {
	switch {
	case strings.HasPrefix(seen, string(leak.Asked)):
		return "models.asked"
	case strings.HasPrefix(seen, string(leak.NoModel)):
		return "models.model"
	case strings.HasPrefix(seen, string(leak.Spent)):
		return "models.budget"
	case strings.HasPrefix(outcome, "models."), strings.HasPrefix(outcome, "vault."), strings.HasPrefix(outcome, "http."):
		return outcome
	}
	return ""
}

// metered compares what the vendor served with what the meter was told.
func (c *cage) metered() {
	c.step("metered", "each request that a model answered is counted, with what it came to", func() (string, bool) {
		served := 0
		// The gateway says how a request ended when its answer has gone.
		for end := time.Now().Add(3 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			_, served = c.vendor.all()
			c.gauge.mu.Lock()
			same := c.gauge.open == 0 && c.gauge.ended == served
			c.gauge.mu.Unlock()
			if same || time.Now().After(end) {
				break
			}
		}
		got := fmt.Sprintf("served %d; %s", served, c.gauge)
		c.gauge.mu.Lock()
		defer c.gauge.mu.Unlock()
		return got, served > 0 && c.gauge.open == 0 && c.gauge.ended == served && c.gauge.unknown == 0 && c.gauge.tokens == int64(served*(a6Input+a6Output))
	})
}

// spend has the budget come to its end. It is false when that was not tried.
func (c *cage) spend(ctx context.Context, b caged) bool {
	if err := c.limit(1); err != nil {
		c.step("the budget", "one request is left", func() (string, bool) { return err.Error(), false })
		return false
	}
	_, before := c.vendor.all()
	c.rows = nil
	if !c.part(ctx, b, "", leak.PartSpent, "") {
		return false
	}
	c.step("the budget is used up", "one request was served, and nothing after it reached the vendor", func() (string, bool) {
		_, after := c.vendor.all()
		return fmt.Sprintf("%d served", after-before), after-before == 1
	})
	c.denied(ctx, b.box.ID())
	return true
}

// judgeVendor asks the vendor what it was sent.
func (c *cage) judgeVendor(boxes ...caged) {
	c.step("control: the vendors", "they were sent keys by calls of their own alone, and neither another's key nor a placeholder but their own in what was said", func() (string, bool) {
		arrived, _ := c.vendor.all()
		keys := 0
		for _, a := range arrived {
			fault := ""
			for _, b := range boxes {
				for at, p := range b.placeholders {
					text := a.text
					if at == a.at { // it may be told what the agent has printed
						text = a.text[:a.body]
					}
					if strings.Contains(text, p) {
						fault = "a placeholder"
					}
				}
			}
			if strings.Contains(a.text, c.foreign) || strings.Contains(a.text, c.foreign[4:]) {
				fault = "another's key"
			}
			if fault == "" && !a.key {
				fault = "a request without the key"
			}
			if fault != "" {
				return fmt.Sprintf("they were sent %s: %.300q", fault, a.text), false
			}
			keys++
		}
		return fmt.Sprintf("%d requests, %d of them with the key", len(arrived), keys), keys > 0
	})
}

// die ends the sandbox and shows that its placeholders are dead.
func (c *cage) die(ctx context.Context, b, other caged) {
	if err := c.limit(1 << 20); err != nil {
		c.step("the budget", "it is raised", func() (string, bool) { return err.Error(), false })
	}
	c.step("destroy", "the sandbox is gone, and nothing of it is in the state directory", func() (string, bool) {
		if !b.owned { // else the run has ended it
			if err := b.box.Kill(ctx); err != nil {
				return err.Error(), false
			}
		}
		_, err := c.env.Provider.Get(ctx, b.box.ID())
		left, _ := filepath.Glob(filepath.Join(c.env.StateDir, "live", b.box.ID())) // a good pattern
		return fmt.Sprintf("%v, %d directories", err, len(left)), sandbox.KindOf(err) == sandbox.KindNotFound && len(left) == 0
	})
	c.step("control: the placeholder at the vendor", "refused: it is no key", func() (string, bool) {
		h := c.hosts[0]
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.vendor.url+"/"+h.at+"/chat/completions", strings.NewReader(`{"model":"`+c.model+`"}`))
		if err != nil {
			return err.Error(), false
		}
		if req.Header.Set("Authorization", "Bearer "+b.placeholders[h.at]); h.as == vault.Header {
			req.Header.Set(h.field, b.placeholders[h.at])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err.Error(), false
		}
		defer resp.Body.Close()
		return resp.Status, resp.StatusCode == http.StatusUnauthorized
	})
	c.part(ctx, other, "afterwards, ", leak.PartDead, b.placeholders[c.hosts[0].at])
}

// traps are files of a workspace that hold credentials.
var traps = []string{".env", ".aws/credentials", ".ssh/id_ed25519", ".netrc", ".npmrc", "sub/.env", ".config/gcloud/credentials.json"}

// trapped makes a workspace with one file that is none, and credentials.
func (c *cage) trapped() (dir string, ok bool) {
	dir, err := os.MkdirTemp(filepath.Join(c.env.StateDir, "lab"), "workspace-")
	for _, name := range append([]string{"main.go"}, traps...) {
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte("honeypot "+c.token+"\n"), 0o600)
		}
	}
	if err != nil {
		return dir, c.step("workspace", "a directory with honeypots", func() (string, bool) { return err.Error(), false })
	}
	return dir, true
}

// honeypots has a run with a workspace that holds credentials, and with some inside
// that a program tries to send away.
func (c *cage) honeypots(ctx context.Context) {
	dir, ok := c.trapped()
	defer os.RemoveAll(dir) // what is left is honeypots
	if !ok {
		return
	}
	w := &thief{send: c.theft()}
	limits := budget.Quick()
	limits.MaxWallTime = A6Limit
	report, err := run.Do(ctx, run.Options{Task: "honeypots", Provider: c.env.Provider, Target: run.Target{Name: "lab", Spec: c.env.Spec}, Limits: limits,
		Workspace: run.Workspace{Dir: dir}, StateDir: filepath.Join(c.env.StateDir, "lab"), Masker: c.env.Masker}, w)
	c.step("honeypots of the workspace", "of its files with credentials none is inside, the other is", func() (string, bool) {
		if report == nil {
			return fmt.Sprint(err), false
		}
		return fmt.Sprintf("inside: %q; left out: %v", w.files, report.Inputs.Secrets), w.files == "./main.go\n" && len(report.Inputs.Secrets) > 0
	})
	c.step("honeypots inside", "a program that sends them away fails, and each attempt is on record as denied", func() (string, bool) {
		if report == nil {
			return "no report", false
		}
		denied, other := 0, 0
		for _, n := range report.Network {
			if n.Verdict == "deny" {
				denied += n.Count
			} else {
				other++
			}
		}
		return fmt.Sprintf("%s; %d attempts denied, %d other", w.ended, denied, other), w.failed && denied > 0 && other == 0
	})
}

// thief is a worker that looks at its workspace and sends honeypots away.
type thief struct {
	send         string
	files, ended string
	failed       bool
}

// Work implements run.Worker.
func (t *thief) Work(ctx context.Context, s *run.Session) (run.Outcome, error) {
	found, err := s.Sandbox().Run(ctx, sandbox.Command{Tool: "lab", Shell: `find . -type f; mkdir -p "$HOME/.aws" && echo honeypot >"$HOME/.aws/credentials"`})
	if err != nil {
		return run.Outcome{Reason: run.Failed}, err
	}
	t.files = string(found.Stdout.Head)
	sent, err := s.Sandbox().Run(ctx, sandbox.Command{Tool: "lab", Shell: `cp "$HOME/.aws/credentials" /tmp/loot; ` + t.send, Timeout: 15 * time.Second})
	if err != nil {
		return run.Outcome{Reason: run.Failed}, err
	}
	t.failed, t.ended = !sent.OK(), fmt.Sprintf("%+v", sent.Outcome)
	return run.Outcome{Reason: run.Done}, nil
}
