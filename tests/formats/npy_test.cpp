// .npy headers as NumPy 1 and 2 write them (bytes from NumPy's documentation of the format).
#include "formats/calibration/npy.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::npy_test {
namespace {

using Shape = std::vector<std::uint64_t>;

// Magic, version, length, the literal padded with spaces to a multiple of `align`, a newline.
std::string npy_head(const std::string& literal, int version = 1, std::size_t align = 64) {
  const std::size_t prefix = version == 1 ? 10 : 12;
  std::string padded = literal;
  while ((prefix + padded.size() + 1) % align != 0) padded += ' ';
  padded += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  for (std::size_t i = 0; i < prefix - 8; ++i) {
    bytes += static_cast<char>((padded.size() >> (8 * i)) & 0xff);
  }
  return bytes + padded;
}

Result<NpyArray> parse(std::string_view bytes) {
  return parse_npy_header(std::as_bytes(std::span(bytes)), bytes.size(), "a.npy");
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

const std::string kUsual = npy_head("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }") +
                           raw<float>({1, 2, 3, 4, 5, 6});

TEST(Npy, UsualFile) {
  // What numpy.save writes for this shape: 118 = 0x76 bytes of header, data at 128.
  EXPECT_EQ(kUsual.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  ASSERT_OK_AND_ASSIGN(const NpyArray array, parse(kUsual));
  EXPECT_EQ(array.dtype, DType::kF32);
  EXPECT_EQ(array.shape, (Shape{2, 3}));
  EXPECT_EQ(array.elements, 6U);
  EXPECT_EQ(array.data_offset, 128U);
  test::drill_truncation(kUsual, [](std::string_view text) { return parse(text).status(); });
}

TEST(Npy, OtherLegalHeaders) {
  const auto check = [](const std::string& literal, const Shape& shape, std::uint64_t data_bytes,
                        int version = 1, std::size_t align = 64) {
    const auto array = parse(npy_head(literal, version, align) + std::string(data_bytes, '\0'));
    ASSERT_TRUE(array.is_ok()) << literal << ": " << array.status().message();
    EXPECT_EQ(array.value().shape, shape) << literal;
  };
  check("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", {3}, 24);
  check("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", {}, 4);
  check("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 7), }", {0, 7}, 0);
  check("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }", {4, 2}, 32, 2);
  check("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }", {4, 2}, 32, 1, 16);
  check("{'shape':(1,2,3),\"fortran_order\":False,'descr':'<f4'}", {1, 2, 3}, 24);
  check("  { 'shape' : ( 1 , 2 , ) , 'fortran_order' : False , 'descr' : '<f4' , }  ", {1, 2}, 8);
}

TEST(Npy, RefusesWhatIsNotAHeader) {
  for (const char* literal :
       {"",
        "{",
        "{}",
        "None",
        "[]",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} # x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [2, 3]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 03)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3.0)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1+2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 18446744073709551619)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}",
        "{'descr': '<f4', 'fortran_order': false, 'shape': (2, 3)}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<f4\", 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3) 'x': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': __import__('os')}"}) {
    const std::string bytes = npy_head(literal) + std::string(24, '\0');
    test::expect_error(parse(bytes).status(), StatusCode::kCorrupt, {"a.npy", "offset "});
  }
  std::string no_newline = kUsual;
  no_newline[127] = ' ';
  test::expect_error(parse(no_newline).status(), StatusCode::kCorrupt, {"newline"});
}

TEST(Npy, RefusesOtherContents) {
  for (const char* type : {"<f2", ">f4", "=f4", "|u1", "<i8", "<c8", "f4", "<f16", ""}) {
    const std::string literal =
        "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (2, 3), }";
    test::expect_error(parse(npy_head(literal) + std::string(24, '\0')).status(),
                       StatusCode::kUnsupported, {"a.npy", "float32"});
  }
  test::expect_error(parse(npy_head("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }") +
                           std::string(24, '\0'))
                         .status(),
                     StatusCode::kUnsupported, {"Fortran"});
  for (int version : {0, 3, 255}) {
    std::string bytes = kUsual;
    bytes[6] = static_cast<char>(version);
    test::expect_error(parse(bytes).status(), StatusCode::kUnsupported, {"version"});
  }
  std::string minor = kUsual;
  minor[7] = 1;
  EXPECT_EQ(parse(minor).status().code(), StatusCode::kUnsupported);
  // Shapes whose product or bytes overflow, and one that does not fit the file.
  for (const char* shape : {"(4294967296, 4294967296)", "(4611686018427387904, 2)",
                            "(4611686018427387904,)", "(2, 4)", "(4294967296, 4294967296, 0, 7)"}) {
    const std::string literal =
        "{'descr': '<f4', 'fortran_order': False, 'shape': " + std::string(shape) + ", }";
    test::expect_error(parse(npy_head(literal) + std::string(24, '\0')).status(),
                       StatusCode::kCorrupt, {"a.npy"});
  }
  // A header of gigabytes is believed by nobody.
  std::string huge = npy_head("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 2);
  huge.replace(8, 4, "\xff\xff\xff\x7f");
  test::expect_error(parse(huge).status(), StatusCode::kCorrupt, {"offset 8"});
}

TEST(NpyFile, ReadsBothWidths) {
  const test::TempDir dir;
  const auto write = [&dir](const std::string& bytes) {
    std::ofstream(dir / "a.npy", std::ios::binary) << bytes;
    return dir / "a.npy";
  };
  ASSERT_OK_AND_ASSIGN(const NpyFile f4, NpyFile::open(write(kUsual)));
  std::vector<float> values(6);
  ASSERT_OK(f4.read(values));
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_FALSE(f4.read(std::span(values).first(5)).is_ok());
  std::vector<double> wide(300'001);  // more than a block
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = 1.0 / static_cast<double>(i + 1);
  wide[7] = 1e300;
  ASSERT_OK_AND_ASSIGN(
      const NpyFile f8,
      NpyFile::open(write(
          npy_head("{'descr': '<f8', 'fortran_order': False, 'shape': (300001,), }") + raw(wide))));
  values.resize(wide.size());
  ASSERT_OK(f8.read(values));
  EXPECT_EQ(values[200'000], static_cast<float>(1.0 / 200'001));
  EXPECT_TRUE(std::isinf(values[7]));
}

}  // namespace
}  // namespace moepack::npy_test
