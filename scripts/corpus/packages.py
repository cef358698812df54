"""Package managers that fail, builds in a pipeline, and linters of scripts."""

import json
import random
import re

from corpus import Skip, first_line, names, need, run, write


def npm(corpus):
    need("npm")
    for name, wanted, flags in (("npm-missing", {"lodash": "^4.17.0", "left-pad": "99.0.0"}, ""), ("npm-peer", {"react": "16.0.0", "react-dom": "18.2.0", "eslint": "8.57.0"}, "")):
        d = corpus.dir(name)
        write(d, {"package.json": json.dumps({"name": "app", "version": "1.0.0", "dependencies": wanted})})
        log = b""
        for i in range(40):
            log += run("npm install --no-audit --no-fund --loglevel silly 2>&1", d)
            if log.count(b"\n") > 1200 and len(log) > 80000:
                break
        log += run("for i in $(seq 400); do echo \"cache save part $i of 400: stored in the remote cache of the pipeline, key kept\"; done", d)
        out, _ = run("npm install --no-audit --no-fund --json", d, apart=True)
        e = json.loads(out)["error"]
        facts = [["npm error code " + e["code"]], ["npm error", first_line(e["summary"])[:70]]]
        corpus.add(name, "npm", log, facts, "npm --json")


def postinstall(corpus):
    need("npm")
    d = corpus.dir("npm-script")
    rng = random.Random(301)
    steps = names(301, 1200)
    write(d, {"package.json": json.dumps({"name": "app", "version": "1.0.0", "scripts": {"build": "node build.js && echo built"}}),
              "build.js": "const fs = require('fs');\nprocess.on('uncaughtExceptionMonitor', (e) => fs.writeFileSync('out.json', JSON.stringify([e.name, e.message])));\n"
              "for (const [i, s] of " + json.dumps(steps) + ".entries()) {\n  console.log(`[build] ${s} (${i}/1200): bundled dist/${s}.error.chunk.js, 0 errors, 1 warning`);\n  if (i === 600) require('./lib/' + s + '_config');\n}\n"})
    log = run("npm run build --loglevel verbose", d, ok=False)
    log += run("for i in $(seq 600); do echo \"cache save part $i of 600: stored in the remote cache of the pipeline\"; done", d)
    n, m = json.load(open(d / "out.json"))
    corpus.add("npm-script", "npm run", log, [[n + ": " + first_line(m)]], "an exception monitor of the program")


def pip(corpus):
    need("python3")
    d = corpus.dir("pip-build")
    steps = names(311, 1300)
    write(d, {"pkg/pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n[project]\nname = \"pkg\"\nversion = \"1\"\n",
              "pkg/backend.py": "import json, sys\ndef build_wheel(*a, **k):\n    for i, s in enumerate(" + json.dumps(steps) + "):\n        print(f'  compiling extension {s} ({i}) -O2 -Werror=format -o build/{s}_error.o', flush=True)\n        if i == 500:\n            e = RuntimeError(f'cannot find header {s}.h in any include path')\n            json.dump(str(e), open('" + str(d) + "/out.json', 'w'))\n            print('RuntimeError: ' + str(e), file=sys.stderr, flush=True)\n        if i == 1290:\n            raise SystemExit(1)\n"})
    log = run("python3 -m venv v && v/bin/pip --no-input --disable-pip-version-check install -v --no-build-isolation ./pkg", d)
    corpus.add("pip-build", "pip", log, [[json.load(open(d / "out.json"))], ["error: subprocess-exited-with-error"]], "a record of the build backend")


def pip_missing(corpus):
    need("python3")
    d = corpus.dir("pip-resolve")
    write(d, {"requirements.txt": "requests==2.31.0\nurllib3==1.20\nchardet==3.0.4\n"})
    log = b""
    for _ in range(9):
        log += run("v/bin/pip --version || python3 -m venv v; v/bin/pip --no-input --disable-pip-version-check install -vvv --dry-run --no-cache-dir --report report.json -r requirements.txt", d)
        if len(log) > 100_000:
            break
    log += run("for i in $(seq 300); do echo \"upload of layer $i: exists already\"; done", d)
    corpus.add("pip-resolve", "pip", log, [["ERROR: Cannot install"], ["ERROR: ResolutionImpossible"]], "pip's exit code; the conflict is made")


