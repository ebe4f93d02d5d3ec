#include "convert/cli/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "convert/cli/command.h"

namespace moepack::cli {

void hold_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free descriptor is this one. A directory can be neither read nor written.
    if (::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC) != fd) return;
  }
}

void take_size_limit_as_error() { std::signal(SIGXFSZ, SIG_IGN); }

int finish_stdout(int exit_code) {
  std::cout.flush();
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (flushed && std::cout.good() && std::ferror(stdout) == 0) return exit_code;
  if (exit_code == kExitError) return exit_code;  // an error has been told, maybe this one
  std::cerr << "moepack: cannot write to stdout";
  if (!flushed && error != 0) std::cerr << ": " << std::strerror(error);
  std::cerr << "\n";
  return kExitError;
}

}  // namespace moepack::cli
