#include "formats/calibration/calibration.h"

#include <gtest/gtest.h>
#include <zstd.h>
#include <fstream>
#include <functional>
#include <limits>

#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/calibration/calibration_state.h"
#include "tests/support/number_mutation.h"
#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::calibration_test {
namespace {

using test::expect_error;

constexpr std::uint32_t kExperts = 5;

// Inputs that are no pattern; `tokens` * 6 values, 2 experts a token.
LayerActivations sample(std::uint64_t tokens = 7) {
  LayerActivations a;
  a.tokens = tokens;
  a.hidden_size = 6;
  a.experts_per_token = 2;
  std::uint32_t state = 1;
  for (std::uint64_t i = 0; i < tokens * 6; ++i) {
    state = state * 1664525 + 1013904223;
    a.inputs.push_back(static_cast<std::uint16_t>((state >> 16) & 0xbfffU));  // no NaN exponent
  }
  for (std::uint64_t t = 0; t < tokens; ++t) {
    a.experts.push_back(static_cast<std::uint16_t>(t % kExperts));
    a.experts.push_back(static_cast<std::uint16_t>((t + 1 + t % 3) % kExperts));
    a.weights.push_back(0.75F);
    a.weights.push_back(0.25F);
  }
  return a;
}

CalibrationManifest manifest_of(const LayerActivations& a, std::vector<CalibrationLayer> layers) {
  CalibrationManifest m;
  m.model = "toy \"model\"";
  m.source_fingerprint = 0x1234;
  m.residents_checksum = 0xffffffffffffffffU;
  m.num_layers = static_cast<std::uint32_t>(layers.size());
  m.num_experts = kExperts;
  m.experts_per_token = a.experts_per_token;
  m.hidden_size = a.hidden_size;
  m.expert_width = 64;
  m.tokens = a.tokens;
  m.context = 512;
  m.layers = std::move(layers);
  return m;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void expect_same(const LayerActivations& a, const LayerActivations& b) {
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.experts, b.experts);
  EXPECT_EQ(a.weights, b.weights);
}

class CalibrationFile : public ::testing::Test {
 protected:
  // Writes `bytes` as layer 0 with a manifest that has the right size and checksum, and reads it.
  Status read_bytes(const std::string& bytes, const LayerActivations& claimed) {
    CalibrationManifest m = manifest_of(claimed, {entry_});
    m.layers[0].file_size = bytes.size();
    m.layers[0].checksum = checksum(std::as_bytes(std::span(bytes)));
    std::ofstream(dir_ / m.layers[0].file, std::ios::binary) << bytes;
    return read_layer_activations(dir_.path(), m, 0).status();
  }
  // Writes the sections as they are, without the writer's checks, and reads them.
  Status read_contents(const LayerActivations& a) {
    std::string raw;
    for (const std::uint16_t v : a.inputs) raw.push_back(static_cast<char>(v & 0xffU));
    for (const std::uint16_t v : a.inputs) raw.push_back(static_cast<char>(v >> 8));
    raw.append(reinterpret_cast<const char*>(a.experts.data()), a.experts.size() * 2);
    raw.append(reinterpret_cast<const char*>(a.weights.data()), a.weights.size() * 4);
    return read_bytes(compress(raw, 1), a);
  }
  static std::string compress(const std::string& raw, int level) {
    std::string frame(ZSTD_compressBound(raw.size()), '\0');
    frame.resize(ZSTD_compress(frame.data(), frame.size(), raw.data(), raw.size(), level));
    return frame;
  }
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(entry_, write_layer_activations(dir_.path(), 0, kExperts, sample()));
  }

  test::TempDir dir_;
  CalibrationLayer entry_;
};

TEST_F(CalibrationFile, ReadsWhatWasWritten) {
  // Small, and larger than several frames and runs of planes.
  for (const std::uint64_t tokens : {1U, 7U, 200000U}) {
    const LayerActivations a = sample(tokens);
    ASSERT_OK_AND_ASSIGN(CalibrationLayer layer,
                         write_layer_activations(dir_.path(), 3, kExperts, a));
    EXPECT_EQ(layer.file, "layer_03.bin.zst");
    std::vector<std::uint64_t> samples(kExperts);
    for (const std::uint16_t e : a.experts) ++samples[e];
    EXPECT_EQ(layer.samples, samples);
    const CalibrationManifest m = manifest_of(a, {entry_, entry_, entry_, layer});
    ASSERT_OK_AND_ASSIGN(const LayerActivations read, read_layer_activations(dir_.path(), m, 3));
    expect_same(a, read);
  }
}

