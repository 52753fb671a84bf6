# Everything that CI does, and more, by name. `./justw` runs these where `just` is not installed.

set shell := ["bash", "-euo", "pipefail", "-c"]
set positional-arguments

cache := env("XDG_CACHE_HOME", env("HOME") / ".cache") / "margo-gitops"

export PATH := cache / "bin:" + env("PATH")

# Lists the recipes
default:
    @{{ just_executable() }} --list --unsorted

# Shows the whole path on real Docker: publish, run, change, tamper, status (kubernetes: and a cell with Helm; --clean removes both)
demo *args:
    .ci/demo "$@"

# Runs all tests against real components, installing and starting what they need (options go to nextest)
test *args:
    .ci/test "$@"

# Checks format, lints, documentation, the syncer without SSH, the dependencies' licences, sources and advisories, and that mutants apply
check:
    .ci/setup base deny
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo clippy -p device-syncer --no-default-features -- -D warnings
    cargo build -p device-syncer --no-default-features --target-dir target/without-ssh
    ! ldd target/without-ssh/debug/device-syncer | grep -E 'ssl|crypto|ssh'
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
    cargo deny check --hide-inclusion-graph -A license-exception-not-encountered bans licenses sources
    cargo deny --manifest-path fuzz/Cargo.toml check --hide-inclusion-graph -A license-exception-not-encountered bans licenses sources
    .ci/advisories
    for patch in mutants/*.patch; do git apply --check "$patch"; done

# Builds the two programs for release, each by itself: neither gets what only the other one needs of a crate
build:
    cargo build --release -p device-syncer
    cargo build --release -p wfm-git-publisher

# Builds what is installed into target/packages (parts: deb static image chart; none means all)
package *parts:
    .ci/package "$@"

# Installs the packages on a machine of its own, reboots, upgrades, removes and purges it (needs root)
package-test *args:
    .ci/setup base stack package node
    .ci/with-stack .ci/package-test "$@"

# Runs the image by its chart on a node of its own, with a real kubelet: deletes it, cuts power, upgrades, uninstalls (needs root; a part of package-test)
pod-test *args:
    .ci/setup base stack node
    .ci/with-stack .ci/pod-test "$@"

# Installs what the tests, the checks and the demo need (parts: base docker helm cell node stack kube power clients nextest deny fuzz package static)
setup *parts:
    .ci/setup "$@"

# Formats the Rust sources
fmt:
    cargo fmt --all

# Writes the golden files anew from what the code renders now; look at the diff before you commit
bless:
    MARGO_BLESS=1 cargo test --workspace golden

# Cuts power, kills processes and damages files thousands of times, and lets SSH sessions rest for 20 minutes (rounds, then options to nextest)
chaos rounds="1000" *args:
    shift; MARGO_CHAOS_ROUNDS={{ rounds }} .ci/test --profile chaos -E 'test(/(^|::)(power|crash|damage)(_|::)/) | test(with_every_fault) | test(hits_a_code)' "$@"

# Shows that programs of neighbouring versions work together, with those of an older revision built from history (0.2's)
skew *args:
    .ci/skew "$@"

# Shows that each mutant in mutants/ turns exactly its invariant's test red
mutants *names:
    .ci/mutants "$@"

# Feeds made-up bytes to the readers of what strangers send, so many seconds each
fuzz seconds="15" *targets:
    .ci/fuzz "$@"

# Prints the table of figures beside their baselines (groups to measure: see the bench's main.rs; none means all)
bench *groups:
    .ci/setup base stack clients bench
    .ci/with-stack cargo bench -p fleet-tests --bench fleet -- "$@"

# Stops the private Docker, the registry and Kubernetes, and removes all tools from the cache
clean-tools:
    .ci/clean-tools
