#!/usr/bin/env bash
# The evidence that takes longer than a CI run. Without a part named, runs all of them and says at
# the end which failed.
#
# usage: scripts/evidence.sh [--seconds N] [--help] [PART…]
#   format   clang-format on every C++ source
#   tidy     clang-tidy on every C++ source
#   scripts  shellcheck on every script
#   clang    preset dev-clang: build with warnings as errors, all tests
#   tsan     preset tsan: the unit tests under the thread sanitizer
#   asan     preset asan-full: all unit tests under the address and undefined-behaviour sanitizers,
#            the slow ones and the checks of every pointer included
#   neon     preset aarch64: the whole code cross-compiled for AArch64, and the tests of kernels
#            and formats under qemu; SKIPPED without g++-aarch64-linux-gnu and qemu-user
#   drills   preset release: the drills of the command, interrupted and damaged at every place
#   fuzz     preset fuzz: every fuzz target for N seconds (--seconds, default 60)
#   golden   perplexity of the reference models against other programs' numbers; needs
#            MOEPACK_TEST_MODELS, the folder that holds the models
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

fuzz_seconds=60
evidence_dir="$repo_root/build/evidence"

run_format() {
  cpp_sources | xargs -0 clang-format --dry-run -Werror
}

run_tidy() {
  # Tests and the code behind them need no link, but the compile commands of a configured build.
  (cd "$repo_root" && cmake --preset dev-clang -Wno-dev >/dev/null)
  cpp_sources | grep -z '\.cpp$' | grep -zv '^tests/fuzz/' |
    xargs -0 -n 4 -P "$(jobs)" clang-tidy --quiet -p "$repo_root/build/dev-clang"
}

run_scripts() {
  shellcheck -x scripts/*.sh .ci/run
}

run_clang() {
  build_preset dev-clang
  run_tests dev-clang
}

run_tsan() {
  build_preset tsan
  TSAN_OPTIONS="suppressions=$repo_root/tests/tsan.supp" run_tests tsan -LE 'slow|checks'
}

run_asan() {
  build_preset asan-full
  run_tests asan-full -LE checks
}

# Exits with 77 where the machine has no cross compiler or no emulator.
run_neon() {
  local tool
  for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
    command -v "$tool" >/dev/null || {
      say "neon: no $tool here; install g++-aarch64-linux-gnu and qemu-user"
      return 77
    }
  done
  "$repo_root/scripts/aarch64_root.sh"
  build_preset aarch64
  run_tests aarch64 -R '^(kernels|formats)_test\.'
}

run_drills() {
  # Whatever happens, the build directory does not keep them for the next test run.
  trap 'cmake --preset release -Wno-dev -D MOEPACK_ALL_DRILLS=OFF >/dev/null' EXIT
  cmake --preset release -Wno-dev -D MOEPACK_ALL_DRILLS=ON >/dev/null
  build_preset release
  run_tests release -R '^cli\.'
}

# Each target starts from its committed corpus; new inputs and findings go to build/evidence.
run_fuzz() {
  local target name status=0
  build_preset fuzz --target fuzzers
  for target in "$repo_root"/build/fuzz/bin/fuzz_*; do
    name="${target##*/fuzz_}"
    say "fuzzing $name for $fuzz_seconds seconds"
    mkdir -p "$evidence_dir/corpus/$name" "$evidence_dir/findings"
    "$target" -max_total_time="$fuzz_seconds" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
      -artifact_prefix="$evidence_dir/findings/$name-" \
      "$evidence_dir/corpus/$name" "$repo_root/tests/fuzz/corpus/$name" \
      >"$evidence_dir/fuzz-$name.log" 2>&1 || {
      status=1
      tail -n 30 "$evidence_dir/fuzz-$name.log" >&2
    }
    grep -E 'number_of_executed_units|new_units_added' "$evidence_dir/fuzz-$name.log" >&2 || true
  done
  return "$status"
}

