# Toolchain of preset aarch64: Debian's cross compiler, the libraries that scripts/aarch64_root.sh
# brings, and qemu's user-mode emulation for the tests. Processor "max" has every extension.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(moepack_root "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-root" ABSOLUTE)
set(moepack_libraries "${moepack_root}/usr/lib/aarch64-linux-gnu")
set(moepack_blas "${moepack_libraries}/openblas-pthread")
set(CMAKE_FIND_ROOT_PATH "${moepack_root}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${moepack_root}")
set(ENV{PKG_CONFIG_LIBDIR} "${moepack_libraries}/pkgconfig:${moepack_blas}/pkgconfig")

# Where libraries look for those that they need: when linking, and when running.
set(CMAKE_EXE_LINKER_FLAGS_INIT
    "-Wl,-rpath-link,${moepack_libraries} -Wl,-rpath-link,${moepack_blas}")
set(CMAKE_BUILD_RPATH "${moepack_libraries};${moepack_blas}")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu)
