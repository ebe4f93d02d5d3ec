// What other programs do not compute is refused by name before anything is written or guessed.
#include <gtest/gtest.h>

#include "convert/export/flashmoe/export_plan.h"
#include "convert/export/gguf/export_gguf_plan.h"
#include "convert/source/tensor_names.h"
#include "formats/flashmoe/flashmoe_resident.h"
#include "tests/support/status_matchers.h"

namespace moepack::family_support_test {
namespace {

ModelDir model_of(std::string_view type) {
  ModelDir model;
  model.path = "somewhere";
  model.config.model_type = type;
  return model;
}

TEST(FamilySupport, WhatFlashMoeDoesNotComputeIsNeitherReadNorWritten) {
  for (const Architecture* family : architectures()) {
    if (family->runs_in_flashmoe) continue;
    const std::string type(family->text_model_type);
    test::expect_error(check_engines_compute(model_of(type)), StatusCode::kUnsupported,
                       {"config.json", "flash-moe", type});
    test::expect_error(
        parse_flashmoe_resident("{}", "model_weights.json", model_of(type).config).status(),
        StatusCode::kUnsupported, {"model_weights.json", "flash-moe", type});
  }
  EXPECT_OK(check_engines_compute(model_of("qwen3_next")));
  EXPECT_FALSE(find_architecture("qwen3_moe")->runs_in_flashmoe);
}

TEST(FamilySupport, WithoutGgufNamesThereIsNoGgufFile) {
  for (const Architecture* family : architectures()) {
    if (family->exports_gguf) continue;
    const std::string type(family->text_model_type);
    GgufHead head;
    test::expect_error(plan_gguf(model_of(type), head).status(), StatusCode::kUnsupported,
                       {"config.json", type, exported_gguf_architectures()});
  }
  EXPECT_FALSE(find_architecture("qwen3_moe")->exports_gguf);
}

}  // namespace
}  // namespace moepack::family_support_test
