#include "runtime/model/model_selection.h"

#include <utility>

namespace moepack {

Result<SelectedModel> open_selected_model(const ModelSelection& selection,
                                          std::span<const std::filesystem::path> further) {
  if (selection.threads == 0) return invalid_argument("threads must be at least 1");
  SelectedModel selected;
  MOE_ASSIGN_OR_RETURN(selected.kernels, backend_kernels(selection.backend, selection.cpu_level));
  MOE_ASSIGN_OR_RETURN(
      selected.dir, open_model_dir(selection.model, selection.pack, selection.overlays, further));
  return selected;
}

}  // namespace moepack
