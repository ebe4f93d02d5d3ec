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
#include <optional>
#include <system_error>

#include "convert/cli/chat_interrupt.h"

extern char** environ;

namespace moepack::cli {
namespace {

using ProcessClock = std::chrono::steady_clock;

// What the command wrote last may come from a process behind it, as in a pipe of a shell.
constexpr std::chrono::milliseconds kLastOutput{500};

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

// Takes what comes within a moment. False: nobody can write any more.
bool read_some(int fd, std::string& output) {
  std::array<char, 4096> buffer{};
  pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
  if (::poll(&ready, 1, 50) <= 0) return true;
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  const std::size_t room = kMostProcessOutput - output.size();
  output.append(buffer.data(), std::min(room, static_cast<std::size_t>(n)));
  return true;
}

// It stays to be waited for: its number is nobody else's until then.
bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

// Reads until the command has ended and nobody can write any more. `result.failure` says why it was
// left before.
void follow(pid_t pid, int fd, ProcessClock::time_point deadline, ProcessResult& result) {
  bool is_open = true;
  std::optional<ProcessClock::time_point> ended;
  while (!ended || is_open) {
    const auto now = ProcessClock::now();
    result.leaves_writer = ended && now >= *ended + kLastOutput;
    if (take_interrupt()) {
      result.failure = "stopped by Ctrl-C";
    } else if (!ended && now >= deadline) {
      result.failure = "it took too long and was ended";
    }
    if (result.leaves_writer || !result.failure.empty()) return;
    if (is_open) {
      is_open = read_some(fd, result.output);
    } else {
      ::usleep(2000);
    }
    if (!ended && has_ended(pid)) ended = ProcessClock::now();
  }
}

// Empty, or how the process ended.
std::string wait_for(pid_t pid) {
  int state = 0;
  while (::waitpid(pid, &state, 0) < 0 && errno == EINTR) {
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
  follow(pid, read_end.get(), deadline, result);
  if (!result.failure.empty()) ::kill(-pid, SIGKILL);
  const std::string end = wait_for(pid);
  if (result.failure.empty()) result.failure = end;
  return result;
}

}  // namespace moepack::cli
