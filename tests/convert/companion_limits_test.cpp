// The small files beside the weights have one limit each, whoever reads them.
#include <gtest/gtest.h>
#include <filesystem>
#include <fstream>

#include "convert/export/gguf/export_gguf.h"
#include "convert/pack/convert.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace moepack::companion_limits_test {
namespace {

// The file of the checkpoint as it was, and behind it `bytes` of what changes nothing.
void pad(const std::filesystem::path& file, std::uint64_t bytes) {
  std::ofstream(file, std::ios::app | std::ios::binary) << std::string(bytes, ' ');
}

// What convert takes over can be exported again; what it refuses, the exporter refuses.
TEST(CompanionLimits, TheExporterReadsWhatConvertCopies) {
  for (const char* name : {kTokenizerConfigName, kChatTemplateName}) {
    const test::TempDir dir;
    test::TinyModelOptions tiny;
    tiny.linear_value_dim = tiny.linear_key_dim;  // llama.cpp knows one size for both
    test::write_tiny_model(dir / "checkpoint", tiny);
    pad(dir / "checkpoint" / name, companion_max_bytes(name) / 3);
    ConvertOptions options;
    options.source = dir / "checkpoint";
    options.output = dir / "model";
    options.threads = 2;
    ASSERT_OK(convert_checkpoint(options, {}).status());
    GgufExportOptions wanted;
    wanted.model = options.output;
    wanted.output = dir / "whole.gguf";
    wanted.threads = 2;
    EXPECT_OK(export_gguf(wanted, {}).status());
    options.source = wanted.output;
    options.output = dir / "again";
    EXPECT_OK(convert_checkpoint(options, {}).status());
    options.output = dir / "model";

    // A hole in the file, which takes no room on the disk.
    std::filesystem::resize_file(options.output / name, companion_max_bytes(name) + 1);
    wanted.output = dir / "second.gguf";
    test::expect_error(export_gguf(wanted, {}).status(), StatusCode::kCorrupt,
                       {name, std::to_string(companion_max_bytes(name))});
  }
}

}  // namespace
}  // namespace moepack::companion_limits_test
