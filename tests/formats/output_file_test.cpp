// Result files: they appear whole or not at all, whatever stands at their place.
#include "formats/base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::output_file_test {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

Status write_bytes(AtomicFile& file, std::string_view text) {
  return file.write_at(0, std::as_bytes(std::span(text)));
}

class OutputFileTest : public testing::Test {
 protected:
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(dir_.path()), fs::directory_iterator()));
  }
  // What the target that is made in the meantime is called until then.
  fs::path temporary() const {
    for (const fs::directory_entry& entry : fs::directory_iterator(dir_.path())) {
      if (entry.path().extension() == ".tmp") return entry.path();
    }
    return {};
  }
  // `target` is refused as none of a file, and stays what it was.
  void expect_refused(const fs::path& target) const {
    const fs::file_type before = fs::symlink_status(target).type();
    const std::size_t count = entries();
    expect_error(create_output_file(target).status(), StatusCode::kInvalidArgument,
                 {target.string(), "is not a regular file", "- for stdout"});
    EXPECT_EQ(fs::symlink_status(target).type(), before);
    EXPECT_EQ(entries(), count);
  }

  // What a killed run left that wrote `target` under this kernel.
  fs::path left_by_a_killed_run(const fs::path& target) const {
    fs::path left;
    {
      const auto file = create_output_file(target);
      if (file.is_ok()) left = temporary();
    }
    put(left, "half of it");
    return left;
  }

  test::TempDir dir_;
};

TEST_F(OutputFileTest, AppearsAtCommitAndReplacesAFile) {
  const fs::path target = dir_ / "x.bin";
  for (const std::string text : {"the first", "2nd"}) {
    ASSERT_OK_AND_ASSIGN(AtomicFile file, create_output_file(target));
    const std::string before = text_of(target);
    ASSERT_OK(write_bytes(file, text));
    EXPECT_EQ(text_of(target), before);
    ASSERT_OK(file.commit());
    EXPECT_EQ(text_of(target), text);
    EXPECT_EQ(entries(), 1U);
  }
}

TEST_F(OutputFileTest, WithoutCommitNothingIsLeft) {
  put(dir_ / "x.bin", "old");
  {
    ASSERT_OK_AND_ASSIGN(AtomicFile file, create_output_file(dir_ / "x.bin"));
    ASSERT_OK(write_bytes(file, "new"));
    EXPECT_EQ(entries(), 2U);
    EXPECT_EQ(temporary().extension(), ".tmp");
  }
  EXPECT_EQ(entries(), 1U);
  EXPECT_EQ(text_of(dir_ / "x.bin"), "old");
}

