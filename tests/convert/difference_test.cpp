#include "convert/verify/difference.h"

#include <gtest/gtest.h>

namespace moepack::difference_test {
namespace {

Difference named(const std::string& file) {
  Difference difference;
  difference.file = file;
  difference.what = "differs";
  return difference;
}

// Whatever the order in which threads find them, the first by position are kept, and all counted.
TEST(DifferenceLog, KeepsTheFirstByPosition) {
  DifferenceLog log;
  for (std::uint64_t i = 40; i-- > 0;) log.add(i, named(std::to_string(i)));
  log.next_part();
  log.add(0, named("late"));
  EXPECT_EQ(log.count(), 41U);
  const std::vector<Difference> kept = log.kept();
  ASSERT_EQ(kept.size(), DifferenceLog::kKept);
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i].file, std::to_string(i));
}

TEST(Difference, TextIsOneLineWithWhatIsKnown) {
  Difference difference = named("a\nb");
  EXPECT_EQ(difference_text(difference), "a\\x0ab: differs");
  difference.layer = 3;
  difference.expert = 17;
  difference.tensor = "up_proj.weight";
  difference.offset = 4096;
  difference.expected = "1";
  difference.found = "2";
  EXPECT_EQ(difference_text(difference),
            "a\\x0ab: layer 3, expert 17, tensor up_proj.weight, offset 4096: differs: expected 1, "
            "found 2");
}

}  // namespace
}  // namespace moepack::difference_test
