#!/usr/bin/env bash
# Make a key pair for each of N nodes. At home, every node makes its own and sends only the public half.
#   keys.sh DIR N
set -euo pipefail
dir=${1:?usage: keys.sh DIR N}
count=${2:?usage: keys.sh DIR N}

mkdir -p "$dir/keys"
for ((i = 0; i < count; i++)); do
    ssh-keygen -q -t ecdsa -b 384 -N "" -C "node-$i" -f "$dir/keys/node-$i"
done
echo "$dir/keys: $count key pairs"
