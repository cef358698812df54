#!/usr/bin/env bash
# test-opensandbox.sh [COMMAND...] runs the tests of sandbox/opensandbox, or
# COMMAND, against a real OpenSandbox server: opensandbox-server from PyPI, on a Docker
# engine of its own that is started here and gone afterwards. It needs root and
# downloads packages, but no image: the sandboxes' image is made with
# debootstrap, and the images of execd and of the egress sidecar are made from
#
#   REIN_OPENSANDBOX_EXECD   OpenSandbox's execd, a static binary
#   REIN_OPENSANDBOX_EGRESS  OpenSandbox's egress sidecar, likewise
#
# or, where these are not given, from stand-ins that are part of the tests: see
# docs/opensandbox.md for what then is not OpenSandbox's own. With
# REIN_OPENSANDBOX_IMAGES=official the published images are pulled instead.
set -euo pipefail
cd "$(dirname "$0")/.."

server=opensandbox-server==1.1.1
official_execd=opensandbox/execd:v1.1.0
official_egress=opensandbox/egress:v1.1.7

say() { printf '\n== %s\n' "$*"; }

if [ "$(id -u)" -ne 0 ]; then
	echo "the Docker daemon needs root" >&2
	exit 1
fi
scripts/need.sh dockerd:docker.io docker:docker.io ip:iproute2 debootstrap:debootstrap python3:python3 curl:curl

cache=$PWD/bin/opensandbox
mkdir -p "$cache"
say "$server"
if [ ! -x "$cache/venv/bin/opensandbox-server" ]; then
	python3 -m venv "$cache/venv" || { scripts/need.sh no-such-command:python3-venv && python3 -m venv "$cache/venv"; }
	"$cache/venv/bin/pip" install --quiet --disable-pip-version-check "$server"
fi
"$cache/venv/bin/pip" list 2>/dev/null | grep '^opensandbox'

say "root file system of the sandboxes"
if [ ! -s "$cache/rootfs.tar" ]; then
	root=$(mktemp -d /var/tmp/rein-opensandbox-root.XXXXXX)
	# shellcheck disable=SC1091
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mirror=$(awk '/^URIs:/ { print $2; exit } /^deb / { for (i = 2; i <= NF; i++) if ($i ~ /^http/) { print $i; exit } }' \
		/etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true)
	if ! debootstrap --variant=minbase --include=nftables,iptables,iproute2,ca-certificates "$suite" "$root" ${mirror:+"$mirror"} >"$cache/debootstrap.log" 2>&1; then
		tail -n 20 "$cache/debootstrap.log" >&2
		exit 1
	fi
	rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
	tar -C "$root" -cf "$cache/rootfs.tar.new" .
	mv "$cache/rootfs.tar.new" "$cache/rootfs.tar"
	rm -rf "$root"
fi
du -h "$cache/rootfs.tar" | cut -f 1

