#!/bin/bash
# What scripts/test-packages runs in a system that was started for it: both services do their work, closed off as their units say.
# The last line of what it says is `passed`.
set -euo pipefail

fail() {
    echo "$*"
    systemctl --no-pager --full status farmem-host farmem-node victim || :
    journalctl --no-pager --lines 40 || :
    exit 1
}
# Waits until a command succeeds, for at most so many seconds.
await() {
    local patience=$1 tries
    shift
    for ((tries = 0; tries < patience * 5; tries++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    fail "in vain: $*"
}
# A figure of the application that the rule manages.
figure() { farmem stat victim --json | sed -n "s/^ *\"$1\": \([0-9]*\),*\$/\1/p" | head -n 1; }
is_managed() { [ "$(figure far_pages)" -gt 10000 ]; }

# A host attaches to a service of another user, without a change to that.
systemctl start victim
await 30 test -e /run/victim/ready
systemctl start farmem-host || fail "the host doesn't start"
await 60 is_managed
before=$(systemctl show --property MainPID --value victim)
# The next host takes over what the first one has begun.
systemctl restart farmem-host || fail "the host doesn't start again"
await 30 is_managed
# All that is far comes back as it was.
touch /run/victim/read
await 60 test -e /run/victim/result
[ "$(cat /run/victim/result)" = right ] || fail "the service reads $(cat /run/victim/result)"
[ "$(systemctl show --property MainPID --value victim)" = "$before" ] || fail "the service was begun again"
farmem detach victim || fail "the service can't be left"
systemctl stop farmem-host victim
echo 'a service was managed and left'

# A node that nobody has configured says so, and isn't tried for ever.
systemctl start farmem-node 2>/dev/null || :
await 10 systemctl is-failed farmem-node
farmem node keygen /etc/farmem/node.key
echo 'FARMEM_NODE_OPTIONS="--memory 64M --listen 127.0.0.1:7431"' >/etc/farmem/node.env
systemctl reset-failed farmem-node
systemctl start farmem-node || fail "the node doesn't start"
await 30 farmem node stat 127.0.0.1:7431 --key /etc/farmem/node.key
node=$(systemctl show --property MainPID --value farmem-node)
grep -qE '^CapBnd:\s+0+$' "/proc/$node/status" || fail "the node may have capabilities"
[ "$(stat -c %u "/proc/$node")" != 0 ] || fail "the node is root"
farmem run --local 16M --pool 8M --node 127.0.0.1:7431 --key /etc/farmem/node.key --host none --stats /run/stats.json -- \
    farmem workload --data 48M --rounds 300 >/dev/null || fail "a program with a node fails"
grep -qE '"node_fetches": [1-9]' /run/stats.json || { cat /run/stats.json; fail "nothing was on the node"; }
systemctl stop farmem-node
[ "$(systemctl show --property Result --value farmem-node)" = success ] || fail "the node doesn't end well"
echo 'a node has lent memory'
echo passed
