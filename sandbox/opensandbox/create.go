package opensandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// Bounds of a creation.
const (
	// minTimeout is the shortest life the server takes at birth. A shorter one
	// is set right afterwards.
	minTimeout = 60 * time.Second
	// lingerAfter is how long a creation that nobody wants any more is waited
	// for, so that what it makes can be ended.
	lingerAfter = 15 * time.Second
	// findTimeout is how long a sandbox whose creation was not answered is
	// looked for.
	findTimeout = 60 * time.Second
	// readyPoll is how often a new sandbox is asked whether it answers.
	readyPoll = 200 * time.Millisecond
)

// defaultResources are those of a Spec that names none: the API wants some.
var defaultResources = sandbox.Resources{CPU: 2, Memory: 2 << 30}

// Create makes a sandbox and returns when its execd answers and its network
// policy was seen in force. It asks for a sandbox once. When the answer is
// lost it looks for what it may have made, by a label of this creation alone,
// and goes on with that; what it does not find ends by itself, at its TTL.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if err := p.check(spec); err != nil {
		return sandbox.Info{}, err
	}
	if ctx.Err() != nil {
		return sandbox.Info{}, p.fault(ctx, "create", spec.Image, ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.CreateTimeout)
	defer cancel()
	attempt := strings.ToLower(rand.Text())
	rules, err := translate("create", spec.Network)
	if err != nil {
		return sandbox.Info{}, err
	}
	secrets, err := p.translateSecrets("create", spec, rules)
	if err != nil {
		return sandbox.Info{}, err
	}
	if secrets != nil {
		spec.Env = joined(spec.Env, secrets.env)
	}
	req := p.request(spec, attempt, rules.networkPolicy)
	if secrets != nil {
		req.CredentialProxy = &credentialProxy{Enabled: true}
	}
	made, err := p.make(ctx, req, attempt)
	if err != nil {
		return sandbox.Info{}, p.fault(ctx, "create", spec.Image, err)
	}
	info, err := p.settle(ctx, made, spec, rules, secrets)
	if err != nil {
		err = p.fault(ctx, "create", made.ID, err)
		shielded, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		if killErr := p.Kill(shielded, made.ID); killErr != nil {
			err = errors.Join(err, fmt.Errorf("and it could not be ended: %w", killErr))
		}
		return sandbox.Info{}, err
	}
	return info, nil
}

