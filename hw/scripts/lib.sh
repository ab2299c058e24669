# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What the scripts of hw/ share: where things lie, and a cache of built artefacts by content.

# A failure inside $( ) is a failure.
shopt -s inherit_errexit

hw=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
root=$(dirname "$hw")
out=${CARGO_TARGET_DIR:-$root/target}/hw
mkdir -p "$out"
out=$(cd "$out" && pwd)
python=$root/.deps/venv/bin/python
[ -x "$python" ] || python=python3

say() { echo "hw: $*" >&2; }
fail() {
    say "$*"
    exit 1
}

# What was asked for makes no sense, or can't be done here.
refuse() {
    say "$*"
    exit 2
}

need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null 2>&1 || refuse "$tool is missing: run 'make setup'; for what a kernel needs see hw/README.md"
    done
}

# cached NAME INPUT... -- COMMAND...: runs COMMAND in a new directory unless that was done before for the same inputs, and prints the
# directory. An input is a file, or a word that matters. A directory that is half done has no stamp, and is done again.
cached() {
    local name=$1 key directory log
    local inputs=()
    shift
    while [ "$1" != -- ]; do
        inputs+=("$1")
        shift
    done
    shift
    key=$(
        for input in "${inputs[@]}" "$*"; do
            if [ -f "$input" ]; then sha256sum <"$input"; else echo "$input"; fi
        done | sha256sum | cut -c1-16
    )
    directory=$out/$name-$key
    if [ ! -e "$directory/.done" ]; then
        rm -rf "$directory"
        mkdir -p "$directory"
        log=$out/$name.log
        say "building $name"
        if ! (cd "$directory" && "$@") >"$log" 2>&1 </dev/null; then
            tail -n 40 "$log" >&2
            fail "building $name failed; all of it is in $log"
        fi
        touch "$directory/.done"
    fi
    echo "$directory"
}
