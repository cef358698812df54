package opensandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// record is what this host keeps of a sandbox: what the server is not told, or
// does not say. It is a file of its own, readable for its owner only, because
// it holds the token of rein's execd. Without it the sandbox is used through
// the server's execd.
type record struct {
	Server  string          `json:"server"`
	Cwd     string          `json:"cwd"`
	Image   string          `json:"image"`
	Network string          `json:"network"`
	Limits  []sandbox.Limit `json:"limits,omitempty"`
	Notes   []string        `json:"notes,omitempty"`

	// Policy is what is in force, nil where everything is denied, and Next what is
	// being put in its place. Generation counts them, 0 the first, too.
	Policy     *networkPolicy `json:"policy,omitempty"`
	Next       *networkPolicy `json:"next,omitempty"`
	Generation uint64         `json:"generation,omitempty"`

	// Secrets are the names under which the sidecar's vault has its secrets, sorted.
	Secrets []string `json:"secrets,omitempty"`

	// Lacks says why rein's own execd is not in it, and Left what of putting it
	// there could not be taken away.
	Lacks string `json:"lacks,omitempty"`
	Left  string `json:"left,omitempty"`
	// Of rein's own execd; Port is 0 when there is none.
	Port  int    `json:"port,omitempty"`
	Token string `json:"token,omitempty"`
	// Through says that the port is reached by way of the server's execd, not
	// by an endpoint of its own.
	Through bool `json:"through,omitempty"`
	// Env is what its commands start with, for when it has to be started again.
	Env map[string]string `json:"env,omitempty"`
}

// policy is what is in force, as far as is known.
func (r record) policy() networkPolicy {
	if r.Policy == nil {
		return denyAll()
	}
	return *r.Policy
}

// policies are those that may be in force.
func (r record) policies() []networkPolicy {
	if r.Next == nil {
		return []networkPolicy{r.policy()}
	}
	return []networkPolicy{r.policy(), *r.Next}
}

func makeStateDir(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var st fs.FileInfo
		if st, err = os.Stat(dir); err == nil && st.Mode().Perm()&0o077 != 0 {
			err = fmt.Errorf("its mode %04o lets others look into it", st.Mode().Perm())
		}
	}
	if err != nil {
		return &sandbox.Error{Kind: sandbox.KindHost, Op: "configure", Subject: dir, Err: err, Hint: "choose a directory of your own with XDG_STATE_HOME"}
	}
	return nil
}

func (p *Provider) recordPath(id string) string {
	return filepath.Join(p.opts.StateDir, id+".json")
}

// record reads what is kept of a sandbox of this server.
func (p *Provider) record(id string) (record, error) {
	var r record
	if _, err := p.path("read", id, ""); err != nil {
		return r, err
	}
	b, err := os.ReadFile(p.recordPath(id))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, err
	}
	if r.Server != p.server.base.String() {
		return record{}, errors.New("it is of a sandbox of another server")
	}
	return r, nil
}

// keep writes a record whole or not at all, also when the host fails.
func (p *Provider) keep(id string, r record) error {
	r.Server = p.server.base.String()
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(p.opts.StateDir, ".new-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), p.recordPath(id))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	dir, err := os.Open(p.opts.StateDir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// forget removes the record of a sandbox that is gone, and what is left of
// those whose end has passed long ago.
func (p *Provider) forget(id string) {
	_ = os.Remove(p.recordPath(id))
	entries, _ := os.ReadDir(p.opts.StateDir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > forgetAfter {
			_ = os.Remove(filepath.Join(p.opts.StateDir, e.Name()))
		}
	}
}

// forgetAfter is longer than any sandbox of rein's lives.
const forgetAfter = 7 * 24 * time.Hour
