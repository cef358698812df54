package opensandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// Labels that this provider sets itself and does not show. A server has
// sandboxes of others too; List sees those with madeBy.
const (
	labelPrefix  = "rein.sh/"
	labelMadeBy  = labelPrefix + "made-by"
	labelAttempt = labelPrefix + "attempt" // of one creation, so that it is found when its reply is lost
	madeBy       = "rein"
)

// defaultCwd is where commands run in a sandbox of which nothing is known here.
const defaultCwd = "/workspace"

var validID = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

// path is the address of a sandbox, or KindNotFound for what cannot be an id.
func (p *Provider) path(op, id, rest string) (string, error) {
	if !validID.MatchString(id) || strings.Contains(id, "..") {
		return "", &sandbox.Error{Kind: sandbox.KindNotFound, Op: op, Subject: id, Err: errors.New("no such sandbox")}
	}
	return "/sandboxes/" + id + rest, nil
}

// Get returns one sandbox.
func (p *Provider) Get(ctx context.Context, id string) (sandbox.Info, error) {
	r, err := p.get(ctx, "get", id)
	if err != nil {
		return sandbox.Info{}, err
	}
	return p.info(r), nil
}

func (p *Provider) get(ctx context.Context, op, id string) (remote, error) {
	var r remote
	path, err := p.path(op, id, "")
	if err != nil {
		return r, err
	}
	if err := p.server.again(ctx, http.MethodGet, path, nil, nil, &r); err != nil {
		return r, p.fault(ctx, op, id, err)
	}
	if r.ID != id {
		return r, &sandbox.Error{Kind: sandbox.KindInternal, Op: op, Subject: id, Err: fmt.Errorf("the server answered with sandbox %q", r.ID)}
	}
	return r, nil
}

// info describes a sandbox for callers, with times on this host's clock.
func (p *Provider) info(r remote) sandbox.Info {
	i := sandbox.Info{ID: r.ID, Provider: name, State: sandbox.State(r.Status.State), Runtime: p.server.base.Host,
		CreatedAt: p.server.clock.here(r.CreatedAt), ExpiresAt: p.server.clock.here(r.ExpiresAt), Separation: "reduced", Cwd: defaultCwd}
	switch r.Status.State {
	case "Failed", "Terminated":
		i.State, i.Reason = sandbox.StateLost, shorten(cmp.Or(r.Status.Reason, r.Status.Message, r.Status.State))
	case "Allocated": // a pod of a pool that has been given out
		i.State = sandbox.StateRunning
	}
	if r.Image != nil {
		i.Image = r.Image.URI
	}
	i.Labels = maps.Clone(r.Metadata)
	maps.DeleteFunc(i.Labels, func(k, _ string) bool { return k == labelMadeBy || k == labelAttempt })
	if rec, err := p.record(r.ID); err == nil {
		i.Cwd, i.Network, i.Limits = rec.Cwd, rec.Network, rec.Limits
		i.Notes = rec.Notes
		i.Image = cmp.Or(i.Image, rec.Image)
	}
	return i
}

// List returns the sandboxes that rein made on this server with all of labels,
// newest first: all of them, or an error.
func (p *Provider) List(ctx context.Context, labels map[string]string) ([]sandbox.Info, error) {
	want := maps.Clone(labels)
	if want == nil {
		want = map[string]string{}
	}
	want[labelMadeBy] = madeBy
	asking, cancel := bounded(ctx, patience)
	defer cancel()
	found, err := p.list(asking, want)
	if err != nil {
		return nil, p.fault(ctx, "list", name, err)
	}
	infos := make([]sandbox.Info, len(found))
	for i, r := range found {
		infos[i] = p.info(r)
	}
	return infos, nil
}

