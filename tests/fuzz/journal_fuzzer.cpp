// The journal of an unfinished conversion: any bytes, and any lines with right checksums, are read
// without harm; what is then appended is found again.
#include <sys/mman.h>
#include <unistd.h>
#include <cstdint>
#include <string>
#include <string_view>

#include "convert/job/journal.h"
#include "formats/base/checksum.h"
#include "tests/fuzz/require.h"

namespace {

using moepack::test::require;

// An odd first byte: each line of the rest gets its checksum, so that it is taken for whole.
std::string journal_text(std::string_view input) {
  if (input.empty() || input[0] % 2 == 0) return std::string(input);
  std::string text;
  for (std::string_view rest = input.substr(1); !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    text += moepack::checksum_text(moepack::checksum(std::as_bytes(std::span(line)))) + " ";
    text += line;
    text += '\n';
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = journal_text({reinterpret_cast<const char*>(data), size});
  const int fd = ::memfd_create("journal", 0);
  require(fd >= 0);
  require(::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  {
    auto opened = moepack::ConversionJournal::open(fd, "fuzz");
    require(opened.is_ok());
    moepack::ConversionJournal journal = std::move(opened).value();
    if (journal.is_empty())
      require(journal.start(moepack::WorkKind::kConversion, 7, "fuzz").is_ok());
    require(journal.add_layer(3, {1, 2, 3}).is_ok());
    require(journal.add_prediction({4, 5}).is_ok());
    const auto again = moepack::ConversionJournal::open(fd, "fuzz");
    require(again.is_ok() && again.value().plan() == journal.plan());
    const auto* sums = again.value().layer_checksums(3);
    require(sums != nullptr && sums->size() == 3);
    const auto* predicting = again.value().prediction_checksums();
    require(predicting != nullptr && predicting->size() == 2);
    require(again.value().layers_done() == journal.layers_done());
  }
  ::close(fd);
  return 0;
}
