#!/usr/bin/env bash
# Unpacks the libraries that moepack needs for AArch64 from Debian's packages into
# build/aarch64-root, for preset aarch64. Changes nothing outside the build folder and needs no
# root. The C library is that of the cross compiler.
#
# usage: scripts/aarch64_root.sh [--help]
#
# Does nothing when the folder is complete.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

packages=(
  nlohmann-json3-dev libcli11-dev libboost1.81-dev libxxhash-dev libpcre2-dev libutf8proc-dev
  libeigen3-dev libopenblas-pthread-dev zlib1g-dev libzstd-dev libgtest-dev
  libvulkan-dev libedit-dev liburing-dev
)
root="$repo_root/build/aarch64-root"
state="$repo_root/build/aarch64-packages"

case "${1:-}" in
  "") ;;
  -h | --help) usage && exit 0 ;;
  *) die "unknown option $1; see --help" ;;
esac
if [[ -e $root/complete ]]; then
  say "build/aarch64-root is complete"
  exit 0
fi

# apt with lists and an empty set of installed packages of its own, so that it resolves what the
# packages need without touching the system's.
mkdir -p "$state/lists/partial" "$state/archives/partial"
apt=(apt-get -qq -y -o Acquire::Retries=3 -o Debug::NoLocking=1
  -o APT::Architecture=arm64 -o APT::Architectures=arm64
  -o Dir::State::status=/dev/null -o "Dir::State::lists=$state/lists"
  -o "Dir::Cache::archives=$state/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
  -o "APT::Sandbox::User=$(id -un)")
say "fetching ${packages[*]} for arm64"
"${apt[@]}" update >&2
"${apt[@]}" install --no-install-recommends --download-only "${packages[@]}" </dev/null >&2

rm -rf "$root"
mkdir -p "$root"
for package in "$state"/archives/*.deb; do
  case "$(basename "$package")" in
    libc6* | libc-* | libgcc-* | gcc-* | linux-libc-* | libcrypt*) ;;
    *) dpkg-deb -x "$package" "$root" ;;
  esac
done
touch "$root/complete"
say "unpacked into build/aarch64-root"
