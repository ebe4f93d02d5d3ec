// Takes a quality ledger out of the events of a JSON document. Bytes from outside: a layer that is
// not as docs/pack-format.md says is passed over, and nothing is an error.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/report/quality_ledger.h"

namespace moepack {

// Give it every event from the begin to the end of the value of `ledger`, whatever that is. It
// holds what it has understood, which is less than the text. Used by one thread.
class QualityLedgerReader {
 public:
  void scalar_null();
  void scalar_bool() { refuse(); }
  void scalar_unsigned(std::uint64_t value);
  void scalar_number(double value);
  void scalar_string(std::string& value);
  void begin(bool is_array);
  void key(const std::string& key);
  void end();
  // True once the value is complete.
  bool is_done() const { return done_; }
  // The ledger; nullopt when it is none.
  std::optional<QualityLedger> take();

 private:
  struct Open {
    bool is_array = false;
    std::string key;  // of the member being read, of an object
  };
  bool in_layer() const;
  bool in_column() const { return column_depth_ != 0 && open_.size() == column_depth_; }
  bool is_open(std::initializer_list<std::string_view> path) const;
  void open_column();
  void finish_layer();
  // Takes note of something that has no place where it stands, which is harmless unless that is in
  // a column.
  void refuse() {
    if (column_depth_ != 0) layer_is_good_ = false;
    done_ = open_.empty();
  }

  QualityLedger ledger_;
  bool has_error_ = false;
  bool has_methods_ = false;
  bool done_ = false;

  std::vector<Open> open_;  // containers around the next event, the ledger itself first
  LayerQuality layer_;      // that is being read
  bool has_layer_number_ = false;
  bool layer_is_good_ = true;

  // The column that is open, one of them or none; its elements stand at this depth.
  std::size_t column_depth_ = 0;
  std::vector<std::uint64_t>* samples_ = nullptr;
  std::vector<std::uint8_t>* method_ = nullptr;
  std::vector<float>* errors_ = nullptr;
  std::vector<std::uint32_t>* experts_ = nullptr;
};

}  // namespace moepack
