#!/bin/sh
# Installs Farmem below /usr/local, or below another folder: ./install.sh [--prefix FOLDER]
#
# With DESTDIR in the environment everything goes below that folder, as if it were the root. What was installed is listed in
# FOLDER/share/farmem/installed; FOLDER/share/farmem/uninstall.sh removes it.
set -eu
cd "$(dirname "$0")"

prefix=/usr/local
while [ $# -gt 0 ]; do
    case $1 in
    --prefix) prefix=${2:?--prefix FOLDER}; shift ;;
    --prefix=*) prefix=${1#--prefix=} ;;
    *) echo "usage: ./install.sh [--prefix FOLDER]" >&2; exit 2 ;;
    esac
    shift
done
case $prefix in
/*) prefix=${prefix%/} ;;
*) echo "install.sh: $prefix must begin with a slash" >&2; exit 2 ;;
esac
[ "$(uname -m)" = x86_64 ] || { echo "install.sh: this farmem is for x86-64, and this is $(uname -m)" >&2; exit 2; }
sha256sum --check --quiet SHA256SUMS || { echo "install.sh: these files are not those that were packed" >&2; exit 1; }

root=${DESTDIR:-}
list=$root$prefix/share/farmem/installed
# An earlier version goes; what was changed in its configuration stays.
if [ -e "$list" ]; then sh uninstall.sh --prefix "$prefix"; fi

entries=$(mktemp)
trap 'rm -f "$entries"' EXIT

# A folder, and those above it that are missing; listed from the outermost.
folder() {
    [ ! -d "$root$1" ] || return 0
    folder "$(dirname "$1")"
    mkdir -m 755 "$root$1"
    echo "folder $1" >>"$entries"
}

# A file of this archive, and where it goes.
file() {
    folder "$(dirname "$2")"
    case $1 in
    bin/* | *.sh) mode=755 ;;
    *) mode=644 ;;
    esac
    install -m "$mode" "$1" "$root$2"
    echo "file $2" >>"$entries"
}

for path in $(find bin include share -type f | sort); do file "$path" "$prefix/$path"; done
case $prefix in
/usr | /usr/local)
    # systemd looks for units below these alone.
    for path in lib/systemd/system/*; do
        file "$path" "$prefix/$path"
        sed -i "s#/usr/bin/farmem#$prefix/bin/farmem#" "$root$prefix/$path"
    done
    for path in etc/farmem/*; do
        if [ -e "$root/$path" ]; then
            echo "install.sh: /$path stays as it is" >&2
        else
            file "$path" "/$path"
            sed -i '$d' "$entries"
            echo "configuration $(sha256sum <"$path" | cut -d ' ' -f 1) /$path" >>"$entries"
        fi
    done
    ;;
*) echo "install.sh: systemd finds no units below $prefix; they are in lib/systemd/system here" >&2 ;;
esac
file uninstall.sh "$prefix/share/farmem/uninstall.sh"
echo "file $prefix/share/farmem/installed" >>"$entries"
install -m 644 "$entries" "$list"
echo "installed below $prefix; to remove it: $prefix/share/farmem/uninstall.sh" >&2
