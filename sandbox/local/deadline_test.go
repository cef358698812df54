package local

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestDeadline(t *testing.T) {
	d, err := newDeadline(time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	select {
	case <-d.Passed():
		t.Fatal("an hour has not passed")
	default:
	}
	later := time.Now().Add(2 * time.Hour)
	if err := d.Move(later); err != nil || !d.Time().Equal(later) {
		t.Fatalf("moved later: %v, deadline %v", err, d.Time())
	}
	if err := d.Move(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	<-d.Passed()
	if err := d.Move(later); !errors.Is(err, errExpired) {
		t.Errorf("a deadline that has passed was moved: %v", err)
	}
}

func TestDeadlineCloseDoesNotPass(t *testing.T) {
	d, err := newDeadline(time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	select {
	case <-d.Passed():
		t.Error("closing made the deadline pass")
	default:
	}
}

func TestProcessIdentity(t *testing.T) {
	self, err := identify(os.Getpid())
	if err != nil || !self.alive() {
		t.Fatalf("this process: %+v, %v", self, err)
	}
	other := self
	other.Start++
	if other.alive() {
		t.Error("another process with the same pid counts as this one")
	}
	cmd := exec.Command("sh", "-c", "read x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child, err := identify(cmd.Process.Pid)
	if err != nil || !child.alive() {
		t.Fatalf("the child: %+v, %v", child, err)
	}
	in.Close()
	cmd.Wait()
	if child.alive() {
		t.Error("an ended process counts as alive")
	}
}
