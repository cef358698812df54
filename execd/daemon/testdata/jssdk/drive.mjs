// Drives the daemon through OpenSandbox's JavaScript SDK: create a sandbox at a
// stub lifecycle server, then commands and files. Usage: node drive.mjs
// LIFECYCLE_HOST WORK_DIRECTORY
import assert from "node:assert/strict";
import { Sandbox } from "@alibaba-group/opensandbox";

const [domain, work] = process.argv.slice(2);
const sandbox = await Sandbox.create({
  connectionConfig: { domain, protocol: "http", apiKey: "k" },
  image: "host",
  readyTimeoutSeconds: 10,
});
const { commands, files, health, metrics } = sandbox;
const lines = (messages) => messages.map((m) => m.text);
const rejects = (promise, statusCode, code) =>
  assert.rejects(promise, (e) => e.statusCode === statusCode && e.error.code === code);

assert.equal(await health.ping(), true);

// Commands
let x = await commands.run("echo hello; echo; printf last; echo warn >&2");
assert.deepEqual(lines(x.logs.stdout), ["hello", "\n", "last"]);
assert.deepEqual(lines(x.logs.stderr), ["warn"]);
assert.equal(x.exitCode, 0);
assert.equal(x.error, undefined);
assert.ok(x.id.length > 0 && x.complete.executionTimeMs >= 0);

x = await commands.run("exit 7");
assert.equal(x.exitCode, 7);
assert.equal(x.error.name, "CommandExecError");
assert.equal(x.error.value, "7");
assert.equal(x.complete, undefined);

x = await commands.run("no-such-program");
assert.equal(x.exitCode, 127);
assert.match(lines(x.logs.stderr).join("\n"), /no-such-program/);

x = await commands.run('pwd; echo "$A"', { workingDirectory: "/", envs: { A: "<&> \u2028 😀" } });
assert.deepEqual(lines(x.logs.stdout), ["/", "<&> \u2028 😀"]);
await rejects(commands.run("true", { workingDirectory: "/no/such/place" }), 400, "INVALID_REQUEST_BODY");

let begun = Date.now();
x = await commands.run("echo begun; sleep 30", { timeoutSeconds: 1 });
assert.deepEqual(lines(x.logs.stdout), ["begun"]);
assert.equal(x.exitCode, -1);
assert.ok(Date.now() - begun < 5000);

begun = Date.now();
for (let i = 0; i < 10; i++) await commands.run("true");
assert.ok(Date.now() - begun < 5000, "a stream does not close with its terminal event");

x = await commands.run("seq 200000");
assert.equal(x.logs.stdout.length, 200000);
assert.equal(x.logs.stdout[199999].text, "200000");

x = await commands.run("head -c 1048576 /dev/zero | tr '\\0' y");
assert.equal(lines(x.logs.stdout).join("").length, 1048576);

// Interrupt from another connection
let id;
const interrupted = commands.run("echo on; sleep 30", {}, {
  onInit: (e) => { id = e.id; },
  onStdout: () => commands.interrupt(id),
});
x = await interrupted;
assert.notEqual(x.exitCode, 0);
await rejects(commands.interrupt(id), 409, "CONFLICT");

// Background
x = await commands.run("for i in 1 2 3; do echo line $i; done; exit 4", { background: true });
assert.equal(x.exitCode, undefined);
let status;
do {
  status = await commands.getCommandStatus(x.id);
} while (status.running);
assert.equal(status.exitCode, 4);
let log = await commands.getBackgroundCommandLogs(x.id);
assert.equal(log.content, "line 1\nline 2\nline 3\n");
assert.equal(log.cursor, 21);
log = await commands.getBackgroundCommandLogs(x.id, log.cursor);
assert.equal(log.content, "");
await rejects(commands.getCommandStatus("unknown"), 404, "COMMAND_NOT_FOUND");

// Files
const dir = work + "/a b/ü";
await files.createDirectories([{ path: dir, mode: 755 }]);
assert.equal((await files.getFileInfo([dir]))[dir].type, "directory");
const bytes = new Uint8Array(70000).map((_, i) => i % 256);
await files.writeFiles([
  { path: dir + "/text", data: "one\ntwo\nthree\n", mode: 644 },
  { path: dir + "/bytes", data: bytes, mode: 600 },
  { path: dir + "/stream.txt", data: (async function* () { yield bytes; yield bytes; })() },
]);
assert.equal(await files.readFile(dir + "/text"), "one\ntwo\nthree\n");
assert.deepEqual(await files.readBytes(dir + "/bytes"), bytes);
assert.equal((await files.readBytes(dir + "/stream.txt")).length, 140000);
assert.equal(await files.readFile(dir + "/text", { range: "bytes=4-6" }), "two");
assert.equal(await files.readFile(dir + "/text", { offset: 2, limit: 2 }), "two\nthree");
const info = (await files.getFileInfo([dir + "/text"]))[dir + "/text"];
assert.equal(info.mode, 644);
assert.equal(info.size, 14);
assert.ok(info.owner.length > 0 && info.group.length > 0 && info.modifiedAt);

assert.equal((await files.search({ path: dir, pattern: "*" })).length, 3);
assert.equal((await files.search({ path: dir, pattern: "*.txt" })).length, 1);
assert.deepEqual((await files.listDirectory({ path: work + "/a b", depth: 2 })).map((f) => f.type), ["directory", "file", "file", "file"]);

await files.setPermissions([{ path: dir + "/text", mode: 600 }]);
assert.equal((await files.getFileInfo([dir + "/text"]))[dir + "/text"].mode, 600);
assert.deepEqual(
  (await files.replaceContentsDetailed([{ path: dir + "/text", oldContent: "o", newContent: "0" }])).map((r) => r.replacedCount), [2]);
assert.equal(await files.readFile(dir + "/text"), "0ne\ntw0\nthree\n");
await files.moveFiles([{ src: dir + "/text", dest: dir + "/new/text" }]);
await rejects(files.getFileInfo([dir + "/text"]), 404, "FILE_NOT_FOUND");
await files.deleteFiles([dir + "/new/text", dir + "/new/text"]);
await files.deleteDirectories([work + "/a b", work + "/a b"]);
await rejects(files.getFileInfo([dir]), 404, "FILE_NOT_FOUND");

// Metrics
const m = await metrics.getMetrics();
assert.ok(m.cpuCount > 0 && m.cpuUsedPercentage >= 0 && m.cpuUsedPercentage <= 100);
assert.ok(m.memoryUsedMiB > 0 && m.memoryUsedMiB <= m.memoryTotalMiB);

await sandbox.kill();
await sandbox.close();
console.log("the SDK is content");
