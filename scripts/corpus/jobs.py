"""Jobs of a pipeline: a shell script, traced, that installs packages of three
managers, compiles, tests and packs. One step of each fails; the rest goes on."""

import json
import os
import random
import subprocess

from compilers import C_BROKEN, c_file, gcc_facts
from corpus import first_line, names, need, run, write
from testers import junit, py_tests

SCRIPT = """set -x
failed=0
export APT_CONFIG=$PWD/apt.conf DEBIAN_FRONTEND=noninteractive
uname -a
nproc
apt-get update
apt-get install -y APTFLAGS PACKAGES || failed=1
python3 -m venv venv
venv/bin/pip install PIPFLAGS -r requirements.txt || failed=1
(cd web && npm install --no-audit --no-fund NPMFLAGS) || failed=1
make -k || failed=1
venv/bin/python migrate.py || failed=1
venv/bin/pytest -p no:cacheprovider -v TESTFLAGS tests || failed=1
(cd web && npx mocha MOCHAFLAGS test) || failed=1
FETCH
tar -czvf dist.tar.gz src build
sha256sum build/*
test $failed = 0
"""

MIGRATE = """import sys
def apply(step, done):
    if step == FAILING:
        return done[step + 1]
    print(f"applied migration {step:04} in {step % 7} ms, 0 errors", flush=True)
done = []
for step in range(220):
    apply(step, done)
    done.append(step)
"""


def debs(d, seed, count, failing):
    """Builds packages, an index of them, and a root of their own to install them in."""
    root = d / "target"
    for sub in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/log/apt", "etc/apt/preferences.d", "etc/apt/apt.conf.d"):
        (root / sub).mkdir(parents=True)
    write(root, {"var/lib/dpkg/status": "", "var/lib/dpkg/available": ""})
    packs = ["lib" + n.replace("_", "-") for n in names(seed, count)]
    (d / "repo").mkdir()
    for i, p in enumerate(packs):
        write(d, {f"deb/{p}/DEBIAN/control": f"Package: {p}\nVersion: 1.{i}-2\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: errors and exceptions of {p}\n",
                  f"deb/{p}/DEBIAN/postinst": f"#!/bin/sh\nset -e\necho 'Creating config file /etc/{p}/error.conf with new version'\n" + (f"test -d $DPKG_ROOT/srv/{p}\n" if i == failing else ""),
                  f"deb/{p}/usr/share/{p}/data": "data\n"})
        os.chmod(d / f"deb/{p}/DEBIAN/postinst", 0o755)
        run(["dpkg-deb", "--build", "--root-owner-group", f"deb/{p}", f"repo/{p}_1.{i}-2_all.deb"], d, ok=True)
    (d / "repo/Packages").write_bytes(run("dpkg-scanpackages -m . 2>/dev/null", d / "repo", ok=True))
    write(d, {"target/etc/apt/sources.list": f"deb [trusted=yes] file:{d}/repo ./\n",
              "apt.conf": f'Dir "{root}";\nDir::State::status "{root}/var/lib/dpkg/status";\nDir::Bin::methods "/usr/lib/apt/methods/";\nAPT::Sandbox::User "root";\nAcquire::Languages "none";\n'
                          f'DPkg::Options {{ "--root={root}"; "--force-not-root"; "--force-script-chrootless"; }};\nDPkg::Path "{os.environ["PATH"]}";\n'})
    return packs


def project(d, seed, fails):
    """Writes what a job works on, and returns the names of its packages and sources."""
    packs = debs(d, seed, 90, 31 if fails == "apt" else None)
    files, rng = names(seed + 1, 40), random.Random(seed)
    for i, f in enumerate(files):
        write(d, {f"src/{f}.c": c_file(f, i, rng.choice(C_BROKEN) if fails == "gcc" and i == 19 else [])})
    tests = names(seed + 2, 400)
    for k in range(4):
        bad = {37: "eq"} if fails == "pytest" and k == 2 else {}
        write(d, {f"tests/test_part{k}.py": py_tests(random.Random(seed + k), tests[k::4], bad, "function")})
    it = "".join(f"  it('{t.replace('_', ' ')}', () => {{ assert.strictEqual({i} % 7, {i % 7 + (fails == 'mocha' and i == 90)}); }});\n" for i, t in enumerate(names(seed + 3, 200)))
    write(d, {"requirements.txt": "flask==3.0.3\nrequests==2.32.3\nrich==13.7.1\npytest==8.2.2\n",
              "web/package.json": json.dumps({"name": "web", "version": "1.0.0", "dependencies": {"express": "4.19.2", "mocha": "10.4.0", "webpack": "5.91.0"}}),
              "web/test/ledger.test.js": f"const assert = require('assert');\ndescribe('ledger', () => {{\n{it}}});\n",
              "migrate.py": MIGRATE.replace("FAILING", "140" if fails == "migrate" else "-1")})
    (d / "build").mkdir()
    return packs, files