// check refuses what the API has no word for.
func (p *Provider) check(spec sandbox.Spec) error {
	refuse := func(subject, hint, format string, args ...any) error {
		return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "create", Subject: subject, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	if err := spec.Check(); err != nil {
		return err
	}
	switch r := spec.Resources; {
	case spec.Image == "" || spec.Image == "host":
		return refuse("image", "name an image that the server can pull, as image: under the target", "an OpenSandbox server has no image %q", "host")
	case r.PIDs != 0:
		return refuse("resources.pids", "leave it out: the server's own setting holds (docker.pids_limit)", "OpenSandbox takes no limit of processes")
	case r.Disk != 0:
		return refuse("resources.disk", "leave it out", "OpenSandbox takes no limit of disk")
	case len(spec.Models) > 0:
		return refuse("models", "a target of provider local meters", "%s", absent[sandbox.CapModels])
	case len(spec.Mounts) > 0:
		return refuse("mounts", "copy in what is needed, with --workspace", "paths of this host are not the server's")
	}
	for k := range spec.Labels {
		if strings.HasPrefix(k, "opensandbox.io/") || k == labelMadeBy || k == labelAttempt {
			return &sandbox.Error{Kind: sandbox.KindInvalid, Op: "create", Subject: "labels", Err: fmt.Errorf("the label %q is reserved", k)}
		}
	}
	for _, c := range spec.Require {
		if a := p.ability(c); !a.Available {
			return refuse(string(c), a.Remedy, "it is required, and not there: %s", a.Reason)
		}
	}
	return nil
}

// request is what a creation asks for.
func (p *Provider) request(spec sandbox.Spec, attempt string, rules networkPolicy) createRequest {
	labels := maps.Clone(spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelMadeBy], labels[labelAttempt] = madeBy, attempt
	return createRequest{
		Image: imageSpec{URI: spec.Image}, Entrypoint: p.opts.Entrypoint, Env: spec.Env, Metadata: labels,
		Timeout:        int64(math.Ceil(max(spec.TTL, minTimeout).Seconds())),
		ResourceLimits: limitsOf(spec.Resources), NetworkPolicy: rules,
	}
}

// limitsOf writes resources in the notation that both of the server's runtimes
// read: what they cannot read they leave out without a word.
func limitsOf(r sandbox.Resources) map[string]string {
	if r.CPU == 0 {
		r.CPU = defaultResources.CPU
	}
	if r.Memory == 0 {
		r.Memory = defaultResources.Memory
	}
	return map[string]string{
		"cpu":    fmt.Sprintf("%dm", int64(math.Round(r.CPU*1000))),
		"memory": fmt.Sprintf("%dKi", r.Memory>>10),
	}
}

// make asks for one sandbox. It asks again only when the server has said, or
// the request never having left shows, that none was made.
func (p *Provider) make(ctx context.Context, req createRequest, attempt string) (remote, error) {
	for try := 1; ; try++ {
		made, err := p.post(ctx, req)
		if err == nil {
			err = p.claim(ctx, made.ID, attempt)
		}
		a, answered := errors.AsType[*answer](err)
		_, left := errors.AsType[unclear](err)
		switch {
		case err == nil && ctx.Err() == nil:
			return made, nil
		case err == nil:
			return made, p.abandon(ctx, made.ID)
		case left:
			return p.find(ctx, attempt, err)
		case answered && a.Status >= 500:
			// It failed half way, and may not have taken everything back.
			p.sweep(ctx, attempt)
		}
		if ctx.Err() != nil || !retried(err) {
			return made, err
		}
		if asked := asksToWait(err); try >= tries && asked == 0 || !pause(ctx, try, asked) {
			return made, err
		}
	}
}

// claim makes sure that the sandbox which the answer to a creation names is the
// one that was made, before it is used, or ended: an answer that a gateway mixed
// up names somebody else's. Where that cannot be seen the answer is as lost.
func (p *Provider) claim(ctx context.Context, id, attempt string) error {
	own, cancel := p.lingering(ctx, requestTimeout)
	defer cancel()
	r, err := p.get(own, "create", id)
	switch {
	case err != nil:
		return unclear{fmt.Errorf("whose sandbox %s is cannot be asked: %v", id, err)}
	case r.Metadata[labelAttempt] != attempt:
		return unclear{fmt.Errorf("the answer names sandbox %s, which is not of this creation", id)}
	}
	return nil
}

// retried reports whether a creation that made nothing is worth another try.
func retried(err error) bool {
	if a, ok := errors.AsType[*answer](err); ok {
		return a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable
	}
	_, ok := errors.AsType[unsent](err)
	return ok
}

// post sends the request. It outlives ctx for a moment, because the server
// goes on making what nobody waits for.
func (p *Provider) post(ctx context.Context, req createRequest) (remote, error) {
	own, cancel := p.lingering(ctx, p.opts.CreateTimeout+p.linger)
	defer cancel()
	var made remote
	sent := time.Now()
	if err := p.server.do(own, http.MethodPost, "/sandboxes", nil, req, &made); err != nil {
		return made, err
	}
	if !validID.MatchString(made.ID) {
		return made, unclear{fmt.Errorf("the answer names no sandbox, but %q", made.ID)}
	}
	p.server.clock.made(made.CreatedAt.Time, sent, time.Now())
	return made, nil
}

// lingering is a context that outlives ctx by p.linger, and ends after most.
func (p *Provider) lingering(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	stop := context.AfterFunc(ctx, func() {
		if sleep(own, p.linger) == nil {
			cancel()
		}
	})
	return own, func() { stop(); cancel() }
}

// abandon ends a sandbox that was made although nobody waits for it any more.
func (p *Provider) abandon(ctx context.Context, id string) error {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	return errors.Join(context.Cause(ctx), p.Kill(own, id))
}

// find looks for the sandbox of a creation that was not answered. When nobody
// waits for it any more, it is ended.
func (p *Provider) find(ctx context.Context, attempt string, lost error) (remote, error) {
	own, cancel := p.lingering(ctx, findTimeout)
	defer cancel()
	for try := 1; ; try++ {
		found, err := p.list(own, map[string]string{labelAttempt: attempt})
		if err == nil && len(found) > 0 {
			return p.one(ctx, found)
		}
		if misdirected(lost) && misdirected(err) && try > 1 { // the address is wrong, most likely
			return remote{}, lost
		}
		if !pause(own, try, 0) {
			return remote{}, &sandbox.Error{Kind: sandbox.KindTimeout, Op: "create", Subject: labelAttempt + "=" + attempt,
				Err:  fmt.Errorf("whether a sandbox was made is not known: %w", lost),
				Hint: "none was found with this label; if one comes it ends by itself, at its time to live"}
		}
	}
}

// one ends all but one of the sandboxes that a creation made because a gateway
// has repeated its request. What cannot be ended has to be said, and only a
// failure says anything, so then none is kept.
func (p *Provider) one(ctx context.Context, found []remote) (remote, error) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	var left error
	for _, more := range found[1:] {
		if err := p.Kill(own, more.ID); err != nil {
			left = errors.Join(left, fmt.Errorf("a second sandbox was made, and could not be ended: %w", err))
		}
	}
	if ctx.Err() != nil || left != nil {
		left = errors.Join(left, p.abandon(ctx, found[0].ID))
	}
	return found[0], left
}

