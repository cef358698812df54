package daemon

import (
	"strings"
	"syscall"
	"testing"
)

// A uid without a gid that the kernel does not take is an error, like any
// other start that failed.
func TestExplainUserWithoutGroup(t *testing.T) {
	uid := uint32(4242)
	m := &OS{opts: OSOptions{User: &User{UID: 1000, GID: 1000}}}
	spec := Spec{ID: "x", Command: "true", Dir: "/", UID: &uid}
	var req wardenRequest
	if err := m.identity(spec, &req); err != nil || req.UID != 4242 || req.GID != 1000 {
		t.Fatalf("%+v, %v", req, err)
	}
	for _, errno := range []syscall.Errno{syscall.EINVAL, syscall.EPERM} {
		if err := m.explain(spec, req, errno); !strings.Contains(err.Error(), "uid 4242, gid 1000") {
			t.Errorf("%v: %v", errno, err)
		}
	}
}
