#include "quant/linear_algebra.h"

#include <cblas.h>
#include <sys/mman.h>

#include <cassert>
#include <optional>
#include <string>

#include "formats/base/bytes.h"
#include "quant/blas_kernels.h"

extern "C" {
// While OpenBLAS is being loaded, before any code of the program runs, it asks this function of its
// own what OPENBLAS_NUM_THREADS says, and starts its threads at once. A function of that name in
// the program takes its place. Source: driver/others/openblas_env.c and memory.c of OpenBLAS.
int openblas_num_threads_env();
int openblas_num_threads_env() { return 1; }

// LAPACK, as OpenBLAS implements it. Source: LAPACK users' guide, routines SPOTRF and STRTRI.
void spotrf_(const char* uplo, const int* n, float* a, const int* lda, int* info);
void strtri_(const char* uplo, const char* diag, const int* n, float* a, const int* lda, int* info);
}

namespace moepack {
namespace {

// The buffer of a thread that is in a call: 128 MiB on x86-64 (BUFFER_SIZE in OpenBLAS 0.3.21,
// measured).
constexpr std::uint64_t kBlasBufferBytes = std::uint64_t{128} << 20;

// Ends the threads of an OpenBLAS that was built so that it does not ask
// openblas_num_threads_env().
void end_other_threads() {
  static const bool done = [] {
    if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

[[maybe_unused]] const bool kChoseKernels = choose_blas_kernels();

int size_of(Eigen::Index n) { return static_cast<int>(n); }

// out += factor a b^T.
void add_scaled_product(float factor, const Eigen::Ref<const Matrix>& a,
                        const Eigen::Ref<const Matrix>& b, Eigen::Ref<Matrix> out) {
  end_other_threads();
  assert(out.rows() == a.rows() && out.cols() == b.rows() && a.cols() == b.cols());
  cblas_sgemm(CblasColMajor, CblasNoTrans, CblasTrans, size_of(a.rows()), size_of(b.rows()),
              size_of(a.cols()), factor, a.data(), size_of(a.outerStride()), b.data(),
              size_of(b.outerStride()), 1.0F, out.data(), size_of(out.outerStride()));
}

}  // namespace

Status check_blas_memory(std::size_t threads, std::uint64_t other_bytes) {
  const std::optional<std::uint64_t> buffers = checked_mul(threads, kBlasBufferBytes);
  const auto wanted = buffers.has_value() ? checked_add(*buffers, other_bytes) : std::nullopt;
  void* const probe =
      wanted.has_value()
          ? ::mmap(nullptr, *wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
          : MAP_FAILED;
  if (probe != MAP_FAILED) {
    ::munmap(probe, *wanted);
    return Status::ok();
  }
  return make_error(StatusCode::kIo, Where{},
                    "out of memory: " + std::to_string(threads) +
                        " threads need more address space than this process may have",
                    "lower -t, or raise the limit (ulimit -v)");
}

void add_gram(const Eigen::Ref<const Matrix>& x, Matrix& upper) {
  end_other_threads();
  assert(upper.rows() == x.rows() && upper.cols() == x.rows());
  cblas_ssyrk(CblasColMajor, CblasUpper, CblasNoTrans, size_of(x.rows()), size_of(x.cols()), 1.0F,
              x.data(), size_of(x.outerStride()), 1.0F, upper.data(), size_of(upper.rows()));
}

void mirror_upper(Matrix& square) {
  constexpr Eigen::Index kBlock = 64;
  const Eigen::Index n = square.rows();
  for (Eigen::Index j = 0; j < n; j += kBlock) {
    const Eigen::Index columns = std::min(kBlock, n - j);
    for (Eigen::Index i = 0; i < j; i += kBlock) {
      square.block(j, i, columns, kBlock) = square.block(i, j, kBlock, columns).transpose();
    }
    for (Eigen::Index k = j; k < j + columns; ++k) {
      for (Eigen::Index i = j; i < k; ++i) square(k, i) = square(i, k);
    }
  }
}

bool invert_cholesky(Matrix& a) {
  end_other_threads();
  const int n = size_of(a.rows());
  int info = 0;
  spotrf_("U", &n, a.data(), &n, &info);
  if (info != 0) return false;
  strtri_("U", "N", &n, a.data(), &n, &info);
  // Both routines let a matrix pass that is not finite.
  return info == 0 && a.diagonal().allFinite();
}

void multiply(const Eigen::Ref<const Matrix>& a, const Eigen::Ref<const Matrix>& b,
              Eigen::Ref<Matrix> out) {
  end_other_threads();
  assert(out.rows() == a.rows() && out.cols() == b.cols() && a.cols() == b.rows());
  cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, size_of(a.rows()), size_of(b.cols()),
              size_of(a.cols()), 1.0F, a.data(), size_of(a.outerStride()), b.data(),
              size_of(b.outerStride()), 0.0F, out.data(), size_of(out.outerStride()));
}

void add_product(const Eigen::Ref<const Matrix>& a, const Eigen::Ref<const Matrix>& b,
                 Eigen::Ref<Matrix> out) {
  add_scaled_product(1.0F, a, b, out);
}

void subtract_product(const Eigen::Ref<const Matrix>& a, const Eigen::Ref<const Matrix>& b,
                      Eigen::Ref<Matrix> out) {
  add_scaled_product(-1.0F, a, b, out);
}

}  // namespace moepack
