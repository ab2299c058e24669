#!/bin/bash
# pausing_storage.sh FOLDER SECONDS FARMEM OPTION... -- PROGRAM...: runs the program with a disk tier on a file system in user space, whose server stands
# still for so many seconds once the program has said that it is ready; with 0 it doesn't by itself. `FOLDER/server-number` is the number of the
# server's process. To be run in a mount namespace of its own.
set -u
folder=$1 seconds=$2
shift 2
truncate -s 320M "$folder/image" && mke2fs -q -t ext4 -O ^has_journal "$folder/image" || exit 2
mkdir "$folder/mount"
fuse2fs -f "$folder/image" "$folder/mount" </dev/null >"$folder/server" 2>&1 &
server=$!
# Held up for good, it could not be unmounted.
trap 'kill -CONT $server; umount -l "$folder/mount"; kill $server; wait $server' EXIT
for _ in $(seq 100); do mountpoint -q "$folder/mount" && break; sleep 0.1; done
mountpoint -q "$folder/mount" || { cat "$folder/server" >&2; exit 2; }
echo $server >"$folder/server-number"
"$@" >"$folder/said" &
program=$!
if [ "$seconds" -gt 0 ]; then
    for _ in $(seq 600); do grep -q ready "$folder/said" && break; sleep 0.1; done
    sleep 1
    kill -STOP $server
    sleep "$seconds"
    kill -CONT $server
fi
wait $program
status=$?
cat "$folder/said"
exit $status
