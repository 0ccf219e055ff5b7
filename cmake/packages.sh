# Sourced by test/run and examples/run: the Debian 12 packages that farmem is built from, and a function that installs
# those of them that are missing. Nothing else in the tree calls apt. Needs root or sudo only when something is missing.

# What the library, the agent and the examples are built with.
build_packages=(
  g++ cmake ninja-build pkg-config
  libboost1.81-dev libfmt-dev libspdlog-dev libexpected-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev
  libibverbs-dev librdmacm-dev libsqlite3-dev libcurl4-openssl-dev
)

# What test/run needs besides.
test_packages=(catch2 ccache lld util-linux clang-format-14 redis-tools python3)

# What test/run --full needs besides.
full_packages=(
  spin doxygen graphviz gdb valgrind etcd-server
  clang-14 clang-tidy-14
  libbenchmark-dev libmimalloc-dev libgc-dev
  libboost-serialization1.81-dev libcereal-dev protobuf-compiler libprotobuf-dev libflatbuffers-dev flatbuffers-compiler
  capnproto libcapnp-dev
)

# What the sanitizers and fuzzing need: clang 19 (see CMakePresets.json), which takes half the time of g++ 12 for sanitizers and a
# third of that of clang 14 for fuzzing, and llvm-symbolizer, without which their reports have no names.
sanitizer_packages=(clang-19 libclang-rt-19-dev llvm-19)

# Compilers and standard libraries of users' programs, which the tests try where there are such (test/compilers).
compiler_packages=(clang-19 libc++-19-dev libc++abi-19-dev)

# Drops packets in a network namespace; test/chaos says so where there is none.
partition_packages=(nftables)

# What test/rdma/lab needs: a machine emulator, what its file system is made of, and programs to compare with.
lab_packages=(
  qemu-system-x86 busybox-static cpio kmod iproute2 libc-bin binutils
  ibverbs-providers ibverbs-utils rdmacm-utils perftest
)

package_is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# ensure_packages NAME...: installs the missing ones; returns non-zero, with a message, when it cannot.
ensure_packages() {
  local missing=() name as_root=()
  for name in "$@"; do
    package_is_installed "$name" || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "missing packages: ${missing[*]}; run as root, or install them: apt-get install ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "installing: ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  if ! "${apt[@]}" update || ! "${apt[@]}" -y --no-install-recommends install "${missing[@]}"; then
    echo "apt-get could not install: ${missing[*]}" >&2
    return 1
  fi
}
