#!/usr/bin/env bash
# Tell the SuperLink of the nodes that may join: every public key in DIR/keys, under the name of its file.
#   register.sh DIR
set -euo pipefail
dir=${1:?usage: register.sh DIR}

# shellcheck source=/dev/null
source "$dir/env"
for key in "$dir"/keys/*.pub; do
    flwr supernode register "$key" lab --name "$(basename "$key" .pub)"
done
