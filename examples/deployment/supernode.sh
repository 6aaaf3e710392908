#!/usr/bin/env bash
# Start node I of N on this machine, in the background; it holds the I-th share of the data, from 0.
#   supernode.sh DIR I N              with the key DIR/keys/node-I (or the one that KEY names)
#   supernode.sh DIR I N --insecure
set -euo pipefail
usage="usage: supernode.sh DIR I N [--insecure]"
dir=${1:?$usage}
index=${2:?$usage}
count=${3:?$usage}

dir=$(cd "$dir" && pwd)
port=$(<"$dir/run/port")
if [[ ${4:-} == --insecure ]]; then
    security=(--insecure)
else
    security=(--root-certificates "$dir/tls/ca.crt" --auth-supernode-private-key "${KEY:-$dir/keys/node-$index}")
fi

# shellcheck source=/dev/null
source "$dir/env"
cd "$dir"
nohup flower-supernode "${security[@]}" --superlink "127.0.0.1:$port" --host 127.0.0.1 --port "$((port + 1 + index))" \
    --node-config "partition-id=$index num-partitions=$count" >"$dir/node-$index.log" 2>&1 &
echo $! >"$dir/run/node-$index.pid"
echo "node $index of $count, process $!"
