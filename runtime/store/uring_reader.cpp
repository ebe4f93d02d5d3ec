#include "runtime/store/uring_reader.h"

#include <liburing.h>
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/store/record_file.h"

namespace moepack {
namespace {

// A read on its way; it moves from list to list and is never copied. The kernel gives its address
// back.
struct UringJob {
  RecordJob job = {};
  bool waits_in_kernel = false;  // the next piece is given to the kernel's threads at once
  std::list<UringJob>::iterator place = {};  // in the list where it is
};

Status ring_error(int error) {
  const bool is_limit = error == ENOMEM || error == EMFILE || error == ENFILE;
  return unsupported(Where{},
                     std::string("io_uring cannot be used here: ") + std::strerror(error) +
                         (error == EPERM ? " (the kernel or the container forbids it)" : ""),
                     is_limit ? "raise the limits (ulimit -l, -n), or give --io-engine threads"
                              : "give --io-engine threads or auto");
}

// A ring that ends with the object.
struct Ring {
  io_uring ring = {};
  bool is_open = false;

  int open(unsigned entries) {
    const int result = ::io_uring_queue_init(entries, &ring, 0);
    is_open = result == 0;
    return result;
  }
  ~Ring() {
    if (is_open) ::io_uring_queue_exit(&ring);
  }
};

}  // namespace

// Of the threads one leads: it waits for the kernel, and gives the lead away when it has bytes of
// which a checksum is wanted. Those that want none it announces itself.
struct UringReader::Impl {
  using Lock = std::unique_lock<std::mutex>;

  std::vector<RecordFile> files;
  std::uint32_t depth = 1;
  bool has_fixed_files = false;
  std::vector<std::thread> threads;

  std::mutex mutex;  // guards what follows, and the ring's side of submissions
  std::condition_variable lead;
  std::condition_variable completed;
  std::list<UringJob> waiting;  // for a place in the kernel
  std::list<UringJob> under_way;
  std::list<UringJob> done;
  bool has_leader = false;
  bool stopping = false;
  bool ended = false;

  Ring ring;  // last: it goes before the files do

