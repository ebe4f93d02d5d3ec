#include "convert/cli/tokenizer_check.h"

#include "runtime/tokenizer/tokenizer.h"

namespace moepack::cli {

Status check_tokenizer(std::string_view json, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::parse(json, file));
  Status status = tokenizer.encode("Plain text, of 2 lines:\n it's here.").status();
  if (status.is_ok()) return status;
  return unsupported(Where{.file = file}, "cannot encode plain text: " + status.message());
}

}  // namespace moepack::cli
