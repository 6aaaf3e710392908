#!/usr/bin/env bash
# Make a certificate authority and, signed by it, the SuperLink's certificate.
#   certificates.sh DIR
# For another host than this one: HOSTS=DNS:fl.example.org,IP:10.0.0.5 certificates.sh DIR
set -euo pipefail
dir=${1:?usage: certificates.sh DIR}
hosts=${HOSTS:-DNS:localhost,IP:127.0.0.1}

mkdir -p "$dir/tls"
cd "$dir/tls"
umask 077
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -days 365 \
    -subj "/CN=Federation CA" -keyout ca.key -out ca.crt 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes \
    -subj "/CN=SuperLink" -keyout server.key -out server.csr 2>/dev/null
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out server.pem \
    -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth\n' "$hosts") 2>/dev/null
rm server.csr
echo "$dir/tls: ca.crt goes to every node; ca.key stays offline; server.key stays with the SuperLink."
