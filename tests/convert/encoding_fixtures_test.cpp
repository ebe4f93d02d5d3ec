// Every published encoding, in small checkpoints that their own programs wrote: each decoded tensor
// against the digest of the float32 values that the program named in golden.json decoded.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/config/companion_files.h"
#include "formats/config/model_config.h"
#include "tests/convert/encoding_support.h"
#include "tests/support/sha256.h"
#include "tests/support/test_models.h"

namespace moepack::encoding_fixtures_test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Result<ParsedConfig> quantization_of(const fs::path& folder) {
  const fs::path config = folder / kConfigName;
  MOE_ASSIGN_OR_RETURN(ParsedConfig parsed, parse_quantization(text_of(config), config.string()));
  const fs::path beside = folder / kQuantizationName;
  if (!fs::exists(beside)) return parsed;
  MOE_RETURN_IF_ERROR(add_quantization_file(text_of(beside), beside.string(), parsed));
  return parsed;
}

std::uint32_t bits_of_mlx(const ParsedConfig& parsed, const std::string& module) {
  if (!parsed.quantization.has_value()) return 0;
  const auto format = parsed.quantization->format_of(module);
  if (!format.has_value()) return 0;
  if (is_affine(*format)) return qformat_info(format->id).bits;
  return format->id == QFormatId::kMxfp8 ? 8 : 4;
}

// The logical shape, which the families' tables would give.
std::vector<std::uint64_t> shape_of(const std::string& module, const SourceTensor& codes,
                                    const ParsedConfig& parsed) {
  std::vector<std::uint64_t> shape(codes.shape().begin(), codes.shape().end());
  if (is_named(codes, ".qweight")) {
    return parsed.source_quantization.method == "awq"
               ? std::vector<std::uint64_t>{shape[1] * 8, shape[0]}
               : std::vector<std::uint64_t>{shape[1], shape[0] * 8};
  }
  if (is_named(codes, "_blocks")) return {shape[0], shape[1], shape[2] * 32};
  if (codes.dtype() == DType::kI32) {
    shape.back() *= 8;  // all of them have four bits
  } else if (codes.dtype() == DType::kU8) {
    shape.back() *= 2;
  } else if (codes.dtype() == DType::kU32) {
    shape.back() = shape.back() * 32 / bits_of_mlx(parsed, module);
  }
  return shape;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// The name of matrix `index` in transformers.
std::string golden_name(const std::string& module, std::uint64_t index) {
  const std::string name = replaced(module, "model.language_model.", "model.");
  return replaced(name, ".switch_mlp.", ".experts." + std::to_string(index) + ".") + ".weight";
}

std::string digest(const std::vector<float>& values) {
  return test::sha256_hex(std::as_bytes(std::span(values))).substr(0, 16);
}

class FixtureWalk {
 public:
  explicit FixtureWalk(const fs::path& folder)
      : folder_(folder),
        golden_(nlohmann::json::parse(text_of(folder / "golden.json"))["decoded_sha256"]) {}

  // The number of tensors that were compared.
  std::size_t run() {
    const auto parsed = quantization_of(folder_);
    EXPECT_OK(parsed);
    const auto checkpoint = Checkpoint::open_tensors(folder_);
    EXPECT_OK(checkpoint);
    if (!parsed.is_ok() || !checkpoint.is_ok()) return 0;
    for (const auto& [name, module] : test::modules_of(checkpoint.value())) {
      if (name.starts_with("mtp.") || name.starts_with("model.visual.")) continue;
      if (!module.codes() || module.codes().format().has_value()) continue;
      compare(name, module, parsed.value());
    }
    for (const auto& [name, hash] : golden_.items()) {
      EXPECT_TRUE(seen_.contains(name)) << name << " was not read";
    }
    return seen_.size();
  }

 private:
  void compare(const std::string& name, const SourceModule& module, const ParsedConfig& parsed) {
    const std::vector<std::uint64_t> shape = shape_of(name, module.codes(), parsed);
    const auto form = recognise_module(module, shape, parsed.source_quantization);
    ASSERT_OK(form);
    if (is_named(module.codes(), "_blocks")) return compare_transposed(name, form.value());
    for (std::uint64_t e = 0; e < form.value().matrices; ++e) {
      const auto values = decoded(form.value(), e);
      expect(golden_name(name, e), values);
    }
  }

  // gpt-oss: all experts in one, inputs first.
  void compare_transposed(const std::string& name, const ModuleForm& form) {
    std::vector<float> all;
    for (std::uint64_t e = 0; e < form.matrices; ++e) {
      const std::vector<float> values = decoded(form, e);
      for (std::uint64_t c = 0; c < form.cols; ++c) {
        for (std::uint64_t r = 0; r < form.rows; ++r) all.push_back(values[r * form.cols + c]);
      }
    }
    expect(name, all);
  }

  // Decoded at once; and the same numbers through the format that keeps the codes, if there is one.
  static std::vector<float> decoded(const ModuleForm& form, std::uint64_t index) {
    auto values = test::weights_of_form(test::decoded_form(form), index);
    EXPECT_OK(values);
    if (!values.is_ok()) return {};
    if (form.format.id != QFormatId::kF32) {
      const auto kept = test::weights_of_form(form, index);
      EXPECT_OK(kept);
      const bool is_same = kept.is_ok() && kept.value() == values.value();
      EXPECT_TRUE(is_same) << to_string(form.format);
    }
    return std::move(values).value();
  }

  void expect(const std::string& name, const std::vector<float>& values) {
    ASSERT_TRUE(golden_.contains(name)) << name;
    EXPECT_EQ(digest(values), golden_[name].get<std::string>()) << name;
    seen_.insert(name);
  }

  fs::path folder_;
  nlohmann::json golden_;
  std::set<std::string> seen_;
};

TEST(EncodingFixtures, EveryTensorIsWhatItsOracleDecoded) {
  MOE_REQUIRE_MODEL(root, "encodings");
  std::set<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !name.starts_with("gguf-")) folders.insert(entry.path());
  }
  EXPECT_GE(folders.size(), 21U);
  std::size_t all = 0;
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(folder.filename().string());
    const std::size_t count = FixtureWalk(folder).run();
    EXPECT_GT(count, 0U);
    std::printf("%-26s %zu tensors\n", folder.filename().string().c_str(), count);
    all += count;
  }
  std::printf("%zu tensors of %zu folders\n", all, folders.size());
}

// The digest itself, on the examples of FIPS 180-4.
TEST(EncodingFixtures, DigestIsSha256) {
  const auto hex = [](std::string_view text) {
    return test::sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
  };
  EXPECT_EQ(hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

}  // namespace
}  // namespace moepack::encoding_fixtures_test
