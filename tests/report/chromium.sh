#!/usr/bin/env bash
# Installs the headless Chromium that the tests of the HTML report look at it with, unless there is one.
set -euo pipefail
for name in "${CHROMIUM:-chromium}" chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then
    exit 0
  fi
done
if ! command -v apt-get >/dev/null; then
  echo "chromium.sh: install Chromium and have it in PATH, or name its program in CHROMIUM" >&2
  exit 1
fi
become=()
if [ "$(id -u)" -ne 0 ]; then
  become=(sudo)
fi
"${become[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${become[@]}" apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
