package clients

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A file of a package.
type entry struct{ name, text string }

const wheelName = "rein_lab_hello-1.0-py3-none-any.whl"

// wheel is a Python package (PEP 427).
func wheel() []byte {
	const info = "rein_lab_hello-1.0.dist-info/"
	return zipped([]entry{
		{"rein_lab_hello.py", "print('" + Greeting + "')\n"},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + Package + "\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: rein\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", "rein_lab_hello.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	})
}

// index is PyPI's (PEP 503).
func index(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/simple/"+Package+"/" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprintf(w, "<!DOCTYPE html><html><body><a href=\"https://%s/packages/%s#sha256=%x\">%[2]s</a></body></html>\n", PyPIFiles, wheelName, sha256.Sum256(wheel()))
}

// npm is the registry of npm: a document for the package, and its archive.
func npm(w http.ResponseWriter, r *http.Request) {
	manifest := map[string]any{"name": Package, "version": "1.0.0", "main": "index.js"}
	text, _ := json.Marshal(manifest) // plain data always encodes
	archive := tarred([]entry{{"package/package.json", string(text)}, {"package/index.js", "console.log('" + Greeting + "')\n"}})
	const at = "/" + Package + "/-/" + Package + "-1.0.0.tgz"
	switch r.URL.Path {
	case at:
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(archive) // who asked may have gone
	case "/" + Package:
		sum := sha512.Sum512(archive)
		manifest["dist"] = map[string]any{"tarball": "https://" + NPM + at, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"name": Package, "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": manifest}}) // who asked may have gone
	default:
		http.NotFound(w, r)
	}
}

// proxy is Go's module proxy (go.dev/ref/mod#goproxy-protocol).
func proxy(w http.ResponseWriter, r *http.Request) {
	const mod = "module " + Module + "\n\ngo 1.20\n"
	rest, ok := strings.CutPrefix(r.URL.Path, "/"+Module+"/")
	switch {
	case !ok:
		http.NotFound(w, r)
	case rest == "@v/list":
		fmt.Fprintln(w, "v1.0.0")
	case rest == "@v/v1.0.0.info", rest == "@latest":
		fmt.Fprintln(w, `{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`)
	case rest == "@v/v1.0.0.mod":
		fmt.Fprint(w, mod)
	case rest == "@v/v1.0.0.zip":
		prefix := Module + "@v1.0.0/"
		_, _ = w.Write(zipped([]entry{{prefix + "go.mod", mod}, {prefix + "main.go", "package main\n\nfunc main() { println(\"" + Greeting + "\") }\n"}})) // who asked may have gone
	default:
		http.NotFound(w, r)
	}
}

// crateName is a file of crates.io's, and crate what is in it.
const crateName = "download"

func crate() []byte {
	const dir = Package + "-1.0.0/"
	return tarred([]entry{{dir + "Cargo.toml", "[package]\nname = \"" + Package + "\"\nversion = \"1.0.0\"\n"}, {dir + "src/lib.rs", "// " + Greeting + "\n"}})
}

// crates is the index of crates.io
// (doc.rust-lang.org/cargo/reference/registry-index.html).
func crates(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/config.json":
		fmt.Fprintf(w, `{"dl":"https://%s/crates","api":"https://crates.io"}`, CratesFiles)
	case "/re/in/" + Package:
		fmt.Fprintf(w, `{"name":%q,"vers":"1.0.0","deps":[],"cksum":"%x","features":{},"yanked":false}`+"\n", Package, sha256.Sum256(crate()))
	default:
		http.NotFound(w, r)
	}
}

// repository is a bare git repository, rein-lab/hello.git below dir.
func repository(dir string) (string, error) {
	work, bare := filepath.Join(dir, "work"), filepath.Join(dir, "git", "rein-lab", "hello.git")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(work, "hello.txt"), []byte(Greeting+"\n"), 0o644); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"}, {"add", "."}, {"-c", "user.name=rein", "-c", "user.email=rein@example.org", "commit", "-qm", "hello"}, {"clone", "-q", "--bare", work, bare},
	} {
		cmd := exec.Command("git", append([]string{"-C", work}, args...)...)
		cmd.Env = append(cmd.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return bare, nil
}

func zipped(files []entry) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f.name)
		if err == nil {
			_, err = w.Write([]byte(f.text))
		}
		if err != nil {
			panic(err) // memory takes everything
		}
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func tarred(files []entry) []byte {
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	t := tar.NewWriter(g)
	for _, f := range files {
		err := t.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))})
		if err == nil {
			_, err = t.Write([]byte(f.text))
		}
		if err != nil {
			panic(err) // memory takes everything
		}
	}
	if err := t.Close(); err != nil {
		panic(err)
	}
	if err := g.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}
