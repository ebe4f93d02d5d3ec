#include "runtime/serve/loading_service.h"

#include <utility>

#include "runtime/serve/api_error.h"

namespace moepack {
namespace {

Refusal loading_refusal() {
  return {.kind = Refusal::Kind::kEnding,
          .message = "Loading model",
          .parameter = {},
          .retry_seconds = kRetrySeconds};
}

Status loading_status() { return {StatusCode::kUnsupported, "the model is being loaded"}; }

class LoadingService final : public AnswerService {
 public:
  explicit LoadingService(std::string model_id) { model_.id = std::move(model_id); }

  Started start(const ChatRequest& /*request*/, AnswerSink /*sink*/) override {
    return loading_refusal();
  }
  Started start(const CompletionRequest& /*request*/, AnswerSink /*sink*/) override {
    return loading_refusal();
  }
  std::variant<RenderedPrompt, Refusal> render(const ChatRequest& /*request*/) const override {
    return loading_refusal();
  }
  std::variant<std::vector<std::int32_t>, Refusal> tokenize(
      std::string_view /*text*/, const TextReading& /*reading*/) const override {
    return loading_refusal();
  }
  std::string token_bytes(std::int32_t /*id*/) const override { return {}; }
  std::string detokenize(const std::vector<std::int32_t>& /*ids*/) const override { return {}; }
  ServiceModel model() const override { return model_; }
  ServiceStats stats() const override { return {}; }
  std::vector<SlotState> slots() const override { return {}; }
  ExpertMap expert_map() const override { return {}; }
  Result<std::uint64_t> save_slot(std::uint32_t /*slot*/, const std::string& /*name*/) override {
    return loading_status();
  }
  Result<std::uint64_t> restore_slot(std::uint32_t /*slot*/, const std::string& /*name*/) override {
    return loading_status();
  }
  Result<std::uint64_t> erase_slot(std::uint32_t /*slot*/) override { return loading_status(); }

 private:
  ServiceModel model_;
};

}  // namespace

std::unique_ptr<AnswerService> make_loading_service(std::string model_id) {
  return std::make_unique<LoadingService>(std::move(model_id));
}

}  // namespace moepack
