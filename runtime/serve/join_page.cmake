# cmake -D SOURCES=DIR -D OUTPUT_HTML=FILE -D OUTPUT_HEADER=FILE -P join_page.cmake
# Joins the parts of the page into one HTML file without a foreign address, and writes a
# header with its bytes, its ETag and the hashes of its style and script for the Content-Security-Policy.
cmake_minimum_required(VERSION 3.20)

# Every script of the page, in one scope; what runs at once comes last.
set(scripts lib highlight markdown settings store transport chat thread experts sidebar composer main)

# Base64 of bytes given as hexadecimal digits.
function(base64_of_hex hex out)
  set(alphabet ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  math(EXPR missing "(3 - ${bytes} % 3) % 3")
  string(REPEAT "00" ${missing} zeros)
  string(APPEND hex "${zeros}")
  string(REGEX MATCHALL "......" triples "${hex}")
  set(text)
  foreach(triple ${triples})
    foreach(shift 18 12 6 0)
      math(EXPR at "(0x${triple} >> ${shift}) & 63")
      string(SUBSTRING ${alphabet} ${at} 1 letter)
      string(APPEND text ${letter})
    endforeach()
  endforeach()
  string(LENGTH "${text}" length)
  math(EXPR kept "${length} - ${missing}")
  string(SUBSTRING "${text}" 0 ${kept} text)
  string(REPEAT "=" ${missing} padding)
  set(${out} "${text}${padding}" PARENT_SCOPE)
endfunction()

set(script "(() => {\n\"use strict\";\n")
foreach(name ${scripts})
  file(READ ${SOURCES}/${name}.js part)
  string(APPEND script "\n${part}")
endforeach()
string(APPEND script "})();\n")
file(READ ${SOURCES}/page.css style)
file(READ ${SOURCES}/page.html html)
string(REPLACE "@PAGE_STYLE@" "${style}" html "${html}")
string(REPLACE "@PAGE_SCRIPT@" "${script}" html "${html}")
file(WRITE ${OUTPUT_HTML} "${html}")

string(SHA256 script_sum "${script}")
string(SHA256 style_sum "${style}")
string(SHA256 html_sum "${html}")
base64_of_hex(${script_sum} script_hash)
base64_of_hex(${style_sum} style_hash)
string(SUBSTRING ${html_sum} 0 20 tag)

file(READ ${OUTPUT_HTML} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT_HEADER}
  "// Made by join_page.cmake.\n"
  "#pragma once\n\nnamespace moepack {\n\n"
  "inline constexpr unsigned char kPageBytes[] = {\n${bytes}\n};\n"
  "inline constexpr char kPageTag[] = \"\\\"${tag}\\\"\";\n"
  "inline constexpr char kPageScriptHash[] = \"sha256-${script_hash}\";\n"
  "inline constexpr char kPageStyleHash[] = \"sha256-${style_hash}\";\n\n"
  "}  // namespace moepack\n")
