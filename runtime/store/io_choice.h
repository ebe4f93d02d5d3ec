// Which way a pack's experts are read, and the reader that does so.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"
#include "runtime/store/disk_file.h"
#include "runtime/store/pack_files.h"
#include "runtime/store/record_reader.h"
#include "runtime/store/store_options.h"

namespace moepack {

struct IoRequest {
  const StoreOptions& options;
  const PackManifest& manifest;
  const PackFiles& files;
  // Memory that would be free beside the whole memory plan; nullopt: unknown, taken for none.
  std::optional<std::uint64_t> spare_bytes;
};

struct IoChoice {
  IoMode mode = IoMode::kBuffered;
  IoEngine engine = IoEngine::kThreads;
  std::string reason = {};  // of what was left to choose, for people; empty: nothing was
  bool is_plain = true;     // the pack fits into memory: nothing worth a line
  // What the slowest disk gave in this mode when it was measured, at random places; 0: not known.
  std::uint64_t disk_bytes_per_second = 0;
};

// The rule of kAuto. Buffered where all of the pack fits into the spare memory, because then the
// page cache serves the next run and the whole cache's misses. Otherwise direct, which costs the
// processor a fraction and leaves the memory to the expert cache; but buffered where records do not
// begin at multiples of kDirectUnit, the file system cannot read directly, or the disk is a quarter
// faster that way. `rates`: of the slowest disk; nullopt: nothing is known, as of small packs.
// Pure.
IoChoice automatic_mode(const IoRequest& request, bool can_be_direct,
                        const std::optional<DiskRates>& rates);

// Takes what the options ask for, and chooses what they leave open. Measures a disk for some tens
// of milliseconds where options.disk_file does not know it and the rates matter. kUnsupported for
// direct reads or an io_uring that was asked for and cannot be had, kInvalidArgument for flags that
// do not go together; errors of opening the files.
Result<IoChoice> choose_io(const IoRequest& request);

// The reader of the pack for ExpertStore::open_with: of several places through MirrorReader, and
// with options.on_notice through StallWatch. Errors of the readers' open.
Result<std::unique_ptr<RecordReader>> open_record_reader(const IoRequest& request,
                                                         const IoChoice& choice);

}  // namespace moepack
