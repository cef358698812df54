"""Tools that build, and run the tests of what they build side by side."""

import xml.etree.ElementTree as ET

from corpus import first_line, names, need, run, write


def meson(corpus):
    need("meson", "ninja")
    d = corpus.dir("meson")
    body = "project('ledger')\nsh = find_program('sh')\n"
    for i, t in enumerate(names(521, 330)):
        end = f"echo 'ledger {i} holds {i + 1} entries' >&2\nexit 3" if i in (60, 200) else "exit 0"
        write(d, {f"{t}.sh": f"echo 'step of {t}: errors are 0'\necho 'failures expected in {t}: none'\n{end}\n"})
        body += f"test('{t}', sh, args: files('{t}.sh'))\n"
    write(d, {"meson.build": body})
    run("meson setup build", d, ok=True)
    log = run("meson test -C build --verbose --num-processes 4", d, ok=False)
    facts = []
    for case in ET.parse(d / "build/meson-logs/testlog.junit.xml").getroot().iter("testcase"):
        if case.find("failure") is not None:
            facts += [[f" {case.get('name')} ", "FAIL"], [first_line(case.findtext("system-err"))]]
    corpus.add("meson", "meson", log, facts, "meson's testlog.junit.xml", held=True)


ALL = [meson]