dir=$(mktemp -d /var/tmp/rein-opensandbox.XXXXXX)
bridge=rein-osb
socket="$dir/docker.sock"
pids=()
stop() {
	for pid in ${pids[@]+"${pids[@]}"}; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	# overlay mounts of containers that were killed with their daemon
	awk -v d="$dir/" 'index($5, d) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while IFS= read -r m; do umount -l "$m"; done
	ip link delete "$bridge" 2>/dev/null || true
	rm -rf "$dir"
}
finish() {
	local status=$?
	if [ "$status" -ne 0 ]; then
		tail -n 40 "$dir/server.log" >&2 || true
		cp "$dir"/*.log "$cache" || true
	fi
	stop
	exit "$status"
}
trap finish EXIT

say "Docker"
# A bridge of its own and no rules in the firewall: ports are published by
# Docker's user-space proxy.
ip link add name "$bridge" type bridge
ip address add 10.214.0.1/24 dev "$bridge"
ip link set "$bridge" up
dockerd --host "unix://$socket" --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" \
	--bridge "$bridge" --ip-masq=false --iptables=false --ip6tables=false --log-level warn >"$dir/dockerd.log" 2>&1 </dev/null &
pids+=($!)
export DOCKER_HOST="unix://$socket"
for _ in $(seq 300); do
	docker info >/dev/null 2>&1 && break
	kill -0 "${pids[0]}" 2>/dev/null || break
	sleep 0.1
done
if ! docker info --format 'docker {{.ServerVersion}}, storage {{.Driver}}, cgroup v{{.CgroupVersion}}'; then
	tail -n 20 "$dir/dockerd.log" >&2
	exit 1
fi

say "images"
docker import --change 'CMD ["sleep", "infinity"]' "$cache/rootfs.tar" rein-opensandbox/base:1 >/dev/null
standin=
if [ -z "${REIN_OPENSANDBOX_EXECD:-}" ] || [ -z "${REIN_OPENSANDBOX_EGRESS:-}" ]; then
	CGO_ENABLED=0 go test -c -trimpath -ldflags '-s -w' -o "$dir/standin" ./sandbox/opensandbox
	standin=$dir/standin
fi
# image NAME BINARY FILE... is the base image with a binary, started as NAME.
image() {
	local name=$1 binary=$2 add
	add=$(mktemp -d "$dir/image.XXXXXX")
	install -m 0755 "$binary" "$add/$name"
	cat >"$add/bootstrap.sh" <<'BOOTSTRAP'
#!/bin/sh
# As OpenSandbox's: execd beside the image's own program.
"${EXECD:-/opt/opensandbox/execd}" &
exec "$@"
BOOTSTRAP
	chmod 0755 "$add/bootstrap.sh"
	cp "$cache/rootfs.tar" "$add.tar"
	tar -C "$add" -rf "$add.tar" "./$name" ./bootstrap.sh
	docker import --change "ENTRYPOINT [\"/$name\"]" "$add.tar" "rein-opensandbox/$name:1" >/dev/null
	rm -rf "$add" "$add.tar"
}
if [ "${REIN_OPENSANDBOX_IMAGES:-}" = official ]; then
	execd_image=$official_execd egress_image=$official_egress
	docker pull -q "$execd_image"
	docker pull -q "$egress_image"
	with="$execd_image and $egress_image"
else
	execd_image=rein-opensandbox/execd:1 egress_image=rein-opensandbox/egress:1
	image execd "${REIN_OPENSANDBOX_EXECD:-$standin}"
	image egress "${REIN_OPENSANDBOX_EGRESS:-$standin}"
	echo "execd:  ${REIN_OPENSANDBOX_EXECD:-stand-in}"
	echo "egress: ${REIN_OPENSANDBOX_EGRESS:-stand-in}"
	with="stand-ins for its execd and egress sidecar"
	if [ -z "$standin" ]; then with="its own execd and egress sidecar"; fi
fi

# serve NAME PORT MODE ... starts a server.
key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
serve() {
	local name=$1 port=$2 network=$3 enforcement=$4
	cat >"$dir/$name.toml" <<TOML
[server]
host = "127.0.0.1"
port = $port
api_key = "$key"
max_sandbox_timeout_seconds = 86400
[log]
level = "INFO"
[runtime]
type = "docker"
execd_image = "$execd_image"
[store]
type = "sqlite"
path = "$dir/$name.db"
[docker]
network_mode = "$network"
publish_host = "127.0.0.1"
no_new_privileges = true
pids_limit = 4096
[ingress]
mode = "direct"
[egress]
image = "$egress_image"
mode = "$enforcement"
TOML
	HOME="$dir" "$cache/venv/bin/opensandbox-server" --config "$dir/$name.toml" >"$dir/$name.log" 2>&1 </dev/null &
	pids=($! "${pids[@]}")
	for _ in $(seq 300); do
		curl -fsS "http://127.0.0.1:$port/health" >/dev/null 2>&1 && return
		kill -0 "${pids[0]}" 2>/dev/null || break
		sleep 0.1
	done
	echo "the server does not start:" >&2
	tail -n 40 "$dir/$name.log" >&2
	return 1
}

say "servers: dns+nft, dns only, host network"
serve server 18481 bridge dns+nft
serve weak 18482 bridge dns
serve host 18483 host dns+nft

say "tests"
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$dir/rein-execd" ./cmd/rein-execd
export REIN_OPENSANDBOX_URL=http://127.0.0.1:18481 REIN_OPENSANDBOX_WEAK_URL=http://127.0.0.1:18482 REIN_OPENSANDBOX_HOST_URL=http://127.0.0.1:18483
export REIN_OPENSANDBOX_KEY="$key" REIN_OPENSANDBOX_IMAGE=rein-opensandbox/base:1 REIN_OPENSANDBOX_REIN_EXECD="$dir/rein-execd"
export REIN_OPENSANDBOX_WITH="${server/==/ } and $with"
if [ "$#" -eq 0 ]; then set -- go test -count=1 -timeout 30m -run '^TestReal' -v ./sandbox/opensandbox; fi
"$@"
