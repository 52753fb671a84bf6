# shellcheck shell=bash disable=SC2034 # what is set here is read by the scripts that source it
# Shared by the scripts in this directory (bash, sourced): where the cache lies, and small helpers.
# Everything that is fetched or built goes into one cache outside the checkout, keyed by version,
# so a second run costs nothing and a changed pin builds anew.

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/margo-gitops
CI_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Debian keeps dockerd and mkfs in sbin, which users' PATH leaves out.
PATH=$CACHE/bin:$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    say "error: $*"
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
# Runs a program ($2…) of this architecture ($1), which needs nothing else of it.
emulated() {
    case $1 in
    "$(uname -m)") "${@:2}" ;;
    armv7) qemu-arm-static "${@:2}" ;;
    *) "qemu-$1-static" "${@:2}" ;;
    esac
}
is_root() { [ "$(id -u)" -eq 0 ]; }
# True when version $2 is $1 or later.
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# The machine's own tools, where they are new enough for the syncer: Compose by the docker client's settings that it is
# found with (in DOCKER_CONFIG, unless env.sh has put the cache's there), Helm by its path.
machine_compose() {
    local config=${DOCKER_CONFIG:-$HOME/.docker} version
    [ "$config" != "$CACHE/docker-config" ] || config=$HOME/.docker
    version=$(DOCKER_CONFIG=$config docker compose version --short 2>/dev/null) || return 1
    at_least 2.20 "${version#v}" || return 1
    printf '%s\n' "$config"
}
machine_helm() {
    local version
    version=$(helm version --template '{{.Version}}' 2>/dev/null) || return 1
    at_least 3.13 "${version#v}" || return 1
    command -v helm
}

# Waits until a command ($2…) succeeds; false if it doesn't within so many seconds ($1).
within() {
    local left=$(($1 * 5))
    until "${@:2}" >/dev/null 2>&1; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || return 1
        sleep 0.2
    done
}

# Takes a lock for the rest of the script, or of the subshell that calls it, on descriptor 9.
# Daemons are started with 9>&- so that they do not hold it.
lock() {
    have flock || die "flock is missing (Debian package util-linux)"
    mkdir -p "$CACHE"
    exec 9>"$CACHE/$1.lock"
    flock -n 9 || {
        say "waiting for another '$1' to end"
        flock 9
    }
}

# True when the process in pid file $1 lives and its command line has $2 as one argument:
# a recycled pid, or a daemon that is not ours, is never taken for ours.
ours() {
    local pid
    pid=$(cat "$1" 2>/dev/null) || return 1
    [ -n "$pid" ] && tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF -- "$2"
}

# Stops the daemon of pid file $1 (checked as `ours` does with $2), and no other process.
stop_ours() {
    local pid i
    ours "$1" "$2" || return 0
    pid=$(cat "$1")
    kill "$pid"
    for ((i = 0; i < 300; i++)); do
        [ -d "/proc/$pid" ] || return 0
        sleep 0.1
    done
    say "process $pid did not end within 30 s of SIGTERM; sending SIGKILL"
    kill -9 "$pid" || true
}
