// How fast each way of reading gives records of an expert's size from random places of a file, next
// to fio where it is installed. The page cache is emptied of the file before each way.
#include <sys/resource.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "runtime/store/disk_probe.h"
#include "runtime/store/record_cache.h"
#include "runtime/store/thread_reader.h"
#include "runtime/store/uring_reader.h"

namespace moepack {
namespace {

struct BenchFlags {
  std::filesystem::path file;
  std::uint64_t request = 1769472;
  std::uint32_t depth = 8;
  std::uint32_t threads = 8;
  double seconds = 1;
  bool has_checksums = false;
};

double processor_seconds() {
  rusage usage{};
  (void)::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Measured {
  double rate = 0;       // bytes a second
  double processor = 0;  // of one processor, while it ran
  std::uint64_t records = 0;
};

// Random places, each once: what was read is not read again.
class Places {
 public:
  Places(std::uint64_t file_bytes, std::uint64_t request) : step_(align_up(request, kDirectUnit)) {
    order_.resize(file_bytes / step_);
    std::iota(order_.begin(), order_.end(), std::uint64_t{0});
    std::shuffle(order_.begin(), order_.end(), std::mt19937_64(7));
  }
  std::size_t size() const { return order_.size(); }
  std::uint64_t next() { return order_[at_++ % order_.size()] * step_; }

 private:
  std::uint64_t step_;
  std::vector<std::uint64_t> order_;
  std::size_t at_ = 0;
};

// Reads for so many seconds: `depth` under way all the time, or (in_turns) as a token does, which
// asks for the next layer's when it has all of this one's.
Measured measure(RecordReader& reader, const BenchFlags& flags, Places places, bool in_turns) {
  std::vector<AlignedBuffer> memory;
  for (std::uint32_t i = 0; i < flags.depth; ++i) {
    auto buffer = AlignedBuffer::allocate(align_up(flags.request, kDirectUnit), kDirectUnit);
    if (!buffer.is_ok()) return {};
    std::fill(buffer.value().span().begin(), buffer.value().span().end(), std::byte{0});
    memory.push_back(std::move(buffer).value());
  }
  const auto read_into = [&](std::size_t i) {
    return RecordRead{.tag = i,
                      .offset = places.next(),
                      .out = memory[i].span().first(flags.request),
                      .wants_checksum = flags.has_checksums};
  };
  std::vector<RecordRead> reads;
  for (std::size_t i = 0; i < memory.size(); ++i) reads.push_back(read_into(i));
  Measured measured;
  const double processor = processor_seconds();
  const Clock::time_point start = Clock::now();
  std::array<RecordCompletion, 64> completions;
  std::size_t outstanding = 0;
  while (true) {
    const bool is_over =
        seconds_since(start) >= flags.seconds || measured.records + memory.size() >= places.size();
    if (is_over) reads.clear();
    if (!reads.empty() && !reader.submit(reads).is_ok()) break;
    outstanding += reads.size();
    reads.clear();
    if (outstanding == 0) break;
    do {
      const std::size_t count = reader.reap(completions, true);
      for (std::size_t i = 0; i < count; ++i) {
        if (!completions[i].status.is_ok()) {
          std::cerr << completions[i].status.message() << "\n";
          return {};
        }
        reads.push_back(read_into(completions[i].tag));
      }
      measured.records += count;
      outstanding -= count;
    } while (in_turns && outstanding > 0);
  }
  const double seconds = seconds_since(start);
  measured.rate = static_cast<double>(measured.records * flags.request) / seconds;
  measured.processor = (processor_seconds() - processor) / seconds;
  return measured;
}

struct Way {
  IoEngine engine;
  IoMode mode;
};
constexpr std::array<Way, 5> kWays{{{IoEngine::kThreads, IoMode::kBuffered},
                                    {IoEngine::kThreads, IoMode::kDirect},
                                    {IoEngine::kThreads, IoMode::kMmap},
                                    {IoEngine::kUring, IoMode::kBuffered},
                                    {IoEngine::kUring, IoMode::kDirect}}};

Result<std::unique_ptr<RecordReader>> open_way(const Way& way, const BenchFlags& flags) {
  std::unique_ptr<RecordReader> reader;
  if (way.engine == IoEngine::kUring) {
    MOE_ASSIGN_OR_RETURN(reader, UringReader::open({flags.file}, {.mode = way.mode}));
  } else {
    MOE_ASSIGN_OR_RETURN(reader, ThreadReader::open({flags.file}, flags.threads, way.mode));
  }
  return reader;
}

Status run_way(const Way& way, const BenchFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const File file, File::open(flags.file));
  const Places places(file.size(), flags.request);
  std::cout << std::left << std::setw(9) << io_engine_name(way.engine) << std::setw(10)
            << io_mode_name(way.mode) << std::right << std::fixed << std::setprecision(2);
  for (const bool in_turns : {false, true}) {
    file.drop_cache();
    MOE_ASSIGN_OR_RETURN(const auto reader, open_way(way, flags));
    const Measured measured = measure(*reader, flags, places, in_turns);
    std::cout << std::setw(9) << measured.rate / 1e9 << std::setw(9) << measured.processor;
  }
  std::cout << "\n" << std::flush;
  return Status::ok();
}

// Bytes a second of fio at the same requests; 0 without it.
double fio_rate(const BenchFlags& flags, const std::string& engine) {
  const std::string command =
      "fio --name=r --readonly --rw=randread --direct=1 --time_based --minimal --ioengine=" +
      engine + " --filename='" + flags.file.string() + "' --bs=" + std::to_string(flags.request) +
      " --blockalign=4096 --iodepth=" + std::to_string(flags.depth) +
      " --runtime=" + std::to_string(flags.seconds) + " 2>/dev/null";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return 0;
  std::array<char, 4096> line{};
  double rate = 0;
  while (std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr) {
    std::istringstream fields(line.data());
    std::string field;
    for (int i = 0; i < 7 && std::getline(fields, field, ';'); ++i) {
    }
    if (field.empty() == false) rate = 1024 * std::strtod(field.c_str(), nullptr);
  }
  (void)::pclose(pipe);
  return rate;
}

int run(const BenchFlags& flags) {
  std::cout << "GB/s (1e9 bytes) at requests of " << flags.request << " bytes, depth "
            << flags.depth << (flags.has_checksums ? ", with checksums" : "")
            << "; cpu: processors used\n"
            << "                   all the time          in turns\n"
            << "engine   mode           GB/s      cpu     GB/s      cpu\n";
  for (const Way& way : kWays) {
    const Status status = run_way(way, flags);
    if (!status.is_ok()) std::cout << "  " << status.message() << "\n";
  }
  for (const bool direct : {true, false}) {
    const auto rate = measure_disk_rate(flags.file, {.request_bytes = flags.request,
                                                     .depth = flags.depth,
                                                     .direct = direct,
                                                     .milliseconds = 1000 * flags.seconds});
    if (!rate.is_ok()) continue;
    std::cout << "measure_disk_rate " << (direct ? "direct  " : "buffered") << std::setw(8)
              << rate.value().bytes_per_second / 1e9 << " (cached share "
              << rate.value().cached_share << ")\n";
  }
  for (const char* engine : {"io_uring", "libaio"}) {
    const double rate = fio_rate(flags, engine);
    if (rate > 0) std::cout << "fio " << engine << " direct   " << rate / 1e9 << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace moepack

int main(int argc, char** argv) {
  moepack::BenchFlags flags;
  CLI::App app("Rates of reading records of an expert's size");
  app.add_option("FILE", flags.file, "A file much larger than what is read in a second")
      ->required();
  app.add_option("--request", flags.request, "Bytes of a read")->capture_default_str();
  app.add_option("--depth", flags.depth, "Reads under way")->capture_default_str();
  app.add_option("--threads", flags.threads, "Of the engine of threads")->capture_default_str();
  app.add_option("--seconds", flags.seconds, "For each way, twice")->capture_default_str();
  app.add_flag("--checksums", flags.has_checksums, "Take checksums, as first reads do");
  CLI11_PARSE(app, argc, argv);
  return moepack::run(flags);
}