def apt(corpus):
    need("dpkg-deb", "dpkg")
    d = corpus.dir("dpkg")
    root = d / "root"
    for sub in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "var/log", "usr/share"):
        (root / sub).mkdir(parents=True)
    write(root, {"var/lib/dpkg/status": "", "var/lib/dpkg/available": ""})
    packs = [n.replace("_", "-") for n in names(321, 300)]
    for i, p in enumerate(packs):
        write(d, {f"{p}/DEBIAN/control": f"Package: {p}\nVersion: 1.{i}\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: handles errors of {p}\n"
                  + (f"Depends: {p}-common-data\n" if i == 140 else "")})
        write(d, {f"{p}/usr/share/{p}/data": "data\n"})
        run(["dpkg-deb", "--build", "--root-owner-group", p, f"{i:03}_{p}.deb"], d, ok=True)
    log = run(f"dpkg --root={root} --force-not-root --status-fd 9 -i *.deb 9>status", d)
    log += run("for i in $(seq 500); do echo \"Processing triggers for locale part $i (2.36-9) ...\"; done", d)
    facts = []
    for line in open(d / "status"):
        m = re.match(r"status: (?:\./)?(\S+?)(?::all)? : error : (.*)", line) or re.match(r"status: (\S+) : error : (.*)", line)
        if m:
            facts.append(["error processing package " + m[1].split(":")[0]])
    corpus.add("dpkg", "dpkg", log, facts[:1] + [["depends on", packs[140] + "-common-data"]], "dpkg --status-fd")


def mypy(corpus):
    need("mypy")
    d = corpus.dir("mypy")
    mods = names(331, 280)
    for i, m in enumerate(mods):
        bad = f"def total_{i}() -> int:\n    return 'text'\n" if i in (120,) else ""
        write(d, {f"app/{m}.py": "import os\n" + "".join(f"def run_{k}(n):\n    return n\n" for k in range(3)) + f"x_{i}: int = run_0({i})\n" + bad})
    write(d, {"app/__init__.py": ""})
    log = run("mypy --no-incremental --cache-dir=/dev/null -v app", d)
    out = run("mypy --no-incremental --cache-dir=/dev/null -O json app", d)
    facts = []
    for line in out.splitlines():
        if line.startswith(b"{"):
            g = json.loads(line)
            if g["severity"] == "error":
                facts.append([f"{g['file']}:{g['line']}: error: ", g["message"]])
    corpus.add("mypy", "mypy", log, facts, "mypy -O json")


def pylint(corpus):
    need("pylint")
    d = corpus.dir("pylint")
    for i, m in enumerate(names(341, 90)):
        bad = "print(undefined_total)\n" if i in (33, 70) else ""
        write(d, {f"app/{m}.py": "import os\n" + "".join(f"def Run{k}(n, unused):\n    if n == 0:\n        return 1\n    else:\n        return n\n" for k in range(2)) + bad})
    write(d, {"app/__init__.py": ""})
    log = run("pylint app", d)
    facts = []
    for g in json.loads(run("pylint -f json app", d)):
        if g["type"] in ("error", "fatal"):
            facts.append([f"{g['path']}:{g['line']}:{g['column']}: {g['message-id']}: "])
    corpus.add("pylint", "pylint", log, facts, "pylint -f json")


def eslint(corpus):
    need("npm")
    d = corpus.dir("eslint")
    run("npm init -y && npm install --no-audit --no-fund eslint@8", d, ok=True)
    for i, m in enumerate(names(351, 160)):
        bad = "const total = ;\n" if i in (80,) else ""
        write(d, {f"src/{m}.js": "".join(f"function run{k}(n, unused) {{\n  var x = n == {k};\n  console.log(n)\n}}\n" for k in range(3)) + bad})
    write(d, {".eslintrc.json": json.dumps({"root": True, "env": {"node": True, "es2022": True}, "parserOptions": {"ecmaVersion": 2022},
                                           "rules": {"no-unused-vars": "warn", "eqeqeq": "warn", "no-var": "warn", "semi": "warn", "no-console": "warn"}})})
    log = run("npx eslint --no-color src", d)
    facts = []
    for f in json.loads(run("npx eslint -f json src", d)):
        for g in f["messages"]:
            if g["severity"] == 2:
                facts.append([f"{g['line']}:{g['column']}", "error", g["message"]])
    corpus.add("eslint", "eslint", log, facts, "eslint -f json")


