#!/bin/sh
# Makes a device repository by hand, from nothing but repo-layouts/README.md: sh, coreutils, git and ssh-keygen.
#
#   by_hand.sh make    DIR DEVICE       the keys, the first roster, an empty repository and the join file
#   by_hand.sh enroll  DIR STATUS_KEY   lets a key (`ssh-ed25519 AAAA…`) sign `status`
#   by_hand.sh app     DIR ID REPOSITORY REVISION MANIFEST_DIGEST CONTENT_DIGEST GREETING
#                                       writes a deployment of a compose archive; GREETING is a YAML value
#   by_hand.sh drop    DIR ID           takes it back
#   by_hand.sh prepare DIR              commits all of that with the next serial, and prints how the branches move to it
#   by_hand.sh publish DIR              does that, and moves them
#   by_hand.sh status  REPOSITORY KEY STATE
#                                       writes a status commit as the device would, signed by the key file KEY
#
# DIR/repository.git is the device repository, DIR/join.json the join file, DIR/var.status_key has the keys. A deployment
# is the document DIR/desired/deployments/<deploymentId>.yaml and DIR/described/<deploymentId>.json, its part of the
# envelope.
set -eu

unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=hand GIT_AUTHOR_EMAIL=hand@example.invalid
export GIT_COMMITTER_NAME=hand GIT_COMMITTER_EMAIL=hand@example.invalid
export LC_ALL=C

newline='
'
die() { echo "by_hand.sh: $*" >&2; exit 1; }
digest() { sum=$(sha256sum "$1") && printf 'sha256:%s' "${sum%% *}"; }
size() { printf %s $(($(wc -c <"$1"))); }
in_repository() { git --git-dir="$repository" "$@"; }
public() { cut -d' ' -f1,2 "$1"; }

