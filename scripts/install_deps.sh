#!/usr/bin/env bash
# Installs what building and testing moepack needs, from Debian's packages.
#
# usage: scripts/install_deps.sh [--all] [--list] [--help]
#   --all    also what scripts/evidence.sh uses: clang, clang-tidy, ccache, shellcheck; chromium, and
#            in build/venv the Python packages that tests drive the server with
#   --list   print the packages and stop
#
# Does nothing, and needs neither network nor root, when everything is there.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

packages=(
  g++ cmake ninja-build pkg-config git python3
  nlohmann-json3-dev libcli11-dev libboost1.81-dev libxxhash-dev libpcre2-dev libutf8proc-dev
  libeigen3-dev libopenblas-dev zlib1g-dev libzstd-dev liburing-dev libedit-dev
  libvulkan-dev glslang-tools
  mesa-vulkan-drivers vulkan-validationlayers  # a processor that plays a GPU, for tests
  libgtest-dev libbenchmark-dev
)
evidence_packages=(clang clang-format clang-tidy libclang-rt-14-dev ccache shellcheck
  python3-venv chromium)
python_packages=(anthropic jinja2 jsonschema openai playwright)
venv="$repo_root/build/venv"

list_only=no
with_python=no
for argument in "$@"; do
  case "$argument" in
    --all) packages+=("${evidence_packages[@]}") with_python=yes ;;
    --list) list_only=yes ;;
    -h | --help) usage && exit 0 ;;
    *) die "unknown option $argument; see --help" ;;
  esac
done

if [[ $list_only == yes ]]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

# The virtual environment that tests look for (MOEPACK_TEST_PYTHON names another).
install_python() {
  [[ $with_python == yes ]] || return 0
  if "$venv/bin/python3" -c 'import importlib, sys; [importlib.import_module(p) for p in sys.argv[1:]]' \
    "${python_packages[@]}" 2>/dev/null; then
    say "build/venv has ${python_packages[*]}"
    return 0
  fi
  say "installing ${python_packages[*]} in build/venv"
  mkdir -p "$repo_root/build"
  python3 -m venv "$venv" >&2
  "$venv/bin/python3" -m pip --quiet --disable-pip-version-check install "${python_packages[@]}" >&2
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  die "this system has no apt; install the equivalents of: ${packages[*]}"
fi

missing=()
for package in "${packages[@]}"; do
  # Architecture-qualified names make one line each; any installed one will do.
  status="$(dpkg-query -W -f='${db:Status-Status} ' "$package" 2>/dev/null || true)"
  [[ " $status" == *" installed "* ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  say "all ${#packages[@]} packages are installed"
  install_python
  exit 0
fi

as_root=()
if [[ $(id -u) != 0 ]]; then
  command -v sudo >/dev/null || die "run as root once, or install by hand: ${missing[*]}"
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y
  -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)

say "installing ${missing[*]}"
"${apt[@]}" update >&2
"${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null >&2
say "installed ${#missing[@]} packages"
install_python
