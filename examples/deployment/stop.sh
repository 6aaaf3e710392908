#!/usr/bin/env bash
# End the processes that the other scripts have started in DIR, the nodes first, and what these have started.
#   stop.sh DIR
set -euo pipefail
dir=${1:?usage: stop.sh DIR}

tree() { # a process and all below it
    local child
    echo "$1"
    for child in $(pgrep -P "$1"); do
        tree "$child"
    done
}

is_over() { # a process that has ended but was not waited for is over as well
    [[ $(ps -o stat= -p "$1") =~ ^Z?$ ]]
}

stop() {
    local file pid all=""
    for file in "$@"; do
        [[ -f $file ]] || continue
        all+=" $(tree "$(<"$file")")"
        kill "$(<"$file")" 2>/dev/null || true # it tells those below it
        rm "$file"
    done
    for pid in $all; do
        for ((i = 0; i < 60; i++)); do
            is_over "$pid" && continue 2
            sleep 0.25
        done
        kill -9 "$pid" 2>/dev/null || true
    done
}

stop "$dir"/run/node-*.pid
stop "$dir/run/superlink.pid"
echo "stopped"
