package clients_test

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rein-sh/rein/internal/clients"
	"github.com/rein-sh/rein/sandbox"
)

// keyed is a program that sends a key: $KEY is the placeholder, or another key, and
// so is $AWS_SECRET_ACCESS_KEY.
type keyed struct {
	name, needs, command string
	short                bool // also in every test run
	asked                bool // it sends no key before the server asks for one, which none does: it is given the right one
}

const greet = `"` + clients.Greeting + `"`

// tools are programs that are brought along, and where they are inside.
const tools = "/home/user/tools"

const goKeyed = `package main

import ("fmt"; "io"; "net/http"; "os")

func main() {
	r, _ := http.NewRequest("GET", "https://` + clients.Site + `/", nil)
	r.SetBasicAuth("me", os.Getenv("KEY"))
	res, err := http.DefaultClient.Do(r)
	if err != nil { fmt.Println(err); os.Exit(1) }
	b, _ := io.ReadAll(res.Body)
	fmt.Println(res.Proto, string(b))
}
`

// javaKeyed is Fetch.java with a field.
const javaKeyed = `sed 's|newBuilder(URI.create(a\[0\]))|newBuilder(URI.create(a[0])).header("Authorization", "Basic " + java.util.Base64.getEncoder().encodeToString(("me:" + System.getenv("KEY")).getBytes()))|; s/class Fetch/class K/' Fetch.java >K.java && java K.java https://` + clients.Site + "/"

// netrc has the key for both names of PyPI.
const netrc = `printf 'machine ` + clients.PyPI + `\nlogin me\npassword %s\nmachine ` + clients.PyPIFiles + `\nlogin me\npassword %s\n' "$KEY" "$KEY" >.netrc && chmod 600 .netrc && `

const pythonSocket = `import asyncio,base64,os,websockets
async def main():
    basic = "Basic " + base64.b64encode(("me:" + os.environ["KEY"]).encode()).decode()
    async with websockets.connect("wss://` + clients.Site + `/socket", extra_headers={"Authorization": basic}) as c:
        print(await c.recv())
        for said in ("one", b"two" * 40000):
            await c.send(said)
            assert await c.recv() == said
asyncio.run(main())
`

const nodeSocket = `const WebSocket = require("` + tools + `/node_modules/ws");
const c = new WebSocket("wss://` + clients.Site + `/socket", {headers: {Authorization: "Basic " + btoa("me:" + process.env.KEY)}});
c.on("error", e => { console.error(String(e)); process.exit(1) });
c.on("message", m => { if (String(m) === "one") { c.close(); return } console.log(String(m)); c.send("one") });
`

// awsCLI puts an object, one in parts, gets and lists, and signs an address.
const awsCLI = `export AWS_ACCESS_KEY_ID=` + clients.AccessKey + ` AWS_DEFAULT_REGION=eu-central-1 AWS_EC2_METADATA_DISABLED=true AWS_MAX_ATTEMPTS=1
echo ` + greet + ` >hello && head -c 9000000 /dev/zero >big && /usr/bin/aws s3 cp --no-progress hello s3://rein-lab/a/hello && /usr/bin/aws s3 cp --no-progress big s3://rein-lab/big &&
/usr/bin/aws s3 cp --no-progress s3://rein-lab/big back && cmp big back && /usr/bin/aws s3 ls s3://rein-lab/ | grep -q 9000000 && curl -sSf "$(/usr/bin/aws s3 presign s3://rein-lab/a/hello)"`

// boto is the same with a newer library, which sends checksums after bodies.
const boto = `import boto3,botocore.config,urllib.request
c = boto3.client("s3", region_name="eu-central-1", config=botocore.config.Config(signature_version="s3v4", s3={"addressing_style": "virtual"}))
c.put_object(Bucket="rein-lab", Key="b/hello", Body=b` + greet + `)
with open("big", "wb") as f: f.write(b"0123456789" * 900000)
c.upload_file("big", "rein-lab", "b/big")
assert c.get_object(Bucket="rein-lab", Key="b/big")["Body"].read() == b"0123456789" * 900000
assert "b/hello" in [o["Key"] for o in c.list_objects_v2(Bucket="rein-lab")["Contents"]]
print(urllib.request.urlopen(c.generate_presigned_url("get_object", Params={"Bucket": "rein-lab", "Key": "b/hello"})).read().decode())
`

// quoted has a program in a file, which begins a command.
func quoted(file, text string) string { return "cat >" + file + " <<'END'\n" + text + "END\n" }

