#!/usr/bin/env bash
# bench-peers.sh COMMAND... installs what rein is measured beside (docker.io,
# bwrap, runc and a static busybox), starts a Docker daemon of its own on a
# private socket, imports a minimal root file system into it, and runs COMMAND
# with REIN_BENCH_DOCKER (the socket), REIN_BENCH_IMAGE and REIN_BENCH_ROOTFS
# set. The daemon and its data are gone afterwards. No image is downloaded.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	echo "the peers need root: the Docker daemon does" >&2
	exit 1
fi
scripts/need.sh dockerd:docker.io docker:docker.io runc:runc bwrap:bubblewrap busybox:busybox-static ip:iproute2

dir=$(mktemp -d /var/tmp/rein-peers.XXXXXX)
bridge=rein-peers
socket="$dir/docker.sock"
stop() {
	if [ -n "${daemon:-}" ]; then
		kill "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	# overlay mounts of containers that were killed with their daemon
	awk -v d="$dir/" 'index($5, d) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while IFS= read -r m; do umount -l "$m"; done
	ip link delete "$bridge" 2>/dev/null || true
	rm -rf "$dir"
}
trap stop EXIT

root="$dir/rootfs"
mkdir -p "$root"/{bin,etc,proc,sys,dev,tmp,run}
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in sh true cat sleep; do ln -s busybox "$root/bin/$applet"; done

# A bridge of its own, as by default, but no rules in the firewall: containers
# have a network and no way out, as sandboxes do. Where the kernel has no bridges
# the containers have no network.
network=(--bridge none)
if ip link add name "$bridge" type bridge 2>/dev/null; then
	ip address add 10.213.0.1/24 dev "$bridge"
	ip link set "$bridge" up
	network=(--bridge "$bridge")
fi
dockerd --host "unix://$socket" --data-root "$dir/data" --exec-root "$dir/exec" \
	--pidfile "$dir/pid" "${network[@]}" --ip-masq=false --iptables=false --ip6tables=false \
	--log-level warn >"$dir/dockerd.log" 2>&1 </dev/null &
daemon=$!
export DOCKER_HOST="unix://$socket"
for _ in $(seq 300); do
	docker info >/dev/null 2>&1 && break
	if ! kill -0 "$daemon" 2>/dev/null; then break; fi
	sleep 0.1
done
if ! docker info --format 'docker {{.ServerVersion}}, storage {{.Driver}}, cgroup v{{.CgroupVersion}}'; then
	tail -n 20 "$dir/dockerd.log" >&2
	exit 1
fi
tar -C "$root" -c . | docker import - rein-bench-peer >/dev/null

if [ "$#" -eq 0 ]; then set -- scripts/bench.sh; fi
REIN_BENCH_DOCKER="$DOCKER_HOST" REIN_BENCH_IMAGE=rein-bench-peer REIN_BENCH_ROOTFS="$root" "$@"