TEST_F(OutputFileTest, TwoRunsOfOneTargetBothSucceedAndTheLastStaysWhole) {
  const fs::path target = dir_ / "x.bin";
  ASSERT_OK_AND_ASSIGN(AtomicFile long_one, create_output_file(target));
  ASSERT_OK(write_bytes(long_one, "a long text of the first"));
  ASSERT_OK_AND_ASSIGN(AtomicFile short_one, create_output_file(target));
  ASSERT_OK(write_bytes(short_one, "short"));
  ASSERT_OK(long_one.commit());
  EXPECT_EQ(text_of(target), "a long text of the first");
  ASSERT_OK(short_one.commit());
  EXPECT_EQ(text_of(target), "short");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(OutputFileTest, ManyAtOnceLeaveOneWholeFile) {
  const fs::path target = dir_ / "x.bin";
  std::vector<std::thread> threads;
  std::vector<Status> results(8);
  for (std::size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20 && results[i].is_ok(); ++round) {
        results[i] = write_output_text(target, std::string(1000 * (i + 1), "abcdefgh"[i]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) EXPECT_OK(result);
  const std::string text = text_of(target);
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.size(), 1000 * (std::string_view("abcdefgh").find(text[0]) + 1));
  EXPECT_EQ(text, std::string(text.size(), text[0]));
  EXPECT_EQ(entries(), 1U);
}

TEST_F(OutputFileTest, FilesOfTheUserBesideItAreLeftAlone) {
  const fs::path of_a_run = left_by_a_killed_run(dir_ / "x.bin");
  put(dir_ / "victim", "mine");
  put(dir_ / "x.bin.moepack-.tmp", "mine too");
  put(dir_ / "x.bin.tmp", "mine as well");
  std::string letters = of_a_run.string();
  letters.replace(letters.size() - 20, 16, "sixteen_letters_");
  put(letters, "not of a run");
  fs::remove(of_a_run);
  fs::create_symlink(dir_ / "victim", of_a_run);
  ASSERT_OK(write_output_text(dir_ / "x.bin", "result"));
  EXPECT_EQ(text_of(dir_ / "victim"), "mine");
  EXPECT_EQ(text_of(dir_ / "x.bin.moepack-.tmp"), "mine too");
  EXPECT_EQ(text_of(dir_ / "x.bin.tmp"), "mine as well");
  EXPECT_EQ(text_of(letters), "not of a run");
  EXPECT_TRUE(fs::is_symlink(of_a_run));
  EXPECT_EQ(fs::symlink_status(dir_ / "x.bin").type(), fs::file_type::regular);
  EXPECT_EQ(text_of(dir_ / "x.bin"), "result");
}

TEST_F(OutputFileTest, WhatAKilledRunLeftIsRemovedAndWhatARunningOneHoldsIsNot) {
  const fs::path held = left_by_a_killed_run(dir_ / "x.bin");
  std::string other = held.string();
  char& digit = other[other.size() - 5];
  digit = digit == 'f' ? '0' : 'f';
  const fs::path left = other;
  put(left, "half of it");
  put(held, "of a running one");
  const int fd = ::open(held.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0) << std::strerror(errno);
  ASSERT_OK(write_output_text(dir_ / "other.bin", "another target"));
  EXPECT_TRUE(fs::exists(left));
  ASSERT_OK(write_output_text(dir_ / "x.bin", "result"));
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(text_of(held), "of a running one");
  ::close(fd);
}

// Whose locks may not be seen here.
TEST_F(OutputFileTest, WhatAnotherMachineWritesIsNotRemoved) {
  const fs::path own = left_by_a_killed_run(dir_ / "x.bin");
  const std::string name = own.filename().string();
  const std::string mark = "x.bin.moepack-";
  ASSERT_EQ(name.size(), mark.size() + 16 + 1 + 16 + 4) << name;
  std::string other = name;
  char& digit = other[mark.size()];
  digit = digit == 'f' ? '0' : 'f';
  put(dir_ / other, "of a running one");
  put(dir_ / (mark + name.substr(mark.size() + 17)), "as moepack 0.1.0 named it");
  ASSERT_OK(write_output_text(dir_ / "x.bin", "result"));
  EXPECT_FALSE(fs::exists(own));
  EXPECT_EQ(text_of(dir_ / other), "of a running one");
  EXPECT_EQ(entries(), 3U);
}

TEST_F(OutputFileTest, ALinkIsFollowedAndStays) {
  fs::create_directory(dir_ / "far");
  put(dir_ / "far/file", "old");
  fs::create_symlink("far/file", dir_ / "near");
  fs::create_symlink(dir_ / "near", dir_ / "link");
  ASSERT_OK(write_output_text(dir_ / "link", "new"));
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  EXPECT_TRUE(fs::is_symlink(dir_ / "near"));
  EXPECT_FALSE(fs::is_symlink(dir_ / "far/file"));
  EXPECT_EQ(text_of(dir_ / "far/file"), "new");
  EXPECT_EQ(entries(), 3U);
}

TEST_F(OutputFileTest, ALinkToAFileThatIsNotThereMakesIt) {
  fs::create_directory(dir_ / "far");
  fs::create_symlink("far/file", dir_ / "link");
  ASSERT_OK(write_output_text(dir_ / "link", "new"));
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  EXPECT_EQ(text_of(dir_ / "far/file"), "new");
  fs::create_symlink("nowhere/file", dir_ / "lost");
  expect_error(write_output_text(dir_ / "lost", "new"), StatusCode::kNotFound,
               {"nowhere/file", "cannot create"});
}

TEST_F(OutputFileTest, LinksInACircleAreRefused) {
  fs::create_symlink("b", dir_ / "a");
  fs::create_symlink("a", dir_ / "b");
  expect_error(write_output_text(dir_ / "a", "new"), StatusCode::kInvalidArgument, {"circle"});
  EXPECT_TRUE(fs::is_symlink(dir_ / "a"));
}

TEST_F(OutputFileTest, DirectoriesAndPipesAreRefusedAndStay) {
  fs::create_directory(dir_ / "directory");
  expect_refused(dir_ / "directory");
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  expect_refused(dir_ / "pipe");
  fs::create_symlink("pipe", dir_ / "link");
  expect_refused(dir_ / "link");
}

TEST_F(OutputFileTest, SocketsAreRefusedAndStay) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = (dir_ / "socket").string();
  if (path.size() >= sizeof(address.sun_path)) GTEST_SKIP() << "too long for a socket: " << path;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  expect_refused(path);
  ::close(fd);
}

TEST_F(OutputFileTest, DevicesAreRefusedAndStay) {
  // A node of its own: one of the system's would be lost if this failed.
  const fs::path node = dir_ / "node";
  if (::mknod(node.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) {
    GTEST_SKIP() << "no device may be made here: " << std::strerror(errno);
  }
  expect_refused(node);
}

TEST_F(OutputFileTest, APlaceThatIsNone) {
  expect_error(create_output_file("").status(), StatusCode::kInvalidArgument, {"no output file"});
  expect_error(create_output_file(dir_ / "x/").status(), StatusCode::kInvalidArgument,
               {"no output file"});
  expect_error(create_output_file(dir_ / "absent/x").status(), StatusCode::kNotFound,
               {"absent/x", "cannot create", "directory"});
  put(dir_ / "file", "");
  expect_error(create_output_file(dir_ / "file/x").status(), StatusCode::kIo, {"file/x"});
}

TEST_F(OutputFileTest, ALongNameFits) {
  const fs::path target = dir_ / std::string(255, 'n');
  ASSERT_OK(write_output_text(target, "text"));
  EXPECT_EQ(text_of(target), "text");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(OutputFileTest, ANameWithoutDirectoryIsHere) {
  const fs::path before = fs::current_path();
  fs::current_path(dir_.path());
  const Status status = write_output_text("x.bin", "text");
  fs::current_path(before);
  ASSERT_OK(status);
  EXPECT_EQ(text_of(dir_ / "x.bin"), "text");
}

TEST_F(OutputFileTest, AWriteThatFailsLeavesTheOldFile) {
  put(dir_ / "x.bin", "old");
  rlimit whole{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &whole), 0);
  const rlimit small{100, whole.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = write_output_text(dir_ / "x.bin", std::string(1000, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &whole), 0);
  std::signal(SIGXFSZ, handler);
  expect_error(status, StatusCode::kIo, {"x.bin", "cannot write"});
  EXPECT_EQ(text_of(dir_ / "x.bin"), "old");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(OutputFileTest, ARenameThatFailsLeavesNothing) {
  ASSERT_OK_AND_ASSIGN(AtomicFile file, create_output_file(dir_ / "x.bin"));
  ASSERT_OK(write_bytes(file, "text"));
  fs::create_directory(dir_ / "x.bin");
  expect_error(file.commit(), StatusCode::kIo, {"x.bin", "cannot rename into place"});
  EXPECT_EQ(entries(), 1U);
  EXPECT_TRUE(fs::is_directory(dir_ / "x.bin"));
}

// The files of a directory that one run has to itself.
TEST_F(OutputFileTest, AnAtomicFileNeverWritesThroughALink) {
  put(dir_ / "victim", "mine");
  fs::create_symlink("victim", dir_ / "x.bin.tmp");
  ASSERT_OK(write_text_file(dir_ / "x.bin", "result"));
  EXPECT_EQ(text_of(dir_ / "victim"), "mine");
  EXPECT_FALSE(fs::is_symlink(dir_ / "x.bin"));
  EXPECT_EQ(text_of(dir_ / "x.bin"), "result");
  EXPECT_EQ(entries(), 2U);
}

}  // namespace
}  // namespace moepack::output_file_test
