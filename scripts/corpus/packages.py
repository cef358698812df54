"""Package managers that fail, and linters."""

import json
import re

from compilers import C_BROKEN, c_file, gcc_facts
from corpus import first_line, json_lines, names, need, run, write


SERVICES = ("express@4.19.2", "eslint@8.57.0", "webpack@5.91.0", "mocha@10.4.0", "fastify@4.27.0", "rollup@4.18.0")


def npm(corpus):
    need("npm")
    quiet = "npm install --no-audit --no-fund --cache cache"
    d = corpus.dir("npm-missing")
    wanted = dict(w.split("@") for w in SERVICES) | {"left-pad": "99.0.0"}
    write(d, {"package.json": json.dumps({"name": "app", "version": "1.0.0", "dependencies": wanted})})
    log = run(quiet + " --loglevel silly", d, ok=False)
    corpus.add("npm-missing", "npm", log, npm_facts(d, quiet), "npm --json")
    # A repository of several packages, installed one after the other.
    d = corpus.dir("npm-peer")
    for i, w in enumerate(SERVICES):
        name, version = w.split("@")
        write(d, {f"{i}-{name}/package.json": json.dumps({"name": "on-" + name, "version": "1.0.0", "dependencies": {name: version}})})
    write(d, {"3-site/package.json": json.dumps({"name": "site", "version": "1.0.0", "dependencies": {"react": "16.0.0", "react-dom": "18.2.0"}})})
    quiet = "npm install --no-audit --no-fund --cache ../cache"
    log = run(f"set -x; for p in [0-9]*/; do (cd $p && {quiet} --loglevel silly); done", d)
    corpus.add("npm-peer", "npm", log, npm_facts(d / "3-site", quiet), "npm --json")


def npm_facts(d, command):
    out, _ = run(command + " --json", d, apart=True)
    e = json.loads(out)["error"]
    return [["npm error code " + e["code"]], ["npm error", first_line(e["summary"])[:70]]]


def workspaces(corpus):
    """A script of many packages of which one fails; npm goes on with the others."""
    need("npm")
    d = corpus.dir("npm-script")
    packs = names(301, 45)
    write(d, {"package.json": json.dumps({"name": "app", "version": "1.0.0", "private": True, "workspaces": ["packages/*"]}),
              "build.js": "const fs = require('fs');\nconst zlib = require('zlib');\nif (process.env.RECORD) process.on('uncaughtException', (e) => fs.writeFileSync('out.json', JSON.stringify([e.name, e.message])));\n"
              "for (const f of fs.readdirSync('src').sort()) {\n  const text = fs.readFileSync('src/' + f, 'utf8');\n  const m = /require\\('(.*)'\\)/.exec(text);\n  if (m) require(m[1]);\n"
              "  console.log(`[build] src/${f} ${text.length} -> dist/${f.replace('.js', '.min.js')} ${zlib.gzipSync(text).length} bytes, 0 errors`);\n}\n"})
    for i, p in enumerate(packs):
        write(d, {f"packages/{i:02}-{p}/package.json": json.dumps({"name": p.replace("_", "-"), "version": "1.0.0", "scripts": {"build": "node ../../build.js"}})})
        write(d, {f"packages/{i:02}-{p}/src/{s}.js": f"exports.{s} = {k};\n" + (f"require('./lib/{s}_config')\n" if (i, k) == (19, 11) else "") for k, s in enumerate(names(302 + i, 28))})
    log = run("npm install --no-audit --no-fund --loglevel verbose && npm run build --workspaces --loglevel verbose", d, ok=False)
    bad = d / f"packages/19-{packs[19]}"
    run("node ../../build.js", bad, env={"RECORD": "1"})
    n, m = json.load(open(bad / "out.json"))
    corpus.add("npm-script", "npm run", log, [[n + ": " + first_line(m)]], "a handler of the program")


def pip(corpus):
    """An extension of many sources; the compiler does not get through all of them."""
    need("python3", "gcc")
    d = corpus.dir("pip-build")
    files = names(311, 40)
    for i, f in enumerate(files):
        write(d, {f"pkg/src/{f}.c": c_file(f, i, C_BROKEN[1] if i == 33 else [])})
    write(d, {"pkg/setup.py": "from setuptools import Extension, setup\nsetup(name='pkg', version='1', ext_modules=[Extension('pkg', " + json.dumps([f"src/{f}.c" for f in files]) + ", extra_compile_args=['-Wall', '-Wextra'])])\n"})
    run("python3 -m venv v && v/bin/pip install setuptools wheel", d, ok=True)
    install = "--no-input --disable-pip-version-check install -v --no-build-isolation ./pkg"
    log = run("v/bin/pip " + install, d, ok=False)
    facts = gcc_facts(d / "pkg", "gcc", f"src/{files[33]}.c") + pip_facts(d, install)
    corpus.add("pip-build", "pip", log, facts, "gcc -fdiagnostics-format=json, the records that pip logs")