// The layout is what the header says, decoded here by the library's plainest call.
TEST_F(CalibrationFile, LayoutIsWhatTheHeaderSays) {
  const LayerActivations a = sample();
  const std::string file = bytes_of(dir_ / entry_.file);
  std::string raw;
  for (std::size_t at = 0; at < file.size();) {
    const std::size_t frame = ZSTD_findFrameCompressedSize(file.data() + at, file.size() - at);
    std::string part(1 << 20, '\0');
    const std::size_t size = ZSTD_decompress(part.data(), part.size(), file.data() + at, frame);
    ASSERT_FALSE(ZSTD_isError(size));
    raw.append(part, 0, size);
    at += frame;
  }
  const std::size_t n = a.inputs.size();
  ASSERT_EQ(raw.size(), 2 * n + 6 * a.experts.size());
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(raw[i]); };
  for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(byte(i) + 256 * byte(n + i), a.inputs[i]);
  for (std::size_t i = 0; i < a.experts.size(); ++i) {
    EXPECT_EQ(byte(2 * n + 2 * i) + 256 * byte(2 * n + 2 * i + 1), a.experts[i]);
  }
  EXPECT_EQ(byte(raw.size() - 1), 0x3e);  // 0.25f
}

TEST_F(CalibrationFile, TruncationIsSeenWithAndWithoutTheChecksum) {
  const std::string whole = bytes_of(dir_ / entry_.file);
  test::drill_truncation(
      whole, [&](std::string_view bytes) { return read_bytes(std::string(bytes), sample()); });
  CalibrationManifest m = manifest_of(sample(), {entry_});
  test::drill_truncation(whole, [&](std::string_view bytes) {
    std::ofstream(dir_ / entry_.file, std::ios::binary) << bytes;
    return read_layer_activations(dir_.path(), m, 0).status();
  });
}

TEST_F(CalibrationFile, FlippedBitIsSeen) {
  const std::string whole = bytes_of(dir_ / entry_.file);
  const CalibrationManifest m = manifest_of(sample(), {entry_});
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    std::ofstream(dir_ / entry_.file, std::ios::binary) << damaged;
    expect_error(read_layer_activations(dir_.path(), m, 0).status(), StatusCode::kCorrupt,
                 {"layer_00.bin.zst", "checksum"});
  }
}

// Right checksum, wrong contents.
TEST_F(CalibrationFile, ContentsAreChecked) {
  const auto edited = [&](const std::function<void(LayerActivations&)>& edit) {
    LayerActivations a = sample();
    edit(a);
    return read_contents(a);
  };
  EXPECT_OK(edited([](LayerActivations&) {}));
  const auto expect = [&](const std::function<void(LayerActivations&)>& edit,
                          std::initializer_list<std::string_view> parts) {
    expect_error(edited(edit), StatusCode::kCorrupt, parts);
  };
  expect([](auto& a) { a.inputs[3 * 6 + 2] = 0x7f80; }, {"layer 0, token 3", "not finite"});
  expect([](auto& a) { a.inputs[6 * 6 + 5] = 0xffc1; }, {"token 6", "not finite"});
  expect([](auto& a) { a.experts[5] = kExperts; }, {"token 2", "expert 5"});
  expect([](auto& a) { a.experts[9] = a.experts[8]; }, {"token 4", "twice"});
  expect([](auto& a) { a.weights[4] = -0.5F; }, {"token 2", "weight"});
  expect([](auto& a) { a.weights[13] = std::numeric_limits<float>::quiet_NaN(); }, {"token 6"});
  expect([](auto& a) { a.experts[0] = 2; }, {"tokens per expert"});
}

TEST_F(CalibrationFile, OtherSizesAreRefused) {
  const std::string file = bytes_of(dir_ / entry_.file);
  for (const std::uint64_t tokens : {6U, 8U}) {
    EXPECT_FALSE(read_bytes(file, sample(tokens)).is_ok()) << tokens;
  }
  // A frame more, an empty frame more, and a frame that says nothing.
  EXPECT_FALSE(read_bytes(file + compress("x", 1), sample()).is_ok());
  EXPECT_FALSE(read_bytes(file + compress("", 1), sample()).is_ok());
  EXPECT_FALSE(read_bytes(std::string("\x50\x2a\x4d\x18\0\0\0\0", 8), sample()).is_ok());
}

// A frame that would need 128 MiB of window is refused, and so are claims beyond the contents.
TEST_F(CalibrationFile, HostileSizes) {
  std::string frame(1 << 20, '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 27);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  const std::string raw(1000, 'a');
  ZSTD_inBuffer in{raw.data(), raw.size(), 0};
  ZSTD_outBuffer out{frame.data(), frame.size(), 0};
  ASSERT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue) * 0, 0U);
  ASSERT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0U);
  ZSTD_freeCCtx(context);
  frame.resize(out.pos);
  expect_error(read_bytes(frame, sample()), StatusCode::kCorrupt, {"memory"});
  // A hundred bytes that claim a tebibyte: read as far as they go.
  LayerActivations claim = sample();
  claim.tokens = std::uint64_t{1} << 38;
  EXPECT_FALSE(read_bytes(bytes_of(dir_ / entry_.file).substr(0, 60), claim).is_ok());
}

TEST_F(CalibrationFile, WriterRefusesWhatTheReaderWould) {
  LayerActivations a = sample();
  a.inputs[8] = 0x7fc0;
  expect_error(write_layer_activations(dir_.path(), 2, kExperts, a).status(),
               StatusCode::kInvalidArgument, {"layer 2, token 1", "not finite"});
  EXPECT_FALSE(std::filesystem::exists(dir_ / "layer_02.bin.zst"));
}

