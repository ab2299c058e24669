# A PostgreSQL server whose shared buffers hold its tables, and transactions of pgbench that must keep their sums. What
# is measured is the transactions alone, not the start, the sums and the end:
# pgbench.sh prepare|run BINARIES FOLDER SCALE BUFFERS TRANSACTIONS, with buffers in MiB.
set -eu
binaries=$2 folder=$3 scale=$4 buffers=$5 transactions=$6
# The server refuses to run as root; its package makes a user for it.
if [ "$(id -u)" = 0 ]; then
    chown postgres:postgres "$folder"
    exec setpriv --reuid=postgres --regid=postgres --clear-groups sh "$0" "$@"
fi
export HOME="$folder" PGHOST="$folder" PGUSER=tester PGDATABASE=postgres

start() {
    "$binaries/postgres" -D "$folder/data" -c unix_socket_directories="$folder" -c listen_addresses= -c fsync=off \
        -c shared_buffers="${buffers}MB" -c checkpoint_timeout=1h -c max_wal_size=8GB -c jit=off 2>>"$folder/log" &
    server=$!
    # Whatever fails, no server is left.
    trap 'kill -QUIT $server; wait' EXIT
    tries=0
    until "$binaries/pg_isready" -q; do
        tries=$((tries + 1))
        if [ $tries -gt 1200 ] || ! kill -0 $server; then
            tail -n 1 "$folder/log" >&2
            exit 1
        fi
        sleep 0.05
    done
}

end() {
    trap - EXIT
    kill -INT $server
    wait $server
}

case $1 in
prepare)
    "$binaries/initdb" -D "$folder/data" -U tester -A trust -E UTF8 --locale=C --no-sync >>"$folder/log"
    start
    "$binaries/pgbench" -i -q -s "$scale" 2>>"$folder/log"
    end
    ;;
run)
    start
    "$binaries/pgbench" -n -c 4 -j 1 -t $((transactions / 4)) >"$folder/said" 2>>"$folder/log"
    sed -n 's/^number of .* processed: //p' "$folder/said"
    awk -v transactions="$transactions" '/^tps = /{ printf "measured seconds: %.3f\n", transactions / $3 }' "$folder/said"
    "$binaries/psql" -qAtc "select
        (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history),
        (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history),
        (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history)"
    end
    ;;
esac
