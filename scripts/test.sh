#!/usr/bin/env bash
# Installs what is missing, builds the release configuration, and runs all tests. Ends with the
# counts; skipped tests are named.
#
# usage: scripts/test.sh [--help] [ctest options, e.g. -R Tokenizer or -L checks]
#
# Some tests want reference models that are not in the repository. They look in the folder that the
# environment variable MOEPACK_TEST_MODELS names, and are SKIPPED without it.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case "${1:-}" in
  -h | --help) usage && exit 0 ;;
esac

"$repo_root/scripts/install_deps.sh"
build_preset release
run_tests release "$@"
