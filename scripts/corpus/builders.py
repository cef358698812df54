"""Tools that work on many targets side by side: build and test them, or bring machines to a state."""

import json
import xml.etree.ElementTree as ET

from corpus import first_line, json_lines, names, need, run, write


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


# It is told the results of tasks, and writes down those that failed.
CALLBACK = """import json
from ansible.plugins.callback import CallbackBase
class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, 'notification', 'record'
    def v2_runner_on_failed(self, result, ignore_errors=False):
        with open('failed.json', 'a') as f:
            print(json.dumps([result._host.get_name(), result._result['msg'], result._result.get('stderr', '')]), file=f)
"""


def ansible(corpus):
    need("ansible-playbook")
    d = corpus.dir("ansible")
    tasks = []
    for i, t in enumerate(names(531, 60)):
        does = {"ansible.builtin.debug": {"msg": f"{t} of {{{{ inventory_hostname }}}}: 0 errors, failover of part {i} is ready"}}
        if i == 24:
            does = {"ansible.builtin.command": {"cmd": "sh -c 'test {{ quota }} -lt 40 || { echo ledger holds {{ quota }} entries, 40 are allowed >&2; exit 3; }'"}}
        if i == 37:
            does = {"ansible.builtin.debug": {"msg": "zone {{ zone }} of {{ inventory_hostname }}"}}
        tasks.append({"name": t.replace("_", " "), **does})
    hosts = [f"web{i} ansible_connection=local ansible_python_interpreter='{{{{ ansible_playbook_python }}}}' quota={41 if i == 3 else 7}{'' if i == 5 else ' zone=b'}\n" for i in range(14)]
    write(d, {"hosts": "".join(hosts), "plugins/record.py": CALLBACK,
              "site.json": json.dumps([{"name": "site", "hosts": "all", "gather_facts": False, "tasks": tasks}])})
    env = {"HOME": str(d), "ANSIBLE_FORKS": "2"}
    log = run("ansible-playbook -i hosts site.json", d, env=env, ok=False)
    run("ansible-playbook -i hosts site.json", d, env={**env, "ANSIBLE_CALLBACK_PLUGINS": "plugins"}, ok=False)
    facts = []
    for host, message, stderr in json_lines((d / "failed.json").read_bytes()):
        facts.append([f"fatal: [{host}]: FAILED!", json.dumps(message)[1:-1], json.dumps(stderr)[1:-1]])
    corpus.add("ansible", "ansible", log, facts, "a callback plugin of ansible", held=True)


ALL = [meson, ansible]