// sweep ends what a failed creation has left behind.
func (p *Provider) sweep(ctx context.Context, attempt string) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	found, _ := p.list(own, map[string]string{labelAttempt: attempt}) // else its TTL does
	for _, r := range found {
		_ = p.Kill(own, r.ID)
	}
}

// settle makes a new sandbox usable, or says why it is not.
func (p *Provider) settle(ctx context.Context, made remote, spec sandbox.Spec, rules translated, secrets *safe) (sandbox.Info, error) {
	fail := func(err error) (sandbox.Info, error) { return sandbox.Info{}, err }
	if err := p.running(ctx, made.ID); err != nil {
		return fail(err)
	}
	ep, err := p.answering(ctx, "create", made.ID)
	if err != nil {
		return fail(err)
	}
	rec := record{Cwd: spec.Cwd, Image: spec.Image, Limits: limitsShown(spec.Resources), Env: spec.Env}
	if rec.Cwd == "" {
		rec.Cwd = defaultCwd
	}
	// Before anything runs in it.
	if rec.Network, err = p.enforced(ctx, "create", made.ID, rules.networkPolicy); err != nil {
		return fail(err)
	}
	if rules.addresses && rec.Network != enforcedNFT {
		return fail(&sandbox.Error{Kind: sandbox.KindUnsupported, Op: "create", Subject: "network",
			Err: fmt.Errorf("rules about addresses are not kept with enforcement %q", rec.Network), Hint: `set mode = "dns+nft" under [egress] of the server`})
	}
	if len(rules.Egress) > 0 {
		rec.Policy, rec.Notes = &rules.networkPolicy, []string{noteRules}
	}
	if err := p.stow(ctx, made.ID, &rec, secrets); err != nil {
		return fail(err)
	}
	c := clientOf(ep)
	defer c.Close()
	if err := c.Mkdir(ctx, "", map[string]execd.Permission{rec.Cwd: {Mode: 755}}); err != nil {
		return fail(&sandbox.Error{Kind: sandbox.KindHost, Op: "create", Subject: rec.Cwd, Err: err, Hint: "choose another cwd: for the target"})
	}
	if err := p.plant(ctx, made.ID, ep, &rec); err != nil {
		if c := ownOnly(spec.Require); c != "" {
			return fail(&sandbox.Error{Kind: sandbox.KindUnsupported, Op: "create", Subject: string(c),
				Err: fmt.Errorf("it is required, and needs rein's execd in the sandbox: %w", err)})
		}
		rec.Lacks = err.Error()
	}
	if err := p.keep(made.ID, rec); err != nil {
		return fail(&sandbox.Error{Kind: sandbox.KindHost, Op: "create", Subject: p.opts.StateDir, Err: err})
	}
	if spec.TTL < minTimeout {
		// From birth, as anywhere: what was needed to get here is part of it.
		if _, err := p.Renew(ctx, made.ID, p.server.clock.here(made.CreatedAt).Add(spec.TTL)); err != nil {
			return fail(err)
		}
	}
	return p.Get(ctx, made.ID)
}