# The files below a directory, at most two deep; none of their names has a space.
files() (
    cd "$1"
    for file in * */*; do [ ! -f "$file" ] || printf '%s\n' "$file"; done
)

# The 16 bytes of a UUID.
uuid_bytes() {
    hex=$(printf %s "$1" | tr -d -)
    while [ -n "$hex" ]; do
        rest=${hex#??}
        # shellcheck disable=SC2059 # the format is the byte
        printf "\\$(printf %03o "0x${hex%"$rest"}")"
        hex=$rest
    done
}

uuid5() { # namespace, name
    hash=$({ uuid_bytes "$1"; printf %s "$2"; } | sha1sum | cut -c1-32)
    variant=$(printf %x $((0x$(printf %s "$hash" | cut -c17) & 3 | 8)))
    printf '%s-%s-5%s-%s%s-%s' "$(printf %s "$hash" | cut -c1-8)" "$(printf %s "$hash" | cut -c9-12)" \
        "$(printf %s "$hash" | cut -c14-16)" "$variant" "$(printf %s "$hash" | cut -c18-20)" \
        "$(printf %s "$hash" | cut -c21-32)"
}

# A text for a JSON string: quotes are all that needs escaping here.
escape() {
    left=$1
    while [ "${left#*\"}" != "$left" ]; do
        printf '%s\\"' "${left%%\"*}"
        left=${left#*\"}
    done
    printf %s "$left"
}

# Writes the files below $1 as a tree and prints its id.
write_tree() (
    GIT_INDEX_FILE=$(mktemp -u)
    export GIT_INDEX_FILE
    names=$(files "$1")
    ids=$(for name in $names; do printf '%s\n' "$1/$name"; done | in_repository hash-object -w --stdin-paths)
    for name in $names; do
        printf '100644 %s\t%s\n' "${ids%%"$newline"*}" "$name"
        ids=${ids#*"$newline"}
    done | in_repository update-index --add --index-info
    in_repository write-tree
    rm -f "$GIT_INDEX_FILE"
)

# Commits tree $1, signed by key $2, and prints its id; the message comes from standard input, parents follow.
commit() {
    tree=$1 key=$2
    shift 2
    in_repository -c gpg.format=ssh -c "user.signingkey=$key" commit-tree -S "$@" -F - "$tree"
}

make() {
    mkdir -p "$dir/desired/trust" "$dir/desired/deployments" "$dir/described"
    fleet=$(cat /proc/sys/kernel/random/uuid)
    git init -q --bare --initial-branch=desired "$repository"
    for key in root publisher; do ssh-keygen -q -t ed25519 -N '' -C "$key" -f "$dir/$key"; done
    roster=$dir/desired/trust/1.json
    printf '{"fleet":"%s","publishers":[{"key":"%s"}],"roots":["%s"],"threshold":1,"version":1}\n' \
        "$fleet" "$(public "$dir/publisher.pub")" "$(public "$dir/root.pub")" >"$roster"
    ssh-keygen -q -Y sign -n wfm-roster -f "$dir/root" "$roster" 2>/dev/null
    mv "$roster.sig" "$roster.sig.0"
    printf '{"layout":1,"fleet":"%s","device":"%s","url":"%s","trust":{"version":1,"sha256":"%s","roster":"%s\\n"},"floor":{"serial":0,"manifestVersion":0}}\n' \
        "$fleet" "$device" "$repository" "$(digest "$roster")" "$(escape "$(cat "$roster")")" >"$dir/join.json"
    printf '%s\n' "$fleet" >"$dir/fleet"
    printf '%s\n' "$device" >"$dir/device"
    echo 0 >"$dir/serial"
    : >"$dir/var.status_key"
}

deployment_id() { uuid5 "$fleet" "$(printf '%s\n%s' "$1" "$device")"; }

app() { # id, repository, revision, manifest digest, content digest, greeting
    id=$(deployment_id "$1")
    cat >"$dir/desired/deployments/$id.yaml" <<EOF
id: "$id"
metadata:
  name: $1
  namespace: default
  deviceId: "$device"
spec:
  applicationId: hello
  deploymentProfile:
    type: compose
    components:
      - name: hello
        properties:
          repository: "$2"
          revision: "$3"
          timeout: 1m
  parameters:
    greeting:
      value: $6
      targets:
        - pointer: GREETING
          components: [hello]
EOF
    printf '{"id":"%s","locks":{"hello":{"content":"%s","manifest":"%s"}}}' "$1" "$5" "$4" >"$dir/described/$id.json"
}

drop() { # id
    id=$(deployment_id "$1")
    rm "$dir/desired/deployments/$id.yaml" "$dir/described/$id.json"
}

write_manifest() {
    entries= bundle=null
    rm -rf "$dir/bundle" && mkdir "$dir/bundle"
    for file in "$tree"/deployments/*.yaml; do
        [ -e "$file" ] || continue
        id=${file##*/} id=${id%.yaml} digest=$(digest "$file")
        entries="$entries${entries:+,}{\"deploymentId\":\"$id\",\"digest\":\"$digest\",\"sizeBytes\":$(size "$file"),\"url\":\"/api/v1/deployments/$id/$digest\"}"
    done
    if [ -n "$entries" ]; then
        archive=$dir/bundle/bundle.tar.gz
        in_repository archive --format=tar.gz -o "$archive" "$(write_tree "$tree/deployments")"
        digest=$(digest "$archive")
        bundle="{\"digest\":\"$digest\",\"mediaType\":\"application/vnd.margo.bundle.v1+tar+gzip\",\"sizeBytes\":$(size "$archive"),\"url\":\"/api/v1/bundles/$digest\"}"
    fi
    printf '{"bundle":%s,"deployments":[%s],"manifestVersion":%s}\n' "$bundle" "$entries" "$serial" >"$tree/manifest.json"
}

write_envelope() {
    listed= described= keys=
    for file in $(files "$tree"); do
        listed="$listed${listed:+,}\"$file\":\"$(digest "$tree/$file")\""
    done
    for file in "$dir"/described/*.json; do
        [ -e "$file" ] || continue
        id=${file##*/}
        described="$described${described:+,}\"${id%.json}\":$(cat "$file")"
    done
    while read -r key || [ -n "$key" ]; do keys="$keys${keys:+,}\"$key\""; done <"$dir/var.status_key"
    printf '{"deployments":{%s},"device":{"id":"%s","statusKeys":[%s]},"files":{%s},"fleet":"%s","layout":1,"manifestVersion":%s,"policy":{"pollSeconds":1,"reportSeconds":1},"serial":%s}\n' \
        "$described" "$device" "$keys" "$listed" "$fleet" "$serial" "$serial" >"$tree/envelope.json"
}

