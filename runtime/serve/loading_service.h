// Stands for the service while the model is being read: refuses everything.
#pragma once

#include <memory>
#include <string>

#include "runtime/service/answer_service.h"

namespace moepack {

// `model_id`: what the model will be called.
std::unique_ptr<AnswerService> make_loading_service(std::string model_id);

}  // namespace moepack
