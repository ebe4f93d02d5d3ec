// Activation dumps written here byte by byte from flash-moe's description of its records.
#include "formats/flashmoe/flashmoe_activations.h"

#include <cstring>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::flashmoe_activations_test {
namespace {

using Ids = std::vector<std::uint16_t>;

constexpr ActivationDumpDimensions kDims{.num_layers = 3, .num_experts = 6, .hidden_size = 4};
constexpr std::size_t kRecord = 8 + 2 * (4 + 4 * 4);  // K = 2

template <typename T>
void append(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

std::string record(std::int32_t layer, const std::vector<std::int32_t>& experts,
                   const std::vector<float>& input) {
  std::string bytes;
  append(bytes, layer);
  append(bytes, static_cast<std::int32_t>(experts.size()));
  for (std::int32_t expert : experts) {
    append(bytes, expert);
    for (float value : input) append(bytes, value);
  }
  return bytes;
}

// Two tokens through three layers. 1 + 2^-8 lies halfway between bf16 numbers and goes to the even
// one below, 1 + 3 * 2^-8 to the even one above.
std::string two_tokens() {
  return record(0, {5, 0}, {1.00390625F, 1.01171875F, -0.5F, 0}) + record(1, {1, 2}, {1, 2, 3, 4}) +
         record(2, {4, 3}, {9, 9, 9, 9}) + record(0, {2, 5}, {-1, -2, -3, -4}) +
         record(1, {2, 1}, {5, 6, 7, 8}) + record(2, {0, 1}, {8, 8, 8, 8});
}

class FlashMoeActivationsTest : public testing::Test {
 protected:
  Result<FlashMoeActivations> open(std::string_view bytes,
                                   const ActivationDumpDimensions& dims = kDims) {
    const std::filesystem::path path = dir_ / "dump.bin";
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return FlashMoeActivations::open(path, dims);
  }
  // Opens and reads all layers; the first error.
  Status read(std::string_view bytes) {
    auto dump = open(bytes);
    if (!dump.is_ok()) return dump.status();
    for (std::uint32_t layer = 0; layer < kDims.num_layers; ++layer) {
      if (dump.value().tokens(layer) == 0) continue;
      MOE_RETURN_IF_ERROR(dump.value().read_layer(layer).status());
    }
    return Status::ok();
  }

  test::TempDir dir_;
};

TEST_F(FlashMoeActivationsTest, TokensComeInOrderEachOnce) {
  ASSERT_OK_AND_ASSIGN(const FlashMoeActivations dump, open(two_tokens()));
  EXPECT_EQ(dump.experts_per_token(), 2U);
  EXPECT_EQ(dump.tokens(0), 2U);
  ASSERT_OK_AND_ASSIGN(const LayerActivations first, dump.read_layer(0));
  EXPECT_EQ(first.tokens, 2U);
  EXPECT_EQ(first.hidden_size, 4U);
  EXPECT_EQ(first.experts_per_token, 2U);
  EXPECT_EQ(first.inputs, (Ids{0x3f80, 0x3f82, 0xbf00, 0, 0xbf80, 0xc000, 0xc040, 0xc080}));
  EXPECT_EQ(first.experts, (Ids{5, 0, 2, 5}));
  EXPECT_EQ(first.weights, (std::vector<float>{0.5F, 0.5F, 0.5F, 0.5F}));
  ASSERT_OK_AND_ASSIGN(const LayerActivations second, dump.read_layer(1));
  EXPECT_EQ(second.experts, (Ids{1, 2, 2, 1}));
  EXPECT_EQ(second.inputs[4], 0x40a0);
}

// The engine may compute a prompt layer by layer, or see only some layers; runs are of any kind.
TEST_F(FlashMoeActivationsTest, RecordsMayComeInAnyOrder) {
  std::string bytes;
  std::vector<Ids> expected(3);
  std::uint32_t state = 1;
  for (int i = 0; i < 400; ++i) {
    state = state * 1664525 + 1013904223;
    const std::uint32_t layer = i < 100   ? 1
                                : i < 200 ? static_cast<std::uint32_t>(i % 3)
                                          : state >> 30;
    if (layer == 3) continue;
    const auto expert = static_cast<std::int32_t>((state >> 20) % 6);
    bytes += record(static_cast<std::int32_t>(layer), {expert}, {1, 2, 3, static_cast<float>(i)});
    expected[layer].push_back(static_cast<std::uint16_t>(expert));
  }
  ASSERT_OK_AND_ASSIGN(const FlashMoeActivations dump, open(bytes));
  EXPECT_EQ(dump.experts_per_token(), 1U);
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    ASSERT_OK_AND_ASSIGN(const LayerActivations read, dump.read_layer(layer));
    EXPECT_EQ(read.experts, expected[layer]) << layer;
    EXPECT_EQ(read.weights, std::vector<float>(expected[layer].size(), 1.0F));
  }
  ASSERT_OK_AND_ASSIGN(const FlashMoeActivations one, open(record(2, {0}, {1, 2, 3, 4})));
  test::expect_error(one.read_layer(0).status(), StatusCode::kNotFound, {"dump.bin", "layer 0"});
}

// Records wider than a page of the walk: only their heads are read.
TEST_F(FlashMoeActivationsTest, WideRecordsAreWalkedByTheirHeads) {
  constexpr ActivationDumpDimensions kWide{.num_layers = 2, .num_experts = 4, .hidden_size = 20000};
  std::string bytes;
  for (std::int32_t i = 0; i < 6; ++i) {
    bytes += record(i % 2, {3}, std::vector<float>(kWide.hidden_size, static_cast<float>(i)));
  }
  ASSERT_OK_AND_ASSIGN(const FlashMoeActivations dump, open(bytes, kWide));
  ASSERT_OK_AND_ASSIGN(const LayerActivations odd, dump.read_layer(1));
  EXPECT_EQ(odd.tokens, 3U);
  EXPECT_EQ(odd.inputs.back(), 0x40a0);  // 5
  test::expect_error(open(bytes.substr(0, bytes.size() - 1), kWide).status(), StatusCode::kCorrupt,
                     {"record 5", "layer 1", "cut short"});
}

// A dump that ends with a record is whole; every other length is not.
TEST_F(FlashMoeActivationsTest, CutShortAnywhere) {
  const std::string whole = two_tokens();
  ASSERT_EQ(whole.size(), 6 * kRecord);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Status status = read(std::string_view(whole).substr(0, size));
    EXPECT_EQ(status.is_ok(), size != 0 && size % kRecord == 0) << size;
    if (status.is_ok()) continue;
    test::expect_error(status, StatusCode::kCorrupt, {"dump.bin", "offset "});
  }
  test::expect_error(read(whole.substr(0, 5 * kRecord - 1)), StatusCode::kCorrupt,
                     {"record 4 of layer 1", "offset 192", "cut short"});
  test::expect_error(read(whole + "x"), StatusCode::kCorrupt, {"record 6", "offset 288"});
}

