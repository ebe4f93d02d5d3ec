#include "formats/base/space.h"

#include <string>

namespace moepack {

Status check_space(const std::filesystem::path& place, std::string_view what, std::uint64_t needed,
                   std::optional<std::uint64_t> free, std::string_view remedy) {
  if (!free.has_value() || needed <= *free) return Status::ok();
  const std::string name = place.string();
  return make_error(StatusCode::kIo, Where{.file = name},
                    std::string(what) + " needs " + std::to_string(needed) + " bytes, but only " +
                        std::to_string(*free) + " are free there",
                    remedy);
}

}  // namespace moepack