var keyedClients = []keyed{
	{"curl, bearer", "curl", `curl -sSf -H "Authorization: Bearer $KEY" https://` + clients.NPM + "/" + clients.Package + ` >answer && grep -q tarball answer && echo ` + greet, true, false},
	{"curl, password", "curl", `curl -sS -u "me:$KEY" https://` + clients.Site + "/", true, false},
	{"git clone", "git", `git clone -q "https://x-access-token:$KEY@` + clients.GitHub + `/rein-lab/hello" && cat hello/hello.txt`, true, true},
	{"git push", "git", `git clone -q "https://x-access-token:$KEY@` + clients.GitHub + `/rein-lab/hello" && cd hello && date +%N >>more && git add . && git -c user.name=a -c user.email=a@example.org commit -qm more &&
git push -q origin HEAD:refs/heads/more-$(date +%s%N) && cat hello.txt`, true, true},
	{"git, a helper", "git", `git config --global credential.helper '!f() { echo username=x-access-token; echo "password=$KEY"; }; f' && git clone -q https://` + clients.GitHub + `/rein-lab/hello && cat hello/hello.txt`, false, true},
	{"pip install", "/usr/bin/python3 -m pip", netrc + `/usr/bin/python3 -m pip install -q --disable-pip-version-check --no-cache-dir --target pip ` + clients.Package + ` && PYTHONPATH=pip /usr/bin/python3 -m rein_lab_hello`, false, false},
	{"uv pip install", tools + "/uv", netrc + tools + `/uv pip install -q --no-cache --python /usr/bin/python3 --target pip ` + clients.Package + ` && PYTHONPATH=pip /usr/bin/python3 -m rein_lab_hello`, false, true},
	{"npm install", "npm", `mkdir npm && cd npm && echo '//` + clients.NPM + `/:_authToken=${KEY}' >.npmrc && npm install --no-update-notifier --no-audit --no-fund --loglevel error ` + clients.Package + ` && node -e 'require("` + clients.Package + `")'`, false, false},
	{"cargo vendor", tools + "/cargo", `mkdir src && touch src/lib.rs && printf '[package]\nname = "a"\nversion = "1.0.0"\n[dependencies]\n` + clients.Package + ` = "1"\n' >Cargo.toml && ` + tools + `/cargo vendor -q >/dev/null && cat vendor/` + clients.Package + `/src/lib.rs`, false, true},
	{"node fetch", "node", `node -e 'fetch("https://` + clients.Site + `/", {headers: {Authorization: "Basic " + btoa("me:" + process.env.KEY)}}).then(r=>r.text()).then(t=>process.stdout.write(t))'`, false, false},
	{"deno fetch", tools + "/deno", `DENO_NO_UPDATE_CHECK=1 ` + tools + `/deno eval 'console.log(await (await fetch("https://` + clients.Site + `/", {headers: {Authorization: "Basic " + btoa("me:" + Deno.env.get("KEY"))}})).text())'`, false, false},
	{"python urllib", "/usr/bin/python3", `/usr/bin/python3 -c 'import base64,os,urllib.request as u; print(u.urlopen(u.Request("https://` + clients.Site + `/", headers={"Authorization": "Basic " + base64.b64encode(("me:" + os.environ["KEY"]).encode()).decode()})).read().decode())'`, false, false},
	{"python httpx, HTTP/2", `/usr/bin/python3 -c "import httpx, h2" && true`, `/usr/bin/python3 -c 'import httpx,os; r = httpx.Client(http2=True, auth=("me", os.environ["KEY"])).get("https://` + clients.Site + `/"); assert r.http_version == "HTTP/2", r.http_version; print(r.text)'`, false, false},
	{"java HttpClient", "java", javaKeyed, false, false},
	{"go net/http", "test -x " + tools + "/keyed && true", tools + "/keyed", false, false},
	{"go gRPC, and a stream", "test -x " + tools + "/grpc && true", tools + "/grpc call " + clients.GRPC, false, false},
	{"python websockets", `/usr/bin/python3 -c "import websockets" && true`, quoted("s.py", pythonSocket) + `/usr/bin/python3 s.py`, false, false},
	{"node ws", "test -d " + tools + "/node_modules/ws && true", quoted("s.js", nodeSocket) + `node s.js`, false, false},
	{"aws s3", "/usr/bin/aws", awsCLI, false, false},
	{"python boto3", "test -d " + tools + "/python/boto3 && true", quoted("s3.py", boto) + `AWS_ACCESS_KEY_ID=` + clients.AccessKey + ` PYTHONPATH=` + tools + `/python /usr/bin/python3 s3.py`, false, false},
}

// goProgram is goKeyed, made on the host: in a sandbox of two cores that takes half a
// minute.
func goProgram(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "keyed")
	if err := os.WriteFile(program+".go", []byte(goKeyed), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", program, program+".go")
	cmd.Dir, cmd.Env = dir, append(cmd.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GO111MODULE=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// bring has the tools of a directory of the host's inside, and a program beside
// them.
func bring(t *testing.T, box *sandbox.Sandbox, dir string, program []byte) {
	t.Helper()
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	err := w.WriteHeader(&tar.Header{Name: "keyed", Mode: 0o755, Size: int64(len(program))})
	if err == nil {
		_, err = w.Write(program)
	}
	if err == nil && dir != "" {
		err = w.AddFS(os.DirFS(dir))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.Upload(t.Context(), "/tmp/tools.tar", &packed, sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := box.Run(t.Context(), sandbox.Command{Shell: "mkdir " + tools + " && tar -C " + tools + " -xf /tmp/tools.tar && rm /tmp/tools.tar"})
	if err != nil || !r.OK() {
		t.Fatalf("%v: %+v: %s", err, r.Outcome, r.Stderr.Head)
	}
}