TEST_F(FlashMoeActivationsTest, DamageIsNamed) {
  const auto edited = [](std::size_t at, auto value) {
    std::string bytes = two_tokens();
    std::memcpy(bytes.data() + at, &value, sizeof(value));
    return bytes;
  };
  struct Case {
    std::string bytes;
    std::vector<std::string> parts;
  };
  constexpr std::size_t kFourth = 3 * kRecord;  // layer 0, experts 2 and 5
  for (const Case& c : std::vector<Case>{
           {edited(0, -1), {"record 0", "layer -1", "offset 0"}},
           {edited(kFourth, 3), {"record 3", "layer 3", "the model has 3", "offset 144"}},
           {edited(4, 0), {"record 0", "K = 0"}},
           {edited(4, -2), {"record 0", "K = -2"}},
           {edited(4, 7), {"record 0", "K = 7", "6 experts"}},
           {edited(kFourth + 4, 3), {"record 3 of layer 0", "K = 3", "offset 148"}},
           {edited(kFourth + 8, 6), {"record 3 of layer 0", "expert 6", "offset 152"}},
           {edited(kFourth + 8, -1), {"record 3 of layer 0", "expert -1"}},
           {edited(kFourth + 8, 5), {"record 3 of layer 0", "expert 5 twice", "offset 172"}},
           {edited(kFourth + 32, 7.0F), {"record 3 of layer 0", "another input for expert 5"}}}) {
    const Status status = read(c.bytes);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.message();
    for (const std::string& part : c.parts) {
      EXPECT_NE(status.message().find(part), std::string::npos)
          << "\"" << part << "\" is missing in: " << status.message();
    }
  }
  // 3.4e38 is a float, but rounds to infinity.
  for (float value : {std::numeric_limits<float>::quiet_NaN(),
                      -std::numeric_limits<float>::infinity(), 3.4e38F}) {
    test::expect_error(read(record(1, {1, 2}, {1, 2, 3, 4}) + record(2, {0, 1}, {1, 2, value, 4})),
                       StatusCode::kCorrupt, {"record 1 of layer 2", "NaN or infinity"});
  }
}

TEST_F(FlashMoeActivationsTest, AnotherModelIsRefused) {
  const std::string bytes = two_tokens();
  for (std::uint64_t hidden : {1U, 2U, 3U, 5U, 8U, 64U, 4096U}) {
    ActivationDumpDimensions dims = kDims;
    dims.hidden_size = hidden;
    test::expect_error(open(bytes, dims).status(), StatusCode::kCorrupt, {"hidden size"});
  }
  EXPECT_EQ(open(bytes, {}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace moepack::flashmoe_activations_test