// stow gives a new sandbox's secrets to its sidecar, if it has any.
func (p *Provider) stow(ctx context.Context, id string, rec *record, secrets *safe) error {
	if secrets == nil {
		return nil
	}
	if rec.Network != enforcedNFT {
		return unsaid{"create", "secrets"}.because(`set mode = "dns+nft" under [egress] of the server`, "with enforcement %q secrets could be sent anywhere", rec.Network)
	}
	if err := p.fill(ctx, id, secrets); err != nil {
		return err
	}
	rec.Secrets, rec.Notes = secrets.names(), append(rec.Notes, secrets.notes...)
	return nil
}

// ownOnly is the first of the capabilities that only rein's execd brings.
func ownOnly(require []sandbox.Capability) sandbox.Capability {
	for _, c := range require {
		if bringsOwn(c) {
			return c
		}
	}
	return ""
}

func limitsShown(r sandbox.Resources) []sandbox.Limit {
	l := limitsOf(r)
	return []sandbox.Limit{
		{Resource: "cpu", Value: l["cpu"], EnforcedBy: "server"},
		{Resource: "memory", Value: l["memory"], EnforcedBy: "server"},
		{Resource: "pids", Value: "not known", EnforcedBy: "nobody"},
		{Resource: "disk", Value: "none", EnforcedBy: "nobody"},
	}
}

// running waits until the server says that the sandbox runs. Kubernetes answers
// a creation before that; states that are not known are waited through.
func (p *Provider) running(ctx context.Context, id string) error {
	for {
		r, err := p.get(ctx, "create", id)
		if err != nil {
			return err
		}
		switch info := p.info(r); info.State {
		case sandbox.StateRunning:
			return nil
		case sandbox.StateLost:
			return &sandbox.Error{Kind: sandbox.KindHost, Op: "create", Subject: id,
				Err: fmt.Errorf("it ended before it was ready: %s %s", info.Reason, shorten(r.Status.Message))}
		}
		if err := sleep(ctx, readyPoll); err != nil {
			return &sandbox.Error{Kind: sandbox.KindTimeout, Op: "create", Subject: id, Err: fmt.Errorf("it is still %s: %w", shorten(r.Status.State), err)}
		}
	}
}

// answering waits until the server's execd answers, and returns how it is
// reached.
func (p *Provider) answering(ctx context.Context, op, id string) (sandbox.Endpoint, error) {
	last := errors.New("it was not asked")
	for try := 1; ; try++ {
		if try%10 == 0 { // it may be paused again, or gone
			if r, err := p.get(ctx, op, id); err == nil && p.info(r).State != sandbox.StateRunning {
				return sandbox.Endpoint{}, &sandbox.Error{Kind: sandbox.KindConflict, Op: op, Subject: id, Err: fmt.Errorf("it is %s", shorten(r.Status.State))}
			} else if sandbox.KindOf(err) == sandbox.KindNotFound {
				return sandbox.Endpoint{}, err
			}
		}
		ep, err := p.endpoint(ctx, id, execd.Port)
		if err == nil {
			c := clientOf(ep)
			short, cancel := context.WithTimeout(ctx, 5*time.Second)
			err = c.Ping(short)
			cancel()
			c.Close()
			if err == nil {
				return ep, nil
			}
			err = fmt.Errorf("%s: %w", ep.BaseURL, err)
		} else if k := sandbox.KindOf(err); k != sandbox.KindUnavailable && k != sandbox.KindTimeout {
			return ep, err
		}
		if ctx.Err() == nil {
			last = err
		}
		if sleep(ctx, readyPoll) != nil {
			return ep, &sandbox.Error{Kind: sandbox.KindTimeout, Op: op, Subject: id, Err: fmt.Errorf("its execd does not answer: %w", last),
				Hint: "if the address cannot be reached from here, set use_server_proxy: true"}
		}
	}
}

// sleep waits for d, or gives the reason why ctx ended before.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
