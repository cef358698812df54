package daemon_test

import (
	"net/http/httptest"
	"os"
	"testing"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/execd/daemon"
	"github.com/rein-sh/rein/secret"
)

const testToken = "a token for tests"

// rig is a daemon with real processes behind a real listener.
type rig struct {
	*execd.Client
	url      string
	stateDir string
	work     string // a directory that the commands' user owns
}

// serve starts a daemon whose commands run as opts say; change may edit the
// configuration.
func serve(t testing.TB, opts daemon.OSOptions, change ...func(*daemon.Config)) *rig {
	t.Helper()
	r := &rig{stateDir: publicDir(t), work: publicDir(t)}
	opts.Warden = wardenArgs
	opts.Dir = r.stateDir + "/cmd"
	if err := os.Mkdir(opts.Dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if opts.User != nil {
		if err := os.Chown(r.work, int(opts.User.UID), int(opts.User.GID)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := daemon.NewOS(opts)
	if err != nil {
		t.Fatal(err)
	}
	cfg := daemon.Config{Token: testToken, Machine: m, StateDir: r.stateDir, Home: r.work, Cwd: r.work, User: opts.User, Version: "test"}
	for _, f := range change {
		f(&cfg)
	}
	s, err := daemon.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	r.url = h.URL
	r.Client = execd.NewClient(execd.Options{BaseURL: h.URL, Token: secret.New("token", testToken)})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		r.Close()
		h.Close()
	})
	return r
}

// bestUser is the strongest separation that this machine allows.
func bestUser() daemon.OSOptions {
	if os.Geteuid() == 0 {
		return daemon.OSOptions{User: &daemon.User{UID: 61234, GID: 61235}}
	}
	return daemon.OSOptions{}
}