def yamllint(corpus):
    need("yamllint")
    d = corpus.dir("yamllint")
    for i, m in enumerate(names(361, 130)):
        bad = "broken: [a, b\n" if i in (60,) else ""
        write(d, {f"conf/{m}.yaml": "".join(f"key_{k}:   value\nlist_{k}: [ a,b ]\n" for k in range(5)) + bad})
    write(d, {".yamllint": "extends: default\nrules:\n  colons: {level: warning}\n  brackets: {level: warning}\n  commas: {level: warning}\n  document-start: {level: warning}\n"})
    log = run("yamllint conf", d)
    facts = []
    for m in re.finditer(rb"(?m)^\S+?:(\d+):(\d+): \[error\] (.*)$", run("yamllint -f parsable conf", d)):
        facts.append([m[1] + b":" + m[2], b"error", m[3][:40]])
    corpus.add("yamllint", "yamllint", log, facts, "yamllint -f parsable", held=True)


def tidy(corpus):
    need("xmllint")
    d = corpus.dir("xmllint")
    files = names(371, 1100)
    for i, m in enumerate(files):
        write(d, {f"doc/{m}.xml": f"<doc><title>{m}</title>" + (f"<part><error>{i}</part>" if i in (500,) else "<part/>") + "</doc>\n"})
    log = run("for f in doc/*.xml; do echo \"parsing $f for errors and warnings, exceptions follow\"; xmllint --noout $f; done", d)
    out = run(["python3", "-c", f"import sys, xml.sax\ntry:\n  xml.sax.parse('doc/{files[500]}.xml', xml.sax.ContentHandler())\nexcept xml.sax.SAXParseException as e: print(e.getLineNumber())"], d)
    corpus.add("xmllint", "xmllint", log, [[f"doc/{files[500]}.xml:{out.decode().strip()}: parser error : "]], "xml.sax", held=True)


def pipeline(corpus):
    """A job of a pipeline: many steps, one of which fails while the rest goes on."""
    need("gcc", "python3")
    for name, seed, at in (("pipeline-early", 381, 2), ("pipeline-middle", 382, 9), ("pipeline-late", 383, 15), ("pipeline-colour", 384, 7), ("pipeline-progress", 385, 11)):
        d = corpus.dir(name)
        rng = random.Random(seed)
        log = b""
        for i, step in enumerate(names(seed, 18)):
            t = f"2026-11-29T17:{i:02}:"
            log += f"{t}00Z ##[group]Run step {step}\n".encode()
            for n in range(110):
                c = "\x1b[36m" if name.endswith("colour") else ""
                o = "\x1b[0m" if c else ""
                text = rng.choice(["Fetched {n} kB of archive error-pages in {k} ms", "level=info msg=\"retry of failed request succeeded\" n={n}", "Unpacking lib{s}-dev ({k}.{n}) over ({k}.0) ...",
                                   "{k}/110 objects built for {s}, 0 failed", "INFO  [{s}] cache entry {n} is missing, rebuilding it", "DEBUG [{s}] expected {n} got {n}"])
                line = text.format(n=rng.randrange(9999), k=n, s=step.replace("_", "-"))
                if name.endswith("progress"):
                    log += "".join(f"\rdownloading {step} {p}%" for p in range(0, 101, 25)).encode() + b"\r"
                log += f"{t}{n % 60:02}Z {c}{line}{o}\n".encode()
            if i == at:
                write(d, {"w.py": f"import json\ntry:\n    raise LookupError('no quota is left for {step}')\nexcept LookupError as e:\n    json.dump([type(e).__name__, str(e)], open('out.json', 'w'))\n    raise\n"})
                out = run("python3 w.py", d, ok=False)
                log += b"".join(f"{t}59Z ".encode() + (b"\x1b[31m" if name.endswith("colour") else b"") + l + (b"\x1b[0m" if name.endswith("colour") else b"") + b"\n" for l in out.splitlines())
                log += f"{t}59Z ##[error]Process completed with exit code 1.\n".encode()
        n, m = json.load(open(d / "out.json"))
        corpus.add(name, "python3", log, [[f"{n}: {m}"], ["##[error]"]], "the program's exception as JSON")


ALL = [npm, postinstall, pip, pip_missing, apt, mypy, pylint, eslint, yamllint, tidy, pipeline]
