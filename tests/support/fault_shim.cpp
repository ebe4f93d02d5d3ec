// Preloaded into a program under test (LD_PRELOAD): counts its file operations and, at the one that
// MOEPACK_FAULT names, fails it or kills the program. Linux, glibc.
//
//   MOEPACK_FAULT=count:FILE        writes "OPERATION CALLS" lines to FILE at exit
//   MOEPACK_FAULT=kill-after:OP:N   SIGKILL as soon as the Nth call of OP has returned
//   MOEPACK_FAULT=ERROR:OP:N        the Nth call of OP fails with ERROR (EIO, ENOSPC)
//   MOEPACK_FAULT=stall-S:OP:N      the Nth call of OP takes S seconds longer; MOEPACK_STALLED=FILE
//                                   is made when that begins
//
// OP is read, write, sync, rename, unlink, or any, which counts all of these together, or list,
// which is the steps through a directory and is not part of any. Reads count only if they are of
// .safetensors and .bin files.
//
//   MOEPACK_FREE=BYTES              every file system says that so many bytes are free
//   MOEPACK_UNLISTABLE=NAME         directories of that name cannot be listed (EACCES)
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

constexpr int kOperations = 7;
constexpr const char* kNames[kOperations] = {"read",   "write", "sync", "rename",
                                             "unlink", "any",   "list"};
enum Operation { kRead, kWrite, kSync, kRename, kUnlink, kAny, kList };

struct Fault {
  bool kills = false;
  unsigned stall_seconds = 0;
  int error = 0;
  int operation = -1;
  long at = 0;
  std::string count_file;
};

Fault parse_fault() {
  Fault fault;
  const char* text = std::getenv("MOEPACK_FAULT");
  if (text == nullptr) return fault;
  const std::string all(text);
  const std::size_t first = all.find(':');
  const std::string kind = all.substr(0, first);
  if (kind == "count") {
    fault.count_file = all.substr(first + 1);
    return fault;
  }
  fault.kills = kind == "kill-after";
  if (kind.starts_with("stall-")) {
    fault.stall_seconds = static_cast<unsigned>(std::strtoul(kind.c_str() + 6, nullptr, 10));
  }
  fault.error = kind == "ENOSPC" ? ENOSPC : EIO;
  const std::size_t second = all.find(':', first + 1);
  const std::string operation = all.substr(first + 1, second - first - 1);
  for (int i = 0; i < kOperations; ++i) {
    if (operation == kNames[i]) fault.operation = i;
  }
  fault.at = std::strtol(all.c_str() + second + 1, nullptr, 10);
  return fault;
}

struct State {
  Fault fault = parse_fault();
  std::atomic<long> calls[kOperations] = {};

  ~State() {
    if (fault.count_file.empty()) return;
    std::FILE* out = std::fopen(fault.count_file.c_str(), "w");
    if (out == nullptr) return;
    for (int i = 0; i < kOperations; ++i) {
      std::fprintf(out, "%s %ld\n", kNames[i], calls[i].load());
    }
    std::fclose(out);
  }
};

State& state() {
  static State instance;
  return instance;
}

// Counts a call; true when it is the one that the fault is for.
bool count(Operation operation) {
  State& s = state();
  const long own = ++s.calls[operation];
  if (operation == kList) return s.fault.operation == kList && own == s.fault.at;
  const long any = ++s.calls[kAny];
  if (s.fault.operation == operation) return own == s.fault.at;
  return s.fault.operation == kAny && any == s.fault.at;
}

// Runs `call` with the fault applied where it belongs.
template <typename Call>
auto guarded(Operation operation, Call call) -> decltype(call()) {
  const bool hit = count(operation);
  if (hit && state().fault.stall_seconds > 0) {
    if (const char* const file = std::getenv("MOEPACK_STALLED"); file != nullptr) {
      std::fclose(std::fopen(file, "w"));
    }
    ::sleep(state().fault.stall_seconds);
    return call();
  }
  if (hit && !state().fault.kills) {
    errno = state().fault.error;
    return -1;
  }
  const auto result = call();
  if (hit) ::kill(::getpid(), SIGKILL);
  return result;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

std::string path_of(int fd) {
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t size = ::readlink(link, path, sizeof(path));
  return {path, size < 0 ? 0 : static_cast<std::size_t>(size)};
}

bool is_data_file(int fd) {
  const std::string name = path_of(fd);
  return name.ends_with(".safetensors") || name.find(".bin") != std::string::npos;
}

bool is_unlistable(DIR* directory) {
  const char* const name = std::getenv("MOEPACK_UNLISTABLE");
  return name != nullptr && path_of(::dirfd(directory)).ends_with(std::string("/") + name);
}

}  // namespace

extern "C" {

ssize_t pread(int fd, void* buffer, size_t size, off_t offset) {
  using Function = ssize_t (*)(int, void*, size_t, off_t);
  static const Function real = next<Function>("pread");
  if (!is_data_file(fd)) return real(fd, buffer, size, offset);
  return guarded(kRead, [&] { return real(fd, buffer, size, offset); });
}

ssize_t pwrite(int fd, const void* buffer, size_t size, off_t offset) {
  using Function = ssize_t (*)(int, const void*, size_t, off_t);
  static const Function real = next<Function>("pwrite");
  return guarded(kWrite, [&] { return real(fd, buffer, size, offset); });
}

int fsync(int fd) {
  using Function = int (*)(int);
  static const Function real = next<Function>("fsync");
  return guarded(kSync, [&] { return real(fd); });
}

int rename(const char* from, const char* to) {
  using Function = int (*)(const char*, const char*);
  static const Function real = next<Function>("rename");
  return guarded(kRename, [&] { return real(from, to); });
}

int remove(const char* path) {  // std::filesystem::remove
  using Function = int (*)(const char*);
  static const Function real = next<Function>("remove");
  return guarded(kUnlink, [&] { return real(path); });
}

int unlink(const char* path) {
  using Function = int (*)(const char*);
  static const Function real = next<Function>("unlink");
  return guarded(kUnlink, [&] { return real(path); });
}

// std::filesystem::directory_iterator takes its steps with this function.
dirent* readdir(DIR* directory) {
  using Function = dirent* (*)(DIR*);
  static const Function real = next<Function>("readdir");
  if (is_unlistable(directory)) {
    errno = EACCES;
    return nullptr;
  }
  if (!count(kList)) return real(directory);
  errno = state().fault.error;
  return nullptr;
}

// std::filesystem::space asks this function.
int statvfs(const char* path, struct statvfs* info) {
  using Function = int (*)(const char*, struct statvfs*);
  static const Function real = next<Function>("statvfs");
  const int result = real(path, info);
  const char* const free = std::getenv("MOEPACK_FREE");
  if (result == 0 && free != nullptr) {
    info->f_bavail = std::strtoull(free, nullptr, 10) / info->f_frsize;
  }
  return result;
}

}  // extern "C"