// list asks page by page. What moves from one page to the next meanwhile is
// there once, and what the server gives beside the filter is left out.
func (p *Provider) list(ctx context.Context, labels map[string]string) ([]remote, error) {
	filter := url.Values{}
	for k, v := range labels {
		filter.Set(k, v)
	}
	seen := map[string]bool{}
	var all []remote
	for n, size := 1, 0; ; n++ {
		var got page
		q := url.Values{"metadata": {filter.Encode()}, "page": {strconv.Itoa(n)}, "pageSize": {strconv.Itoa(pageSize)}}
		if err := p.server.again(ctx, http.MethodGet, "/sandboxes", q, nil, &got); err != nil {
			return nil, err
		}
		if size += got.Items.size; n > maxPages || size > maxListing {
			return nil, fmt.Errorf("%w: more than %d pages, or %d bytes", errTooMany, maxPages, maxListing)
		}
		for _, r := range got.Items.list {
			if !seen[r.ID] && has(r.Metadata, labels) {
				seen[r.ID] = true
				all = append(all, r)
			}
		}
		if !got.Pagination.HasNextPage {
			break
		}
	}
	slices.SortStableFunc(all, func(a, b remote) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt.Time), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

func has(got, want map[string]string) bool {
	for k, v := range want {
		if have, ok := got[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// Renew moves the end of a sandbox. It asks for a moment on the server's clock,
// and returns what the server answered. (The server shortens too, although its
// description speaks of later ends only.)
func (p *Provider) Renew(ctx context.Context, id string, until time.Time) (time.Time, error) {
	path, err := p.path("renew", id, "/renew-expiration")
	if err != nil {
		return time.Time{}, err
	}
	if !until.After(time.Now()) {
		return time.Time{}, &sandbox.Error{Kind: sandbox.KindInvalid, Op: "renew", Subject: id,
			Err: fmt.Errorf("%v has passed", until), Hint: "to end a sandbox now, kill it"}
	}
	before, err := p.get(ctx, "renew", id)
	if err != nil {
		return time.Time{}, err
	}
	var got renewal
	err = p.server.again(ctx, http.MethodPost, path, nil, renewal{p.server.clock.there(until)}, &got)
	if a, ok := errors.AsType[*answer](err); ok && a.Status == http.StatusBadRequest && strings.HasSuffix(a.Code, "INVALID_EXPIRATION") && !until.After(time.Now()) {
		// The moment passed on the way; what it was the end of is gone or not.
		if _, gone := p.get(ctx, "renew", id); sandbox.KindOf(gone) == sandbox.KindNotFound {
			return time.Time{}, gone
		}
	}
	if err != nil {
		return time.Time{}, p.fault(ctx, "renew", id, err)
	}
	if got.ExpiresAt.IsZero() {
		return time.Time{}, &sandbox.Error{Kind: sandbox.KindInternal, Op: "renew", Subject: id, Err: errors.New("the server did not say the new end")}
	}
	if err := p.outlived(ctx, id, p.server.clock.here(before.ExpiresAt)); err != nil {
		return time.Time{}, err
	}
	return p.server.clock.here(got.ExpiresAt), nil
}

// Around its old end a renewed sandbox is looked at again: the server says yes
// to a renewal while it is ending the sandbox already.
const (
	closeToEnd = time.Second
	ending     = 2 * time.Second // how long it takes the server to end one
)

// outlived makes sure that a renewal close to the old end came in time.
func (p *Provider) outlived(ctx context.Context, id string, end time.Time) error {
	if end.IsZero() || time.Until(end) > closeToEnd {
		return nil
	}
	// From when it answered on: a server that has much to do is late with both.
	if err := sleep(ctx, max(time.Until(end), 0)+ending); err != nil {
		return p.fault(ctx, "renew", id, err)
	}
	_, err := p.get(ctx, "renew", id)
	return err
}

// killTimeout bounds a Kill whose context has no end.
const killTimeout = 60 * time.Second

// Kill ends a sandbox and returns when the server knows it no more.
func (p *Provider) Kill(ctx context.Context, id string) error {
	path, err := p.path("kill", id, "")
	if err != nil {
		return nil // it cannot have been
	}
	ctx, cancel := bounded(ctx, killTimeout)
	defer cancel()
	p.empty(ctx, id)
	for try := 1; ; try++ {
		err := p.server.again(ctx, http.MethodDelete, path, nil, nil, nil)
		if noSandbox(err) {
			p.forget(id)
			return nil
		}
		// Kubernetes ends sandboxes in its own time, two who end one at once get
		// in each other's way, and a gateway may have nothing behind it yet.
		a, answered := errors.AsType[*answer](err)
		_, left := errors.AsType[unclear](err)
		if err != nil && !(answered && (left || a.Status == http.StatusConflict || a.Status >= 500)) {
			return p.fault(ctx, "kill", id, err)
		}
		if _, gone := p.get(ctx, "kill", id); sandbox.KindOf(gone) == sandbox.KindNotFound {
			p.forget(id)
			return nil
		}
		if !pause(ctx, try, 0) {
			return p.fault(ctx, "kill", id, cmp.Or(err, error(unclear{errors.New("the server still has it")})))
		}
	}
}
