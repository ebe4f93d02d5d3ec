// Whatever the number of threads: the same bytes, the same checksum, the same error.
#include "runtime/model/ordered_read.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "formats/base/checksum.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::ordered_read_test {
namespace {

constexpr std::size_t kBytes = (std::size_t{9} << 20) + 12345;

class OrderedReadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    content_.resize(kBytes);
    std::mt19937_64 random(1);
    for (char& c : content_) c = static_cast<char>(random());
    ASSERT_OK(write_text_file(dir_ / "data", content_));
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(content_)); }

  test::TempDir dir_;
  std::string content_;
};

TEST_F(OrderedReadTest, BytesAndChecksum) {
  ASSERT_OK_AND_ASSIGN(const File file, File::open(dir_ / "data"));
  for (const std::size_t threads : {0U, 1U, 2U, 3U, 8U, 50U}) {
    std::vector<std::byte> out(kBytes);
    // Kept, passed over, nothing, kept.
    const std::vector<ReadPiece> pieces{{&file, 0, 5000001, out.data()},
                                        {&file, 5000001, 1500000, nullptr},
                                        {&file, 6500001, 0, out.data() + 6500001},
                                        {&file, 6500001, kBytes - 6500001, out.data() + 6500001}};
    ASSERT_OK_AND_ASSIGN(const std::uint64_t sum, read_in_order(pieces, {.threads = threads}));
    EXPECT_EQ(sum, checksum(bytes())) << threads;
    EXPECT_TRUE(std::equal(out.begin(), out.begin() + 5000001, bytes().begin())) << threads;
    EXPECT_TRUE(std::equal(out.begin() + 6500001, out.end(), bytes().begin() + 6500001));
    EXPECT_TRUE(std::all_of(out.begin() + 5000001, out.begin() + 6500001,
                            [](std::byte b) { return b == std::byte{0}; }));
    ASSERT_OK_AND_ASSIGN(const std::uint64_t none,
                         read_in_order(pieces, {.threads = threads, .wants_checksum = false}));
    EXPECT_EQ(none, 0U);
  }
  ASSERT_OK_AND_ASSIGN(const std::uint64_t empty, read_in_order({}, {.threads = 2}));
  EXPECT_EQ(empty, checksum({}));
}

TEST_F(OrderedReadTest, TheFirstErrorInOrder) {
  ASSERT_OK(write_text_file(dir_ / "short", std::string_view(content_).substr(0, 100)));
  ASSERT_OK_AND_ASSIGN(const File file, File::open(dir_ / "data"));
  ASSERT_OK_AND_ASSIGN(const File cut, File::open(dir_ / "short"));
  std::vector<std::byte> out(kBytes);
  const std::vector<ReadPiece> pieces{{&file, 0, kBytes, out.data()},
                                      {&cut, 50, 60, out.data()},
                                      {&file, kBytes - 1, 2, out.data()}};
  for (const std::size_t threads : {1U, 2U, 8U}) {
    test::expect_error(read_in_order(pieces, {.threads = threads}).status(), StatusCode::kCorrupt,
                       {"short", "offset 50"});
  }
}

}  // namespace
}  // namespace moepack::ordered_read_test