# The model directory made from a reference checkpoint, converted once.
golden_model() {
  local model="$evidence_dir/models/$1"
  rm -rf "$model"
  "$repo_root/build/release/bin/moepack" convert "$MOEPACK_TEST_MODELS/$1" -o "$model" >&2
  printf '%s\n' "$model"
}

# check_perplexity MODEL EXPECTED [perplexity options]: within 0.02 % on the reference backend and
# 0.2 % on the fast one.
check_perplexity() {
  local model="$1" expected="$2" backend tolerance ppl status=0
  shift 2
  for backend in reference:0.0002 cpu:0.002; do
    tolerance="${backend#*:}"
    backend="${backend%:*}"
    ppl="$("$repo_root/build/release/bin/moepack" perplexity "$model" --backend "$backend" --json \
      "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)["ppl"])')"
    if python3 -c 'import sys; a, b, t = map(float, sys.argv[1:]); sys.exit(abs(a / b - 1) > t)' \
      "$ppl" "$expected" "$tolerance"; then
      say "$(basename "$model") $backend: perplexity $ppl, expected $expected: ok"
    else
      say "$(basename "$model") $backend: perplexity $ppl, expected $expected: WRONG"
      status=1
    fi
  done
  return "$status"
}

# Every number here was computed by another program; tests/golden and the models' own README files
# say by which.
run_golden() {
  local models="${MOEPACK_TEST_MODELS:-}" status=0 model
  [[ -n $models ]] || die "golden: set MOEPACK_TEST_MODELS to the folder that holds the models"
  build_preset release --target moepack
  mkdir -p "$evidence_dir/models"

  model="$(golden_model demo-moe-mlx-4bit)"
  check_perplexity "$model" 11.06262 --token-ids "$models/demo-moe/golden/eval_tokens.i32" \
    -c 512 --all-positions || status=1
  model="$(golden_model demo-moe)"
  check_perplexity "$model" 10.47944 --token-ids "$models/demo-moe/golden/eval_tokens.i32" \
    -c 512 --all-positions || status=1
  model="$(golden_model small-moe)"
  check_perplexity "$model" 9.8872 --token-ids "$models/small-moe/golden/eval_tokens.i32" \
    -c 512 --all-positions || status=1
  check_perplexity "$model" 9.2730 -f "$models/../text/eval.txt" -c 512 || status=1
  return "$status"
}

# The project's own C++ sources, relative to the root, separated by NUL.
cpp_sources() {
  git ls-files -z -- '*.h' '*.cpp' '*.inc'
}

parts=()
while (($# > 0)); do
  case "$1" in
    --seconds)
      [[ ${2:-} =~ ^[0-9]+$ ]] || die "--seconds wants a number"
      fuzz_seconds="$2"
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    format | tidy | scripts | neon | drills | clang | tsan | asan | fuzz | golden) parts+=("$1") ;;
    *) die "unknown part $1; see --help" ;;
  esac
  shift
done
((${#parts[@]} > 0)) || parts=(format tidy scripts neon drills clang tsan asan fuzz golden)

cd "$repo_root"
mkdir -p "$evidence_dir"
"$repo_root/scripts/install_deps.sh" --all
failed=()
skipped=()
for part in "${parts[@]}"; do
  say "evidence: $part"
  # A shell of its own, so that errexit holds inside the part and one failure does not hide the rest.
  set +e
  (set -e; "run_$part")
  status=$?
  set -e
  case "$status" in
    0) ;;
    77) skipped+=("$part") ;;
    *) failed+=("$part") ;;
  esac
done
if ((${#skipped[@]} > 0)); then say "evidence SKIPPED, which shows nothing: ${skipped[*]}"; fi
if ((${#failed[@]} > 0)); then
  say "evidence FAILED: ${failed[*]}"
  exit 1
fi
say "evidence complete: ${parts[*]}"
