// Families whose calls are a head with the name and the arguments as one JSON object.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/chat/lenient_json.h"
#include "runtime/chat/output_parser_core.h"

namespace moepack {

// The beginning of a call.
struct JsonCallHead {
  MarkerMatch match = MarkerMatch::kNo;
  std::size_t size = 0;            // bytes up to the object, or with `arguments` to the end
  std::string id = {}, name = {};  // the id may be empty
  std::optional<std::string> arguments = {};  // compact JSON, where they came before the name or
                                              // are not an object that can be passed on as it comes
};

class JsonCallParser : public OutputParserCore {
 public:
  using OutputParserCore::OutputParserCore;

 protected:
  // Looks at byte `at` of the text's rest; asks is_callable itself where that spares waiting.
  virtual JsonCallHead match_head(std::size_t at) = 0;

  CallStep begin_call(std::size_t at) override;
  CallStep continue_call() override;

  // What ends a call. Where the object is still open but for its brackets, they are closed.
  std::vector<OutputMarker> ends_;

 private:
  LenientJson json_;
};

}  // namespace moepack
