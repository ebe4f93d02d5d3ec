#include <cmath>
#include <numeric>

#include "runtime/vulkan/weight_kernels.h"
#include "shaders/catalog.h"
#include "shaders/copy_words_args.h"
#include "shaders/matvec_fixed_args.h"
#include "shaders/stage_args.h"
#include "tests/runtime/vulkan/vulkan_fixture.h"

namespace moepack::ordered_list_test {
namespace {

constexpr std::uint32_t kWords = 5000;
constexpr std::uint64_t kBytes = std::uint64_t{4} * kWords;
constexpr std::uint64_t kRecordBytes = MOE_STAGE_BYTES;
constexpr std::uint32_t kThreads = 64;
constexpr GroupCount kGroups{7, 1, 1};

class OrderedListTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = VulkanDevice::open({.ordering = StageOrdering::kCounters});
    if (!opened.is_ok()) GTEST_SKIP() << opened.status().message();
    device_ = std::move(opened).value();
    ASSERT_TRUE(device_->takes_ordered_programs());
    copy_ = kernel("copy_words");
    ordered_ = kernel("copy_words_ordered");
  }
  VulkanKernel kernel(std::string_view name) {
    auto made = device_->make_kernel({.shader = name, .constants = {kThreads}});
    EXPECT_TRUE(made.is_ok()) << made.status().message();
    return std::move(made).value();
  }
  DeviceBuffer make(std::uint64_t bytes = kBytes) {
    auto buffer = device_->allocate(bytes, MemoryKind::kDevice);
    EXPECT_TRUE(buffer.is_ok());
    return std::move(buffer).value();
  }

  std::unique_ptr<VulkanDevice> device_;
  VulkanKernel copy_;
  VulkanKernel ordered_;
};

shader::CopyWordsArgs from_to(const DeviceBuffer& from, const DeviceBuffer& to) {
  return {.from = from.address(), .to = to.address(), .count = kWords};
}

// A chain of copies gives what was at its beginning, however its stages wait, and each run again.
TEST_F(OrderedListTest, AChainOfStagesComesToItsEnd) {
  std::vector<DeviceBuffer> chain;
  chain.reserve(6);
  for (int i = 0; i < 6; ++i) chain.push_back(make());
  CommandList list(*device_, {.is_ordered = true});
  ASSERT_TRUE(list.is_ordered());
  const std::uint32_t at_first = list.barriers();
  list.dispatch(ordered_, from_to(chain[0], chain[1]), kGroups);
  list.barrier();
  list.dispatch(ordered_, from_to(chain[1], chain[2]), kGroups);
  list.barrier();
  EXPECT_EQ(list.barriers(), at_first);
  list.dispatch(copy_, from_to(chain[2], chain[3]), kGroups);
  EXPECT_EQ(list.barriers(), at_first + 1) << "before a program that does not wait";
  list.barrier();
  list.dispatch(ordered_, from_to(chain[3], chain[4]), kGroups);
  EXPECT_EQ(list.barriers(), at_first + 2) << "behind a program that does not count";
  list.barrier();
  list.dispatch(ordered_, from_to(chain[4], chain[5]), kGroups);
  for (std::uint32_t run = 1; run <= 3; ++run) {
    std::vector<std::uint32_t> values(kWords);
    std::iota(values.begin(), values.end(), run * 100000);
    ASSERT_TRUE(device_->upload(chain[0], 0, std::as_bytes(std::span(values))).is_ok());
    const Status status = device_->run(list);
    ASSERT_TRUE(status.is_ok()) << status.message();
    std::vector<std::uint32_t> found(kWords);
    ASSERT_TRUE(device_->download(chain[5], 0, std::as_writable_bytes(std::span(found))).is_ok());
    EXPECT_EQ(found, values);
  }
}

