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

// The machine's own group is one that commands may have, also when it is 0; only
// who asks for 0 is refused.
func TestGroupZero(t *testing.T) {
	uid, zero := uint32(4242), uint32(0)
	m := &OS{opts: OSOptions{User: &User{UID: 1000, GID: 0}}}
	var req wardenRequest
	if err := m.identity(Spec{UID: &uid}, &req); err != nil || req.UID != 4242 || req.GID != 0 {
		t.Errorf("%+v, %v", req, err)
	}
	for _, spec := range []Spec{{UID: &uid, GID: &zero}, {UID: &zero}} {
		if err := m.identity(spec, &req); err == nil {
			t.Errorf("%d:%v is allowed", *spec.UID, spec.GID)
		}
	}
}