  Status start(const UringOptions& options);
  void register_files();
  void serve();
  void lead_until_hash(Lock& lock, std::list<UringJob>& mine);
  bool take_completions(std::list<UringJob>& mine);
  bool take(UringJob& job, long result, std::list<UringJob>& mine);
  void fill();
  bool enter(UringJob& job);
  void push() noexcept;
  void announce(std::list<UringJob>& from, std::list<UringJob>::iterator job);
  void cancel_all();
};

Status UringReader::check_available() {
  Ring ring;
  const int result = ring.open(4);
  if (result < 0) return ring_error(-result);
  io_uring_probe* probe = ::io_uring_get_probe_ring(&ring.ring);
  const bool can_wait = (ring.ring.features & IORING_FEAT_EXT_ARG) != 0;
  const bool knows_read =
      probe != nullptr && ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
  ::io_uring_free_probe(probe);
  if (knows_read && can_wait) return Status::ok();
  return unsupported(Where{}, "io_uring of this kernel is too old",
                     "use Linux 5.11 or later, or give --io-engine threads");
}

Status UringReader::Impl::start(const UringOptions& options) {
  depth = std::clamp(options.depth, 1U, 4096U);
  const int result = ring.open(depth + 2);  // a cancellation and a wake beside the reads
  if (result < 0) return ring_error(-result);
  register_files();
  try {
    for (std::uint32_t i = 0; i < std::max(1U, options.threads); ++i) {
      threads.emplace_back([this] { serve(); });
    }
  } catch (const std::system_error& error) {
    return make_error(
        StatusCode::kIo, Where{},
        std::string("cannot start threads that take what io_uring reads: ") + error.what(),
        "raise the limit of threads (ulimit -u) or end other programs");
  }
  return Status::ok();
}

// So that the kernel need not look the files up for each read. Two places a file: through the page
// cache, and past it.
void UringReader::Impl::register_files() {
  std::vector<int> descriptors;
  for (const RecordFile& file : files) {
    descriptors.push_back(file.fd(false));
    descriptors.push_back(file.fd(true));  // -1: an empty place
  }
  has_fixed_files = ::io_uring_register_files(&ring.ring, descriptors.data(),
                                              static_cast<unsigned>(descriptors.size())) == 0;
}

void UringReader::Impl::serve() {
  Lock lock(mutex);
  std::list<UringJob> mine;
  while (true) {
    lead.wait(lock, [this] { return ended || !has_leader; });
    if (ended) return;
    has_leader = true;
    lead_until_hash(lock, mine);
    has_leader = false;
    lead.notify_all();
    if (mine.empty()) return;
    lock.unlock();
    hash_job(mine.front().job);
    lock.lock();
    announce(mine, mine.begin());
  }
}

// Gives a job whose bytes want a checksum; none when the reader ends.
void UringReader::Impl::lead_until_hash(Lock& lock, std::list<UringJob>& mine) {
  while (true) {
    if (take_completions(mine)) return;
    fill();
    if (stopping && under_way.empty()) {
      ended = true;
      return;
    }
    lock.unlock();
    // Not for ever: the kernel may have had no memory for a read, which fill() gives it again.
    __kernel_timespec second{.tv_sec = 1, .tv_nsec = 0};
    io_uring_cqe* cqe = nullptr;
    (void)::io_uring_wait_cqe_timeout(&ring.ring, &cqe, &second);
    lock.lock();
  }
}

// Takes what has come in, up to a job that wants a checksum: true, and `mine` has it.
bool UringReader::Impl::take_completions(std::list<UringJob>& mine) {
  io_uring_cqe* cqe = nullptr;
  while (::io_uring_peek_cqe(&ring.ring, &cqe) == 0) {
    auto* job = static_cast<UringJob*>(::io_uring_cqe_get_data(cqe));
    const long result = cqe->res;
    ::io_uring_cqe_seen(&ring.ring, cqe);
    if (job != nullptr && take(*job, result, mine)) return true;
  }
  return false;
}

bool UringReader::Impl::take(UringJob& job, long result, std::list<UringJob>& mine) {
  const RecordFile& file = files[job.job.read.file];
  if (stopping) {
    under_way.erase(job.place);
    return false;
  }
  // No memory for it without waiting, or its thread has ended.
  if (result == -EAGAIN || result == -ECANCELED) job.waits_in_kernel = true;
  if (!take_result(file, job.job, result)) {
    waiting.splice(waiting.begin(), under_way, job.place);
    return false;
  }
  if (!settle_job(file, job.job)) {
    announce(under_way, job.place);
    return false;
  }
  mine.splice(mine.begin(), under_way, job.place);
  return true;
}

void UringReader::Impl::announce(std::list<UringJob>& from, std::list<UringJob>::iterator job) {
  done.splice(done.end(), from, job);
  completed.notify_one();
}

// Gives the kernel as many of the waiting reads as it may have, with one system call.
void UringReader::Impl::fill() {
  while (!stopping && !waiting.empty() && under_way.size() < depth) {
    if (!enter(waiting.front())) break;
    under_way.splice(under_way.end(), waiting, waiting.begin());
  }
  push();
}

// False: the ring is full.
bool UringReader::Impl::enter(UringJob& job) {
  io_uring_sqe* sqe = ::io_uring_get_sqe(&ring.ring);
  if (sqe == nullptr) return false;
  const JobPiece piece = next_piece(job.job);
  const std::uint32_t index = job.job.read.file;
  const int fd = has_fixed_files ? static_cast<int>(2 * index + (piece.is_direct ? 1 : 0))
                                 : files[index].fd(piece.is_direct);
  ::io_uring_prep_read(sqe, fd, piece.out.data(), static_cast<unsigned>(piece.out.size()),
                       piece.offset);
  unsigned flags = has_fixed_files ? IOSQE_FIXED_FILE : 0U;
  if (job.waits_in_kernel) flags |= IOSQE_ASYNC;
  ::io_uring_sqe_set_flags(sqe, flags);
  ::io_uring_sqe_set_data(sqe, &job);
  return true;
}

// What the kernel does not take now stays in the ring and is tried again by the leader.
void UringReader::Impl::push() noexcept {
  while (::io_uring_sq_ready(&ring.ring) > 0) {
    const int result = ::io_uring_submit(&ring.ring);
    if (result != -EINTR && result <= 0) return;
  }
}

void UringReader::Impl::cancel_all() {
  if (!ring.is_open) return;
  io_uring_sqe* sqe = ::io_uring_get_sqe(&ring.ring);
  if (sqe != nullptr) {  // kernels before 5.19 refuse it, and the reads end by themselves
    ::io_uring_prep_cancel(sqe, nullptr, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
    ::io_uring_sqe_set_data(sqe, nullptr);
  }
  sqe = ::io_uring_get_sqe(&ring.ring);
  if (sqe != nullptr) {  // wakes the leader where nothing is under way
    ::io_uring_prep_nop(sqe);
    ::io_uring_sqe_set_data(sqe, nullptr);
  }
  push();
}

UringReader::UringReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

UringReader::~UringReader() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    impl_->waiting.clear();
    impl_->cancel_all();
  }
  for (std::thread& thread : impl_->threads) thread.join();
}

Result<std::unique_ptr<UringReader>> UringReader::open(
    const std::vector<std::filesystem::path>& files, const UringOptions& options) {
  MOE_RETURN_IF_ERROR(check_available());
  // Its destructor ends the threads that did start when a later one does not.
  std::unique_ptr<UringReader> reader(new UringReader(std::make_unique<Impl>()));
  MOE_ASSIGN_OR_RETURN(reader->impl_->files, open_record_files(files, options.mode));
  MOE_RETURN_IF_ERROR(reader->impl_->start(options));
  return reader;
}

Status UringReader::submit(std::span<const RecordRead> reads) {
  Impl& r = *impl_;
  for (const RecordRead& read : reads) {
    if (read.file < r.files.size()) continue;
    return invalid_argument("there is no layer file " + std::to_string(read.file));
  }
  std::list<UringJob> jobs;
  std::list<UringJob> failed;
  for (const RecordRead& read : reads) {
    jobs.push_back(UringJob{.job = {.read = read}});
    const auto job = std::prev(jobs.end());
    job->place = job;  // stays so from list to list
    if (begin_job(r.files[read.file], job->job)) continue;
    (void)settle_job(r.files[read.file], job->job);
    failed.splice(failed.end(), jobs, job);
  }
  {
    const std::lock_guard lock(r.mutex);
    r.waiting.splice(r.waiting.end(), jobs);
    r.done.splice(r.done.end(), failed);
    r.fill();
  }
  r.completed.notify_one();
  return Status::ok();
}

std::size_t UringReader::reap(std::span<RecordCompletion> out, bool wait) noexcept {
  std::list<UringJob>& done = impl_->done;
  std::unique_lock lock(impl_->mutex);
  if (wait) impl_->completed.wait(lock, [&] { return !done.empty(); });
  std::size_t count = 0;
  for (; count < out.size() && !done.empty(); ++count) {
    out[count] = std::move(done.front().job.completion);
    done.pop_front();
  }
  return count;
}

}  // namespace moepack