# It runs pip, and writes down the requirements that its resolver says are in
# conflict and, of the records that it logs, those that are errors.
RECORD = """import json, logging, sys
from pip._internal.cli.main import main
from pip._internal.resolution.resolvelib import factory
said, make, explain = [], logging.getLogRecordFactory(), factory.Factory.get_installation_error
def record(*args, **kwargs):
    r = make(*args, **kwargs)
    if r.levelno >= logging.ERROR:
        reference = getattr(r.args[0] if isinstance(r.args, tuple) and r.args else None, "reference", None)
        said.append(["error: " + reference] if reference else ["ERROR: " + r.getMessage().strip().splitlines()[0]])
    return r
def installation_error(self, e, constraints):
    for c in e.causes:
        said.append([f"{c.parent.name} {c.parent.version} depends on", c.requirement.format_for_error()] if c.parent else ["requested", c.requirement.format_for_error()])
    return explain(self, e, constraints)
logging.setLogRecordFactory(record)
factory.Factory.get_installation_error = installation_error
main(sys.argv[1:])
json.dump(said, open("out.json", "w"))
"""


def pip_facts(d, command):
    write(d, {"record.py": RECORD})
    run("v/bin/python record.py " + command, d)
    return json.load(open(d / "out.json"))


def pip_missing(corpus):
    need("python3")
    d = corpus.dir("pip-resolve")
    run("python3 -m venv v", d, ok=True)
    install = "--no-input --disable-pip-version-check install --dry-run --no-cache-dir -r requirements.txt"
    write(d, {"requirements.txt": "requests==2.31.0\nurllib3==1.20\n"})
    log = run(f"v/bin/pip {install} -vvv", d, ok=False)
    corpus.add("pip-resolve", "pip", log, pip_facts(d, install), "the causes of pip's resolver, the records that pip logs")


def apt(corpus):
    need("dpkg-deb", "dpkg")
    d = corpus.dir("dpkg")
    root = d / "root"
    for sub in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "var/log", "usr/share"):
        (root / sub).mkdir(parents=True)
    write(root, {"var/lib/dpkg/status": "", "var/lib/dpkg/available": ""})
    packs = [n.replace("_", "-") for n in names(321, 420)]
    for i, p in enumerate(packs):
        write(d, {f"{p}/DEBIAN/control": f"Package: {p}\nVersion: 1.{i}\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: handles errors of {p}\n"
                  + (f"Depends: {p}-common-data\n" if i == 140 else "")})
        write(d, {f"{p}/usr/share/{p}/data": "data\n"})
        run(["dpkg-deb", "--build", "--root-owner-group", p, f"{i:03}_{p}.deb"], d, ok=True)
    log = run(f"dpkg --root={root} --force-not-root --status-fd 9 -i *.deb 9>status", d)
    said = [m for m in (re.match(r"status: (?:\./)?([^ :]+)\S* : error : (.*)", l) for l in open(d / "status")) if m]
    needs = run(["dpkg-deb", "-f", f"140_{packs[140]}.deb", "Depends"], d, ok=True).decode().strip()
    corpus.add("dpkg", "dpkg", log, [["error processing package " + said[0][1]], ["depends on", needs]], "dpkg --status-fd, dpkg-deb -f")


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
    for g in json_lines(out):
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
        bad = [g for g in f["messages"] if g["severity"] == 2]
        facts += [[f["filePath"]]] * bool(bad) + [[f"{g['line']}:{g['column']}", "error", g["message"]] for g in bad]
    corpus.add("eslint", "eslint", log, facts, "eslint -f json")


def yamllint(corpus):
    need("yamllint")
    d = corpus.dir("yamllint")
    for i, m in enumerate(names(361, 130)):
        bad = "broken: [a, b\n" if i in (60,) else ""
        write(d, {f"conf/{m}.yaml": "".join(f"key_{k}:   value\nlist_{k}: [ a,b ]\n" for k in range(5)) + bad})
    write(d, {".yamllint": "extends: default\nrules:\n  colons: {level: warning}\n  brackets: {level: warning}\n  commas: {level: warning}\n  document-start: {level: warning}\n"})
    log = run("yamllint conf", d)
    write(d, {"report.py": "import glob, json\nfrom yamllint import config, linter\nconf = config.YamlLintConfig(file='.yamllint')\nfor f in glob.glob('conf/*'):\n"
                           "    for p in linter.run(open(f), conf, f):\n        print(json.dumps([f, p.line, p.column, p.level, p.message]))\n"})
    facts = []
    for file, line, column, level, message in json_lines(run("python3 report.py", d, ok=True)):
        if level == "error":
            facts += [[file], [f"{line}:{column}", level, message]]
    corpus.add("yamllint", "yamllint", log, facts, "the problems of yamllint's library", held=True)


# It reads files with the library of xmllint, which hands over its errors.
XML_REPORT = """import json, sys
from lxml import etree
for file in sys.argv[1:]:
    try:
        etree.parse(file)
    except etree.XMLSyntaxError as e:
        for g in e.error_log:
            print(json.dumps([g.filename, g.line, g.message]))
"""


def tidy(corpus):
    need("xmllint")
    d = corpus.dir("xmllint")
    files = names(371, 800)
    for i, m in enumerate(files):
        write(d, {f"doc/{m}.xml": f"<doc><title>{m}</title>" + (f"<part><error>{i}</part>" if i in (350,) else "<part/>") + "</doc>\n"})
    log = run("set -x; for f in doc/*.xml; do xmllint --noout --timing --nowarning $f; done", d)
    write(d, {"report.py": XML_REPORT})
    out, _ = run("/usr/bin/python3 report.py doc/*.xml", d, ok=True, apart=True)
    facts = [[f"{file}:{line}: parser error : {message}"] for file, line, message in json_lines(out)]
    corpus.add("xmllint", "xmllint", log, facts, "the errors of libxml2, as lxml has them", held=True)


ALL = [npm, workspaces, pip, pip_missing, apt, mypy, pylint, eslint, yamllint, tidy]
