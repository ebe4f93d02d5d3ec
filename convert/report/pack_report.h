// The `report` of a layout.json: what the conversion had to say to people. The runtime ignores it,
// so anything may stand there; what is not understood is passed over.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/report/quality_ledger.h"
#include "formats/base/status.h"

namespace moepack {

struct PackReport {
  std::vector<std::string> skipped_tensors;
  std::vector<std::string> notes;
  // Tells apart what quantized records were made from and how: where recipes and layouts are equal,
  // records are. 0 means that it is not known.
  std::uint64_t recipe = 0;
  std::optional<QualityLedger> ledger;  // with those of its layers that are as they should be
};

// Takes the strings of the lists report.skipped_tensors and report.notes, and report.ledger, out of
// the text of a layout.json. kCorrupt when the text is no JSON. Builds no tree.
Result<PackReport> parse_pack_report(std::string_view text, const std::string& file);
// Reads the report of `directory`/layout.json; it is empty where there is no such file.
Result<PackReport> read_pack_report(const std::filesystem::path& directory);

}  // namespace moepack
