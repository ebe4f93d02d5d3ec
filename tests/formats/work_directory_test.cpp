// Directories in the making: what their paths mean, and that no command takes what another one
// wrote.
#include "formats/base/work_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "formats/base/file.h"
#include "formats/base/paths.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::work_directory_test {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempDir;

constexpr WorkRules kTestRules{
    .marker = "making",
    .is_own_file = [](std::string_view, std::string_view name) { return name == "own.bin"; }};

void put(const fs::path& path) { std::ofstream(path) << "precious"; }

// DIR/link leads to DIR/far/target, so DIR/link/.. is DIR/far.
void make_link(const TempDir& dir) {
  fs::create_directories(dir / "far/target");
  fs::create_directory_symlink("far/target", dir / "link");
}

TEST(Paths, OnlySlashesAndDotsAreTakenAway) {
  const std::pair<const char*, const char*> paths[] = {
      {"a/b", "a/b"}, {"a/b/", "a/b"}, {"a/./b/.", "a/b"}, {"a/../b//", "a/../b"}, {"/", "/"},
      {"/a/", "/a"},  {".", "."},      {"./", "."},        {"..", ".."},           {"", ""},
  };
  for (const auto& [path, clean] : paths) {
    EXPECT_EQ(without_trailing_slash(path).string(), clean) << path;
  }
}

TEST(Paths, TheNameOfADirectoryAndTheOneAbove) {
  const TempDir dir;
  make_link(dir);
  const fs::path top = fs::canonical(dir.path());
  for (const char* path : {"far/target", "far/target/", "far/target/."}) {
    EXPECT_EQ(directory_name(dir / path), "target") << path;
    EXPECT_EQ(directory_above(top / path), top / "far") << path;
  }
  EXPECT_EQ(directory_name(dir / "link"), "link");
  EXPECT_EQ(directory_above(top / "link/"), top);
  EXPECT_EQ(directory_name(dir / "link/.."), "far");
  EXPECT_EQ(directory_above(dir / "link/.."), top);
  EXPECT_EQ(directory_name(dir / "far/target/.."), "far");
  const fs::path before = fs::current_path();
  fs::current_path(dir / "far/target");
  const std::string here = directory_name(".");
  fs::current_path(before);
  EXPECT_EQ(here, "target");
}

TEST(WorkDirectory, DotsBehindALinkMeanWhatTheFileSystemMeans) {
  const TempDir dir;
  make_link(dir);
  {
    ASSERT_OK_AND_ASSIGN(WorkDirectory made,
                         WorkDirectory::create(dir / "link/../out", kTestRules));
    EXPECT_TRUE(fs::is_directory(dir / "far/out"));
    EXPECT_FALSE(fs::exists(dir / "out"));
  }
  EXPECT_FALSE(fs::exists(dir / "far/out"));
}

TEST(WorkDirectory, WhatWasMadeGoesAndNothingElse) {
  const TempDir dir;
  fs::create_directory(dir / "old");
  {
    ASSERT_OK_AND_ASSIGN(WorkDirectory made,
                         WorkDirectory::create(dir / "old/new/../other/out", kTestRules));
    EXPECT_TRUE(fs::is_directory(dir / "old/other/out"));
  }
  EXPECT_TRUE(fs::is_directory(dir / "old"));
  EXPECT_TRUE(fs::is_empty(dir / "old"));
}

// A command looked, found nothing, and another one came, wrote and finished before it had its lock.
TEST(WorkDirectory, ANewMarkerStandsAlone) {
  for (const char* name : {"own.bin", "foreign.bin", "own.bin.tmp"}) {
    const TempDir dir;
    put(dir / name);
    ASSERT_OK_AND_ASSIGN(WorkDirectory late, WorkDirectory::create(dir.path(), kTestRules));
    expect_error(late.lock_marker(false, "another command is writing there"),
                 StatusCode::kInvalidArgument, {dir.path().string(), "another command"});
    EXPECT_FALSE(late.is_locked());
    EXPECT_FALSE(fs::exists(dir / "making"));
    EXPECT_TRUE(fs::exists(dir / name));
  }
}

TEST(WorkDirectory, TheMarkerHasOneOwner) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(WorkDirectory first, WorkDirectory::create(dir.path(), kTestRules));
  ASSERT_OK(first.lock_marker(false, "taken"));
  put(dir / "own.bin");
  ASSERT_OK_AND_ASSIGN(WorkDirectory second, WorkDirectory::create(dir.path(), kTestRules));
  for (const bool exists : {false, true}) {
    expect_error(second.lock_marker(exists, "taken"), StatusCode::kInvalidArgument, {"taken"});
  }
  EXPECT_TRUE(fs::exists(dir / "making"));
  EXPECT_TRUE(fs::exists(dir / "own.bin"));
}

}  // namespace
}  // namespace moepack::work_directory_test
