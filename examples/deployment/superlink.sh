#!/usr/bin/env bash
# Start a SuperLink on this machine, in the background, and write down how to reach it.
#   superlink.sh DIR              TLS and node authentication, with the certificates in DIR/tls
#   superlink.sh DIR --insecure   neither: whoever reaches the port can join and listen
# PORT chooses the port (default 18000).
set -euo pipefail
dir=${1:?usage: superlink.sh DIR [--insecure]}
port=${PORT:-18000}

mkdir -p "$dir/flwr" "$dir/run"
dir=$(cd "$dir" && pwd)
if [[ ${2:-} == --insecure ]]; then
    security=(--insecure)
    reach='insecure = true'
else
    security=(--ssl-ca-certfile "$dir/tls/ca.crt" --ssl-certfile "$dir/tls/server.pem" --ssl-keyfile "$dir/tls/server.key"
        --enable-supernode-auth)
    reach="root-certificates = \"$dir/tls/ca.crt\""
fi

cat >"$dir/env" <<END
# Source this file, then: flwr run APP lab --stream
export FLWR_HOME="$dir/flwr"
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
# Nodes run what is installed on them. Otherwise every run installs the app's dependencies anew.
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
END
cat >"$dir/flwr/config.toml" <<END
[superlink]
default = "lab"

[superlink.lab]
address = "127.0.0.1:$port"
$reach
END
echo "$port" >"$dir/run/port"

# shellcheck source=/dev/null
source "$dir/env"
cd "$dir"
nohup flower-superlink --host 127.0.0.1 --port "$port" "${security[@]}" --database "$dir/superlink.db" \
    --disable-runtime-dependency-installation >"$dir/superlink.log" 2>&1 &
echo $! >"$dir/run/superlink.pid"

for ((i = 0; i < 240; i++)); do
    if (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        echo "SuperLink on 127.0.0.1:$port, process $(<"$dir/run/superlink.pid")"
        exit 0
    fi
    kill -0 "$(<"$dir/run/superlink.pid")" 2>/dev/null || break
    sleep 0.25
done
echo "The SuperLink did not start; see $dir/superlink.log" >&2
exit 1