TEST_F(CalibrationFile, ManifestOfADirectory) {
  const CalibrationManifest m = manifest_of(sample(), {entry_});
  expect_error(read_calibration_manifest(dir_ / "absent").status(), StatusCode::kNotFound,
               {"absent"});
  expect_error(read_calibration_manifest(dir_.path()).status(), StatusCode::kNotFound,
               {"calibration.json"});
  ASSERT_OK(write_text_file(dir_ / kCalibrationManifestName, calibration_manifest_text(m)));
  EXPECT_OK(read_calibration_manifest(dir_.path()));
  ASSERT_OK(write_text_file(dir_ / kCalibrationStateName, "{}"));
  expect_error(read_calibration_manifest(dir_.path()).status(), StatusCode::kCorrupt,
               {"not finished"});
  std::filesystem::remove(dir_ / kCalibrationStateName);
  std::ofstream(dir_ / entry_.file, std::ios::binary | std::ios::app) << "x";
  expect_error(read_calibration_manifest(dir_.path()).status(), StatusCode::kCorrupt,
               {"layer_00.bin.zst", "bytes long"});
  std::filesystem::remove(dir_ / entry_.file);
  expect_error(read_calibration_manifest(dir_.path()).status(), StatusCode::kNotFound,
               {"layer_00.bin.zst"});
}

TEST(CalibrationManifestText, RoundTripAndDrill) {
  const LayerActivations a = sample();
  CalibrationLayer layer{
      .file = "layer_00.bin.zst", .file_size = 99, .checksum = 0xabc, .samples = {3, 3, 3, 3, 2}};
  CalibrationLayer next = layer;
  next.file = "layer_01.bin.zst";
  CalibrationManifest manifest = manifest_of(a, {layer, next});
  manifest.response = {{.per_energy = 0.25, .per_amplitude = 0},
                       {.per_energy = 3, .per_amplitude = 7.5}};
  const std::string text = calibration_manifest_text(manifest);
  const auto parse = [](std::string_view t) {
    return parse_calibration_manifest(t, "calibration.json").status();
  };
  ASSERT_OK_AND_ASSIGN(const CalibrationManifest read,
                       parse_calibration_manifest(text, "calibration.json"));
  EXPECT_EQ(calibration_manifest_text(read), text);
  EXPECT_EQ(read.model, "toy \"model\"");
  EXPECT_EQ(read.layers[1].samples, layer.samples);
  test::drill_truncation(text.substr(0, text.size() - 1), parse);  // but the last newline
  // Every integer is checked, or stands for itself and comes back changed.
  const std::string integers = calibration_manifest_text(manifest_of(a, {layer, next}));
  test::for_each_number_edit(integers, [&](const std::string& edited, std::size_t at) {
    const auto other = parse_calibration_manifest(edited, "calibration.json");
    if (!other.is_ok()) return;
    EXPECT_NE(calibration_manifest_text(other.value()), integers) << "number at " << at;
  });
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string edited = text;
    edited.replace(edited.find(from), from.size(), to);
    return parse(edited);
  };
  EXPECT_EQ(read.response[1].per_amplitude, 7.5);
  for (const char* other : {"[3, -7.5]", "[3]", "[3, null]", "[3, 7.5], [0, 0]", "3, 7.5"}) {
    expect_error(replaced("[3, 7.5]", other), StatusCode::kCorrupt, {"divergence_response"});
  }
  expect_error(replaced("layer_01.bin.zst", "../../passwd"), StatusCode::kCorrupt, {"layers[1]"});
  expect_error(replaced("[3, 3, 3, 3, 2]", "[3, 3, 3, 3]"), StatusCode::kCorrupt, {"samples"});
  expect_error(replaced("[3, 3, 3, 3, 2]", "[3, 3, 3, 3, 1]"), StatusCode::kCorrupt, {"samples"});
  expect_error(replaced("[3, 3, 3, 3, 2]", "[3, 3, 3, 18446744073709551615, 3]"),
               StatusCode::kCorrupt, {"samples"});
  expect_error(replaced("\"num_layers\": 2", "\"num_layers\": 3"), StatusCode::kCorrupt,
               {"layers"});
  expect_error(replaced("\"format_version\": 1", "\"format_version\": 2"), StatusCode::kUnsupported,
               {"format_version"});
}

TEST(CalibrationStateText, RoundTripAndDrill) {
  CalibrationState state{.plan = 7,
                         .what = "toy",
                         .tokens = 7,
                         .num_experts = 5,
                         .experts_per_token = 2,
                         .layers = {},
                         .residual_checksum = 0};
  state.layers.push_back({"layer_00.bin.zst", 99, 0xabc, {3, 3, 3, 3, 2}});
  const std::string text = calibration_state_text(state);
  ASSERT_OK_AND_ASSIGN(const CalibrationState read, parse_calibration_state(text, "state"));
  EXPECT_EQ(calibration_state_text(read), text);
  test::drill_truncation(text.substr(0, text.size() - 1), [](std::string_view t) {
    return parse_calibration_state(t, "state").status();
  });
}

}  // namespace
}  // namespace moepack::calibration_test
