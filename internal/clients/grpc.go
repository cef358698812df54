package clients

import (
	"bufio"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
)

// ServeGRPC has the program of the module in grpc serve GRPC, for those with a
// token. Its files are below dir.
func (r *Registry) ServeGRPC(dir, program, token string) error {
	pair, err := r.ca.Certify(GRPC)
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return err
	}
	certFile, keyFile := filepath.Join(dir, "grpc.pem"), filepath.Join(dir, "grpc.key")
	if err := errors.Join(os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600)); err != nil {
		return err
	}
	cmd := exec.Command(program, "serve", netip.AddrPortFrom(r.address.Next(), 443).String(), certFile, keyFile, Greeting)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.closers = append(r.closers, closer(func() error { return errors.Join(in.Close(), cmd.Wait()) }))
	if _, err := fmt.Fprintln(in, token); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n') // it is ready
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the server of gRPC ended")
	}
	return err
}

type closer func() error

func (c closer) Close() error { return c() }
