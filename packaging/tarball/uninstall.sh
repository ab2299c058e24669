#!/bin/sh
# Removes what install.sh has installed: FOLDER/share/farmem/uninstall.sh [--prefix FOLDER]
#
# Without --prefix it is the installation that this script is in. Stop services first: systemctl disable --now farmem-host farmem-node
set -eu

case ${1:-} in
--prefix) prefix=${2:?--prefix FOLDER} ;;
"") prefix=$(cd "$(dirname "$0")/../.." && pwd) prefix=${prefix#"${DESTDIR:-}"} ;;
*) echo "usage: uninstall.sh [--prefix FOLDER]" >&2; exit 2 ;;
esac
root=${DESTDIR:-}
list=$root$prefix/share/farmem/installed
[ -r "$list" ] || { echo "uninstall.sh: there is no $list" >&2; exit 1; }

# The last that was made goes first, so that folders are empty by then. The shell has read the list before it goes.
entries=$(tac "$list")
echo "$entries" | while read -r kind rest; do
    case $kind in
    file) rm -f "$root$rest" ;;
    configuration)
        path=${rest#* }
        if [ ! -e "$root$path" ]; then
            continue
        elif [ "$(sha256sum <"$root$path" | cut -d ' ' -f 1)" = "${rest%% *}" ]; then
            rm -f "$root$path"
        else
            echo "uninstall.sh: $path was changed, and stays" >&2
        fi
        ;;
    folder) rmdir "$root$rest" 2>/dev/null || : ;;
    esac
done
