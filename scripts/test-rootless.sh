#!/usr/bin/env bash
# test-rootless.sh [GO TEST FLAGS] runs, as root, the tests of the packages
# that make sandboxes as the ordinary user rein-test, in a copy of the tree
# that this user may read: the checkout may lie where only root can.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

user=rein-test
if ! id "$user" >/dev/null 2>&1; then
	echo "creating the user $user for the rootless tests"
	useradd --create-home --shell /bin/bash "$user"
fi
if [ -c /dev/net/tun ] && ! setpriv --reuid="$user" --regid="$user" --init-groups test -w /dev/net/tun; then
	echo "chmod 0666 /dev/net/tun, as udev sets it: rootless sandboxes open it"
	chmod 0666 /dev/net/tun
fi

# Ubuntu 24.04 lets no unprivileged program make user namespaces. The profile
# that rein probe prints names one binary; tests have many.
restrict=/proc/sys/kernel/apparmor_restrict_unprivileged_userns
restore=
if [ "$(cat "$restrict" 2>/dev/null)" = 1 ]; then
	echo "setting kernel.apparmor_restrict_unprivileged_userns=0 until the tests have ended"
	echo 0 >"$restrict"
	restore="echo 1 >$restrict"
fi

copy=$(mktemp -d "${TMPDIR:-/tmp}/rein-rootless.XXXXXX")
trap 'rm -rf "$copy"; eval "$restore"' EXIT
chmod 0755 "$copy"
mkdir "$copy/tree" "$copy/exec"
git ls-files -z -co --exclude-standard | while IFS= read -r -d '' f; do
	if [ -e "$f" ]; then printf '%s\0' "$f"; fi # a deleted file is still in the index
done | xargs -0 cp --parents -t "$copy/tree"
mkdir "$copy/tree/bin"
cp bin/rein bin/rein-keep bin/rein-execd bin/rein-runsc "$copy/tree/bin"
chown -R "$user:" "$copy/tree" "$copy/exec"

# go test starts a test binary through this program. Go's own work directory is
# root's, so the binary is copied out first.
cat >"$copy/as-user" <<EOF
#!/usr/bin/env bash
set -euo pipefail
test=$copy/exec/\$(basename "\$1").\$\$
cp "\$1" "\$test"
trap 'rm -f "\$test"' EXIT
shift
home=\$(getent passwd $user | cut -d: -f6)
setpriv --reuid=$user --regid=$user --init-groups \\
	env -u XDG_RUNTIME_DIR -u XDG_CONFIG_HOME -u XDG_STATE_HOME -u XDG_CACHE_HOME -u TMPDIR -u GOCACHE \\
	HOME="\$home" USER=$user LOGNAME=$user "\$test" "\$@"
EOF
chmod 0755 "$copy/as-user"

say "go test, as $user"
cd "$copy/tree"
# Which packages: those whose tests start sandboxes or depend on who runs them.
packages=()
for dir in image sandbox execd/daemon run agent wrap lab cmd/rein; do
	[ ! -d "$dir" ] || packages+=("./$dir/...")
done
GOFLAGS="${GOFLAGS:-} -buildvcs=false" go test -exec "$copy/as-user" "$@" "${packages[@]}"
