package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// npmCommand serves a registry of npm at npm.example.com, on the port that VARIABLE
// is set to, with the package rein-agent in versions 1.0.0 and 1.1.0: a program that
// prints its version and its arguments, and with "hold" does not end. With a credential, such as "Bearer x",
// every request must have it, and it is over TLS.
func npmCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 && len(args) != 2 {
		ts.Fatalf("usage: npm VARIABLE [CREDENTIAL]")
	}
	archives := map[string][]byte{"1.0.0": npmPackage(ts, "1.0.0"), "1.1.0": npmPackage(ts, "1.1.0")}
	scheme := "http"
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(args) == 2 && r.Header.Get("Authorization") != args[1] {
			http.Error(w, `{"error": "who are you?"}`, http.StatusUnauthorized)
			return
		}
		if version, ok := strings.CutPrefix(r.URL.Path, "/rein-agent/-/"); ok && archives[version] != nil {
			_, _ = w.Write(archives[version]) // who asked may have gone
			return
		}
		if r.URL.Path != "/rein-agent" {
			http.NotFound(w, r)
			return
		}
		versions := map[string]any{}
		for version, data := range archives {
			sum := sha512.Sum512(data)
			versions[version] = map[string]any{"name": "rein-agent", "version": version, "bin": map[string]string{"rein-agent": "cli.sh"},
				"dist": map[string]string{"tarball": scheme + "://" + r.Host + "/rein-agent/-/" + version, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "rein-agent", "dist-tags": map[string]string{"latest": "1.1.0"}, "versions": versions}) // as above
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if len(args) == 2 {
		scheme = "https"
		server.StartTLS() // with the certificate of ca.pem: see world
	} else {
		server.Start()
	}
	ts.Defer(server.Close)
	ts.Setenv(args[0], strconv.Itoa(server.Listener.Addr().(*net.TCPAddr).Port))
}

// npmPackage is a version of rein-agent, as npm packs it.
func npmPackage(ts *testscript.TestScript, version string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{
		"package.json": fmt.Sprintf(`{"name": "rein-agent", "version": %q, "bin": {"rein-agent": "cli.sh"}}`, version),
		"cli.sh":       fmt.Sprintf("#!/bin/sh\necho rein-agent %s \"$@\"\n[ \"$1\" != hold ] || exec sleep 1000\n", version),
	} {
		ts.Check(w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}))
		_, err := w.Write([]byte(text))
		ts.Check(err)
	}
	ts.Check(w.Close())
	ts.Check(z.Close())
	return b.Bytes()
}
