#include "convert/cli/chat_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>

#include "convert/cli/chat_interrupt.h"

extern char** environ;

namespace moepack::cli {
namespace {

using ProcessClock = std::chrono::steady_clock;

std::string system_words(int error) {
  return std::error_code(error, std::generic_category()).message();
}

class OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int fd = -1) : fd_(fd) {}
  OwnedDescriptor(const OwnedDescriptor&) = delete;
  OwnedDescriptor& operator=(const OwnedDescriptor&) = delete;
  ~OwnedDescriptor() { reset(); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// A file without a name that holds the input: nothing waits for the command to read it.
int input_file(const std::string& input) {
  const int fd = ::memfd_create("moepack-tool-input", MFD_CLOEXEC);
  std::size_t written = 0;
  while (fd >= 0 && written < input.size()) {
    const ssize_t n = ::write(fd, input.data() + written, input.size() - written);
    if (n <= 0) break;
    written += static_cast<std::size_t>(n);
  }
  if (fd >= 0) ::lseek(fd, 0, SEEK_SET);
  return fd;
}

int spawn(const std::vector<std::string>& words, int in, int out, pid_t* pid) {
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawnp(pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Reads until the other end is closed. Empty, or why it was left.
std::string read_output(int fd, ProcessClock::time_point deadline, std::string& output) {
  std::array<char, 4096> buffer{};
  while (true) {
    if (take_interrupt()) return "stopped by Ctrl-C";
    if (ProcessClock::now() >= deadline) return "it took too long and was ended";
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 50) <= 0) continue;
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return {};
    const std::size_t room = kMostProcessOutput - output.size();
    output.append(buffer.data(), std::min(room, static_cast<std::size_t>(n)));
  }
}

// Empty, or how the process ended.
std::string wait_for(pid_t pid, ProcessClock::time_point deadline) {
  int state = 0;
  while (::waitpid(pid, &state, WNOHANG) == 0) {
    if (ProcessClock::now() >= deadline) {
      ::kill(-pid, SIGKILL);
      ::waitpid(pid, &state, 0);
      return "it took too long and was ended";
    }
    ::usleep(2000);
  }
  if (WIFSIGNALED(state)) return "ended by signal " + std::to_string(WTERMSIG(state));
  const int code = WEXITSTATUS(state);
  return code == 0 ? std::string() : "exit code " + std::to_string(code);
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& words, const std::string& input,
                          double seconds) {
  const auto deadline = ProcessClock::now() + std::chrono::duration_cast<ProcessClock::duration>(
                                                  std::chrono::duration<double>(seconds));
  const OwnedDescriptor in(input_file(input));
  std::array<int, 2> ends{-1, -1};
  if (in.get() < 0 || ::pipe2(ends.data(), O_CLOEXEC) != 0) return {{}, system_words(errno)};
  const OwnedDescriptor read_end(ends[0]);
  OwnedDescriptor write_end(ends[1]);
  pid_t pid = 0;
  const int error = spawn(words, in.get(), write_end.get(), &pid);
  write_end.reset();
  if (error != 0) return {{}, "cannot run " + words.front() + ": " + system_words(error)};
  ProcessResult result;
  result.failure = read_output(read_end.get(), deadline, result.output);
  if (!result.failure.empty()) ::kill(-pid, SIGKILL);
  const std::string end = wait_for(pid, deadline);
  if (result.failure.empty()) result.failure = end;
  return result;
}

}  // namespace moepack::cli
