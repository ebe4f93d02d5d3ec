#include "convert/report/pack_report.h"

#include <system_error>

#include "convert/report/quality_ledger_reader.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/limits.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {
namespace {

// Follows the path of keys: report, one of the lists, their strings; the ledger reads itself.
class ReportVisitor final : public JsonVisitor {
 public:
  PackReport take() { return std::move(report_); }

  Status on_null() override {
    if (in_ledger_) ledger_.scalar_null();
    return value_read();
  }
  Status on_bool(bool /*value*/) override {
    if (in_ledger_) ledger_.scalar_bool();
    return value_read();
  }
  Status on_unsigned(std::uint64_t value) override {
    if (in_ledger_) ledger_.scalar_unsigned(value);
    return value_read();
  }
  Status on_number(double value) override {
    if (in_ledger_) ledger_.scalar_number(value);
    return value_read();
  }
  Status on_string(std::string& value) override {
    if (in_ledger_) {
      ledger_.scalar_string(value);
    } else if (depth_ == 3 && list_ != nullptr) {
      list_->push_back(std::move(value));
    } else if (depth_ == 2 && is_recipe_) {
      report_.recipe = parse_checksum(value).value_or(0);
    }
    return value_read();
  }
  Status on_key(std::string& key) override {
    if (in_ledger_) {
      ledger_.key(key);
      return Status::ok();
    }
    if (depth_ == 1) {
      in_report_ = key == "report";
      is_recipe_ = false;
    }
    if (depth_ == 2 && in_report_) {
      next_ = key == "skipped_tensors" ? &report_.skipped_tensors
              : key == "notes"         ? &report_.notes
                                       : nullptr;
      in_ledger_ = key == "ledger";
      is_recipe_ = key == "recipe";
    }
    return Status::ok();
  }
  Status begin_object() override { return enter(false); }
  Status end_object() override { return leave(); }
  Status begin_array() override { return enter(true); }
  Status end_array() override { return leave(); }

 private:
  Status enter(bool is_array) {
    ++depth_;
    if (in_ledger_) {
      ledger_.begin(is_array);
    } else if (is_array && depth_ == 3 && in_report_) {
      list_ = next_;
    }
    return Status::ok();
  }
  Status leave() {
    --depth_;
    if (in_ledger_) {
      ledger_.end();
      return value_read();
    }
    if (depth_ == 2) list_ = nullptr;
    if (depth_ == 1) next_ = nullptr;
    return Status::ok();
  }
  // Called after the last event of a value.
  Status value_read() {
    if (in_ledger_ && ledger_.is_done()) {
      report_.ledger = ledger_.take();
      in_ledger_ = false;
    }
    return Status::ok();
  }

  PackReport report_;
  int depth_ = 0;  // 1: in the document's object, 2: in the report, 3: in one of its lists
  bool in_report_ = false;
  bool is_recipe_ = false;                    // the value of report.recipe is next
  bool in_ledger_ = false;                    // the value of report.ledger is being read
  std::vector<std::string>* next_ = nullptr;  // of the key at depth 2
  std::vector<std::string>* list_ = nullptr;  // of the list that is open
  QualityLedgerReader ledger_;
};

}  // namespace

Result<PackReport> parse_pack_report(std::string_view text, const std::string& file) {
  ReportVisitor visitor;
  MOE_RETURN_IF_ERROR(visit_json(text, Where{.file = file}, visitor));
  return visitor.take();
}

Result<PackReport> read_pack_report(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kPackManifestName;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return PackReport{};
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxManifestBytes));
  return parse_pack_report(text, path.string());
}

}  // namespace moepack
