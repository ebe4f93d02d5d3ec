# shellcheck shell=bash
# Sourced by the other scripts: where the repository is, how to talk, which options every build gets.

repo_root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"

say() { printf '== %s\n' "$*" >&2; }

die() {
  printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
  exit 2
}

# Prints the comment at the head of a script as its usage.
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

jobs() { nproc 2>/dev/null || echo 2; }

# Two compile jobs a core would not help; memory is what a small machine runs out of first.
build_preset() {
  local preset="$1"
  shift
  if [[ -z ${MOEPACK_LAUNCHER+set} ]] && command -v ccache >/dev/null; then
    export MOEPACK_LAUNCHER=ccache
    # ccache takes compilations with precompiled headers only where it is told these, and those of
    # another checkout only where paths are relative to this one.
    export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:-pch_defines,time_macros}"
    export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$repo_root}" CCACHE_NOHASHDIR=1
  fi
  say "building preset $preset in build/$preset"
  (cd "$repo_root" && cmake --preset "$preset" -Wno-dev >"/dev/null" &&
    cmake --build --preset "$preset" -j "$(jobs)" "$@")
}

# run_tests PRESET [ctest options]: runs, then says what ran and what was skipped.
run_tests() {
  local preset="$1" junit status=0
  shift
  junit="$repo_root/build/$preset/tests.xml"
  rm -f "$junit"
  say "testing preset $preset (MOEPACK_TEST_MODELS=${MOEPACK_TEST_MODELS:-not set})"
  ctest --test-dir "$repo_root/build/$preset" --output-on-failure --output-junit "$junit" \
    -j "$(jobs)" "$@" >&2 || status=$?
  python3 "$repo_root/scripts/summarize_tests.py" "$junit" || status=1
  return "$status"
}
