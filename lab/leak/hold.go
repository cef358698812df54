package leak

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
)

// hold starts this program once more, to have the honeypot in its memory until
// end. env is its environment; nil: as this one's.
func hold(ctx context.Context, again, env []string, honey []byte) (end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, again...)
	cmd.Env = env // nil: as this
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end = func() {
		_ = in.Close() // which ends it
		_ = cmd.Wait()
	}
	aim := Aim{Held: honey}
	if len(env) > 0 {
		aim.Held = []byte{0} // it is in the environment, and there alone
	}
	err = json.NewEncoder(in).Encode(aim)
	if err == nil {
		_, err = io.ReadFull(out, make([]byte, 1))
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("a process that has the honeypot: %w", err)
	}
	return end, nil
}

// Hold has Held in memory until in ends.
func (a Aim) Hold(in io.Reader, out io.Writer) error {
	text := Veil(a.Held)
	if _, err := out.Write([]byte{'.'}); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, in)
	runtime.KeepAlive(text)
	return err
}
