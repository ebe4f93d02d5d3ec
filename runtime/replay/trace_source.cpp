#include "runtime/replay/trace_source.h"

#include <utility>

#include "formats/calibration/trace_file.h"

namespace moepack {
namespace {

class TraceFile final : public TraceSource {
 public:
  TraceFile(std::filesystem::path path, TraceReader reader)
      : path_(std::move(path)), reader_(std::move(reader)) {}

  const TraceModel& model() const override { return reader_.model(); }
  Result<const TracePass*> next() override { return reader_.next(); }
  Status rewind() override {
    MOE_ASSIGN_OR_RETURN(reader_, TraceReader::open(path_));
    return Status::ok();
  }
  std::uint64_t cut_bytes() const override { return reader_.cut_bytes(); }

 private:
  std::filesystem::path path_;
  TraceReader reader_;
};

}  // namespace

Result<std::unique_ptr<TraceSource>> open_trace(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(TraceReader reader, TraceReader::open(path));
  return std::unique_ptr<TraceSource>(std::make_unique<TraceFile>(path, std::move(reader)));
}

}  // namespace moepack
