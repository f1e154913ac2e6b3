#!/usr/bin/env bash
# Installs the server that the tests need beyond those that pip brings: Debian's redis-server, which is also
# the nodes of a cluster, the sentinels (redis-server --sentinel) and the server that speaks TLS.
# Where it cannot be installed, it says so and ends well: the tests skip what they lack, or fail in CI.
set -euo pipefail

# Not any: a Python environment may hold an old one.
if redis-server --version 2>/dev/null | grep -qE ' v=([7-9]|[1-9][0-9])\.'; then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "redis-server is not installed, and there is no apt-get: install Redis 7 or newer by hand." >&2
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "redis-server is not installed: run this as root, or: sudo apt-get install redis-server" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
# RUNLEVEL: the tests start their own; the package need not start one.
if ! { apt-get update -qq && RUNLEVEL=1 apt-get install -y -qq --no-install-recommends redis-server >/dev/null; }; then
    echo "redis-server could not be installed." >&2
fi