prepare() {
    serial=$(($(cat "$dir/serial") + 1))
    tree=$dir/desired
    rm -f "$tree/manifest.json" "$tree/envelope.json"
    write_manifest
    write_envelope
    envelope=$(digest "$tree/envelope.json")
    about=$(printf 'Fleet: %s\nDevice: %s\nSerial: %s' "$fleet" "$device" "$serial")

    bundle=$(printf 'bundle of serial %s\n\nKind: bundle\n%s\n' "$serial" "$about" |
        commit "$(write_tree "$dir/bundle")" "$dir/publisher")

    parent=$(in_repository rev-parse -q --verify refs/heads/desired || true)
    tip=$(printf 'by hand (serial %s)\n\nKind: desired\n%s\nManifest-Version: %s\nManifest-Digest: %s\nEnvelope-Digest: %s\nFleet-Commit: 0000000000000000000000000000000000000000\nOperator-Key: unverified\n' \
        "$serial" "$about" "$serial" "$(digest "$tree/manifest.json")" "$envelope" |
        commit "$(write_tree "$tree")" "$dir/publisher" ${parent:+-p "$parent"})

    rm -rf "$dir/freshness" && mkdir "$dir/freshness"
    printf '{"device":"%s","envelopeDigest":"%s","expires":"%s","fleet":"%s","issued":"%s","serial":%s,"tip":"%s"}\n' \
        "$device" "$envelope" "$(date -u -d '+24 hours' +%Y-%m-%dT%H:%M:%SZ)" "$fleet" \
        "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$serial" "$tip" >"$dir/freshness/freshness.json"
    freshness=$(printf 'fresh\n\nKind: freshness\n%s\n' "$about" |
        commit "$(write_tree "$dir/freshness")" "$dir/publisher")
    printf '%s\n' "$serial" >"$dir/serial"
    printf 'update refs/heads/%s %s\n' bundle "$bundle" desired "$tip" freshness "$freshness"
}

publish() {
    moves=$(prepare)
    printf '%s\n' "$moves" | in_repository update-ref --stdin
}

status() { # key, state
    work=$(mktemp -d)
    mkdir "$work/status" "$work/status/deployments"
    tip=$(in_repository rev-parse refs/heads/desired)
    trailer() { in_repository log -1 --format="%(trailers:key=$1,valueonly,separator=)" "$tip"; }
    in_repository show "$tip:envelope.json" >"$work/envelope.json"
    states=
    for id in $(in_repository ls-tree --name-only "$tip" deployments/); do
        id=$(basename "$id" .yaml)
        printf '{"components":[{"name":"hello","state":"%s"}],"deploymentId":"%s","status":{"state":"%s"}}\n' \
            "$2" "$id" "$2" >"$work/status/deployments/$id.json"
        states=$(printf '%s\nState: %s/* none > %s\nState: %s/hello none > %s' "$states" "$id" "$2" "$id" "$2")
    done
    printf '{"adopted":{"commit":"%s","envelope":"%s","manifestVersion":%s,"serial":%s,"trust":1},"conditions":[],"holds":[],"instance":"%s","layout":1,"version":"by-hand"}\n' \
        "$tip" "$(digest "$work/envelope.json")" "$(trailer Manifest-Version)" "$(trailer Serial)" \
        "$(uuid5 "$(trailer Fleet)" "$(ssh-keygen -y -f "$1" | cut -d' ' -f1,2)")" >"$work/status/syncer.json"
    parent=$(in_repository rev-parse -q --verify refs/heads/status || true)
    commit=$(printf 'by hand\n\nKind: status\nFleet: %s\nDevice: %s\nSerial: %s\nDesired-Commit: %s%s\n' \
        "$(trailer Fleet)" "$(trailer Device)" "$(trailer Serial)" "$tip" "$states" |
        commit "$(write_tree "$work/status")" "$1" ${parent:+-p "$parent"})
    in_repository update-ref refs/heads/status "$commit"
    rm -r "$work"
}

[ $# -ge 2 ] || die "usage: by_hand.sh make|enroll|app|drop|prepare|publish|status DIR …"
command=$1 dir=$2 repository=$2/repository.git
shift 2
if [ -e "$dir/fleet" ]; then
    read -r fleet <"$dir/fleet"
    read -r device <"$dir/device"
fi
case $command in
make)
    device=$1
    make
    ;;
enroll) printf '%s\n' "$1" >>"$dir/var.status_key" ;;
app) app "$@" ;;
drop) drop "$1" ;;
prepare) prepare ;;
publish) publish ;;
status) repository=$dir && status "$@" ;;
*) die "unknown command $command" ;;
esac
