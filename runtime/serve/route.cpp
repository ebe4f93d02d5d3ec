#include "runtime/serve/route.h"

namespace moepack {

HttpReply json_reply(const OrderedJson& json, int status) {
  return {
      .status = status, .headers = {{"Content-Type", "application/json"}}, .body = dump_json(json)};
}

}  // namespace moepack
