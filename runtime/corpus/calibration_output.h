// The directory that a calibration writes to: taken only when nothing of others is in it, continued
// where it was interrupted. formats/calibration/calibration_state.h says what stands in it until it
// is whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

#include "formats/base/status.h"
#include "formats/base/work_directory.h"
#include "formats/calibration/calibration.h"
#include "formats/calibration/calibration_state.h"

namespace moepack {

class CalibrationOutput {
 public:
  // Looks whether take() would succeed, without changing anything. Gives the number of finished
  // layers that it would continue from.
  static Result<std::size_t> check(const std::filesystem::path& path,
                                   const CalibrationState& wanted, bool restart);
  // Creates `path`, or takes an empty directory or an unfinished calibration with the same plan as
  // `wanted`, which has no layers yet. An unfinished calibration with another plan is
  // kInvalidArgument and is not touched, unless `restart` is set, which drops it. Finished layers
  // must read back as they were written. While the object lives no second calibration can take the
  // directory.
  static Result<CalibrationOutput> take(const std::filesystem::path& path,
                                        const CalibrationState& wanted, bool restart);

  CalibrationOutput(CalibrationOutput&& other) noexcept;
  CalibrationOutput& operator=(CalibrationOutput&&) = delete;
  CalibrationOutput(const CalibrationOutput&) = delete;
  CalibrationOutput& operator=(const CalibrationOutput&) = delete;
  // Without finish(): leaves an unfinished calibration with at least one finished layer for the
  // next run, unless discard() was called; else removes everything that was written and the
  // directories that take() created.
  ~CalibrationOutput();

  const std::filesystem::path& path() const { return directory_.path(); }
  const CalibrationState& state() const { return state_; }

  // The hidden states after the finished layers. kCorrupt when they are not what was written.
  Status read_residual(std::span<float> hidden) const;
  // Enters a layer whose file was committed. `hidden` holds the states after it, and is empty after
  // the last layer. What was entered is durable when the call returns.
  Status add_layer(CalibrationLayer layer, std::span<const float> hidden);
  // Writes the manifest, then removes everything that served to continue.
  Status finish(const CalibrationManifest& manifest);
  // Makes the destructor remove everything, unless layers of an earlier run are there.
  void discard() { discard_ = true; }

 private:
  explicit CalibrationOutput(WorkDirectory directory) : directory_(std::move(directory)) {}
  Status check_layers() const;
  void remove_all() const;

  WorkDirectory directory_;
  CalibrationState state_;
  std::size_t layers_found_ = 0;
  bool active_ = false;
  bool discard_ = false;
};

}  // namespace moepack