def facts_of(d, fails, files, log):
    """Returns what the step that fails says in a structured form, and how it was had."""
    if fails == "apt":
        said = [l.split(":", 3) for l in open(d / "status") if l.startswith("pmerror:")]
        return [["dpkg: error processing package " + said[0][1]]] + [[said[0][3].strip()]], "APT::Status-Fd"
    if fails == "gcc":
        return gcc_facts(d, "gcc", f"src/{files[19]}.c"), "gcc -fdiagnostics-format=json"
    if fails == "pytest":
        run("venv/bin/pytest -p no:cacheprovider -q --junitxml=out.xml tests", d)
        case, _, message, _ = next(junit(d / "out.xml"))
        return [["E ", first_line(message).replace("AssertionError: ", "")], ["FAILED ", f"::{case} "]], "pytest --junitxml"
    if fails == "mocha":
        out, _ = run("npx mocha --reporter json test", d / "web", apart=True)
        bad = json.loads(out)["failures"][0]
        said = [l for l in bad["err"]["message"].splitlines() if l]
        return [[") " + bad["title"]], [said[0]], [said[-1]]], "mocha --reporter json"
    out = run(["python3", "-c", "import runpy, json\ntry: runpy.run_path('migrate.py')\nexcept Exception as e: print(json.dumps(type(e).__name__ + ': ' + str(e)))"], d)
    return [[json.loads(out.splitlines()[-1])]], "the exception as Python's runpy raises it"


def job(corpus, name, seed, fails, colour=False, terminal=False):
    need("apt-get", "dpkg-scanpackages", "gcc", "make", "npm", "python3", *(["script"] if terminal else []))
    d = corpus.dir(name)
    packs, files = project(d, seed, fails)
    always = " -fdiagnostics-color=always" if colour or terminal else ""
    rules = "".join(f"build/{f}.o: src/{f}.c\n\tgcc -Wall -Wextra{always} -c -o $@ $<\n" for f in files)
    fetch = "git clone --progress --no-local repo.git copy" if terminal else "git log --oneline"
    run("git init -q . && git add src tests && git -c user.name=n -c user.email=n@example.org commit -qm 'Add the sources' && git clone -q --bare . repo.git", d, ok=True)
    write(d, {"Makefile": "all: " + " ".join(f"build/{f}.o" for f in files) + "\n\n" + rules,
              "ci.sh": SCRIPT.replace("PACKAGES", " ".join(packs)).replace("APTFLAGS", "-o APT::Status-Fd=9 9>status" if not terminal else "").replace("PIPFLAGS", "" if terminal else "-v")
                       .replace("NPMFLAGS", "--loglevel http --color " + ("always" if colour else "false")).replace("TESTFLAGS", "--color=yes" if colour else "")
                       .replace("MOCHAFLAGS", "--color" if colour else "").replace("FETCH", fetch)})
    if terminal:
        e = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "NO_COLOR", "CI"))}
        log = subprocess.run(["script", "-qefc", "stty cols 120 && bash ci.sh", "/dev/null"], cwd=d, env=dict(e, TERM="xterm"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
    else:
        log = run("bash ci.sh", d, env={"PIP_CERT": os.environ.get("PIP_CERT", "")} if "PIP_CERT" in os.environ else None, ok=False)
    facts, source = facts_of(d, fails, files, log)
    corpus.add(name, "ci job", log, facts, source)


def job_apt(corpus):
    job(corpus, "job-apt", 381, "apt")


def job_compile(corpus):
    job(corpus, "job-compile", 391, "gcc")


def job_program(corpus):
    job(corpus, "job-program", 401, "migrate")


def job_colour(corpus):
    job(corpus, "job-colour", 411, "mocha", colour=True)


def job_terminal(corpus):
    job(corpus, "job-terminal", 421, "pytest", terminal=True)


ALL = [job_apt, job_compile, job_program, job_colour, job_terminal]