// Numbers that look like none are handed on all the same, when the stage that wrote them is done.
TEST_F(OrderedListTest, ANumberThatLooksLikeNoneIsHandedOn) {
  if (!device_->info().has_integer_dot) GTEST_SKIP() << "SKIPPED: no products of bytes here";
  constexpr std::uint32_t kCols = 64;
  constexpr std::uint64_t kRowBytes = std::uint64_t{4} * kCols;
  const WeightRows rows{.format = {.id = QFormatId::kQ80}, .cols = kCols, .rows = 1};
  const WeightKernelShape shape = fixed_shape(rows, device_->info(), 32);
  auto made = device_->make_kernel(
      {.shader = "matvec_fixed_q8_0_ordered",
       .constants = matvec_fixed_constants(rows, shape, device_->info(), {}, 0, 0)});
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  const DeviceBuffer x = make(kRowBytes);
  const DeviceBuffer middle = make(kRowBytes);
  const DeviceBuffer w = make(256);
  const DeviceBuffer y = make(4);
  // Two blocks of 32 ones, then their scales, 1.0.
  std::vector<std::uint8_t> blocks(256, 1);
  for (const std::size_t at : {64U, 66U}) {
    blocks[at] = 0;
    blocks[at + 1] = 0x3c;
  }
  ASSERT_TRUE(device_->upload(w, 0, std::as_bytes(std::span(blocks))).is_ok());
  for (const std::uint32_t last : {0x3f800000U, MOE_NOT_HANDED}) {
    std::vector<std::uint32_t> words(kCols, 0x3f800000U);  // 1.0
    words.back() = last;
    ASSERT_TRUE(device_->upload(x, 0, std::as_bytes(std::span(words))).is_ok());
    shader::MatvecFixedArgs args{};
    args.base = w.address();
    args.x = middle.address();
    args.y = y.address();
    args.rows[0] = 1;
    args.y_stride = 1;
    CommandList list(*device_, {.is_ordered = true});
    list.dispatch(
        ordered_,
        shader::CopyWordsArgs{.from = x.address(), .to = middle.address(), .count = kCols},
        kGroups);
    list.barrier();
    list.dispatch(made.value(), args, {1, 1, 1});
    const Status status = device_->run(list);
    ASSERT_TRUE(status.is_ok()) << status.message();
    ASSERT_TRUE(list.order_status().is_ok());
    float sum = 0;
    ASSERT_TRUE(device_->download(y, 0, std::as_writable_bytes(std::span(&sum, 1))).is_ok());
    if (last == MOE_NOT_HANDED) {
      EXPECT_TRUE(std::isnan(sum));
    } else {
      EXPECT_FLOAT_EQ(sum, 64.0F);
    }
  }
}

// A stage that never ends: the wait is given up, and the word it names says so.
TEST_F(OrderedListTest, AWaitIsGivenUp) {
  struct Arguments {
    shader::CopyWordsArgs copy;
    std::uint32_t unused[(MOE_STAGE_AT - sizeof(shader::CopyWordsArgs)) / 4];
    std::uint64_t stage;
  };
  static_assert(offsetof(Arguments, stage) == MOE_STAGE_AT);
  static_assert(sizeof(Arguments) == kMostPushBytes);
  const DeviceBuffer from = make();
  const DeviceBuffer to = make();
  const DeviceBuffer lost = make(4);
  const DeviceBuffer records = make(3 * kRecordBytes);
  std::vector<std::uint32_t> words(3 * kRecordBytes / 4);
  constexpr std::uint32_t kRecord = MOE_STAGE_BYTES / 4;
  words[kRecord + MOE_STAGE_LEFT] = 1;
  words[2 * kRecord + MOE_STAGE_LEFT] = 1;
  const std::uint64_t lost_at = lost.address();
  std::memcpy(&words[2 * kRecord + MOE_STAGE_LOST], &lost_at, sizeof(lost_at));
  ASSERT_TRUE(device_->upload(records, 0, std::as_bytes(std::span(words))).is_ok());
  CommandList list(*device_);
  list.fill(lost.handle(), 0, 4, 0);
  list.full_barrier();
  list.dispatch(
      ordered_,
      Arguments{
          .copy = from_to(from, to), .unused = {}, .stage = records.address() + 2 * kRecordBytes},
      {1, 1, 1});
  ASSERT_TRUE(device_->run(list).is_ok());
  std::uint32_t flag = 0;
  ASSERT_TRUE(device_->download(lost, 0, std::as_writable_bytes(std::span(&flag, 1))).is_ok());
  EXPECT_EQ(flag, 1U);
  ASSERT_TRUE(device_->download(records, 0, std::as_writable_bytes(std::span(words))).is_ok());
  EXPECT_EQ(words[2 * kRecord + MOE_STAGE_LEFT], 0U) << "its own stage is done all the same";
  EXPECT_EQ(words[2 * kRecord + MOE_STAGE_WRONG], 1U) << "which those who wait for it see";
}

// Every ordered program has a plain one beside it, which is what other devices run.
TEST(OrderedPrograms, HavePlainOnes) {
  std::size_t count = 0;
  for (const std::string_view name : shader_names()) {
    if (!name.ends_with(kOrderedSuffix)) continue;
    ++count;
    EXPECT_TRUE(has_shader(name.substr(0, name.size() - kOrderedSuffix.size()))) << name;
  }
  EXPECT_GT(count, 90U);
}

}  // namespace
}  // namespace moepack::ordered_list_test
