// The mixture of experts of one layer: router, routed experts from the store, shared expert.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/model/activations.h"
#include "runtime/model/compute.h"
#include "runtime/model/expert_tasks.h"
#include "runtime/model/function_ref.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/router.h"
#include "runtime/store/expert_store.h"

namespace moepack {

// Writes the input of one token, [H].
using TokenInput = std::function<void(std::uint32_t token, float* out)>;

// What a layer's network reads, [tokens, H].
struct NetworkInputs {
  const float* routed = nullptr;  // of the routed experts
  const float* shared = nullptr;  // of the shared expert

  // One input of both.
  NetworkInputs(const float* u) : routed(u), shared(u) {}  // NOLINT(google-explicit-constructor)
  NetworkInputs(const float* of_routed, const float* of_shared)
      : routed(of_routed), shared(of_shared) {}
};

// A row of forward() that chose an expert whose record cannot be had.
struct FailedRow {
  std::size_t row = 0;
  Status status;  // file, expert, offset
};

// One thread at a time calls it, because all calls share one scratch; the work is shared among the
// threads of `compute`.
class MixtureOfExperts {
 public:
  // `scratch` outlives the object.
  MixtureOfExperts(const ModelConfig& config, Activations& scratch);

  // Computes router logits of u [tokens, H] and keeps them until the next call. The layer has
  // experts.
  std::span<const float> route_logits(Compute& compute, const MoeWeights& weights, const float* u,
                                      std::size_t tokens);

  // Chooses the experts of these rows by the last route_logits: K of each row, by row, then by
  // rank. Other rows use no expert. `rows` ascend and do not overlap. Valid until the next call.
  std::span<const Assignment> choose(Compute& compute, const Routing& routing,
                                     std::span<const RowRange> rows);
  // The same with cache-aware routing, which is on; `is_resident`: of every expert of the layer,
  // before the batch. Adds to agreement().
  std::span<const Assignment> choose_cached(Compute& compute, const Routing& routing,
                                            std::span<const RowRange> rows,
                                            const CacheAwareRouting& car,
                                            std::span<const std::uint8_t> is_resident);
  RoutingAgreement& agreement() { return agreement_; }
  // The same for choices that were made elsewhere, copied: by row, then slot, at most K of a row,
  // of different experts, each with a slot of its own below K.
  void take_choices(std::span<const Assignment> uses) { chosen_.assign(uses.begin(), uses.end()); }

  // out[t] += routed experts(u[t]) + shared expert(u[t]), with norms and the scale of the layer
  // where it has them (MoeWeights), with the experts of the last
  // choose(), for rows without any the shared expert alone. u, out: [tokens, H]. Each expert is
  // fetched once for all of its tokens; resident experts are computed while missing ones are read,
  // and those as they arrive. The sum over a token's experts is taken in the order of their rank,
  // whatever order they arrived in, the shared one last, and then added to out. An expert that
  // cannot be read is left out of its rows' sums, and failed_rows() names them; an error is the
  // store's refusal of the whole batch. u.shared may be scratch.mixed, which this overwrites.
  // `last_reads` is called when hardly any record is still to come.
  Status forward(Compute& compute, const MoeWeights& weights, std::uint32_t layer,
                 ExpertStore& store, const NetworkInputs& u, std::size_t tokens, float* out,
                 FunctionRef<void()> last_reads);
  // Of the last forward(): its experts, in the order in which it asked the store for them. Valid
  // until the next call.
  std::span<const ExpertGroup> groups() const { return groups_; }
  // Of the last forward(), by expert: the first entry of a row is the same in every run.
  std::vector<FailedRow> failed_rows() const;

  // The two parts of forward for a corpus that was routed elsewhere. Both use the same scratch.
  //
  // out[a.token] += a.weight * expert(u of a.token) for all of `sorted` (by expert, then token; any
  // number), in that order. `input` writes the H values of one token's u, from any thread. Each
  // expert is fetched once, however many tokens it has; `done` is told how many uses were computed.
  // An expert that cannot be read is the error of the call.
  Status add_routed(Compute& compute, const MoeWeights& weights, std::uint32_t layer,
                    ExpertStore& store, std::span<const Assignment> sorted, const TokenInput& input,
                    float* out, const std::function<void(std::size_t)>& done);
  // What forward() makes of `routed`, the sums over each token's routed experts, [tokens, H], or
  // null where the layer has none; with the shared expert of u, gated where it is, or the network
  // of a layer without experts. At most max_tokens; u may be scratch.mixed.
  void finish(Compute& compute, const MoeWeights& weights, const float* routed, const float* u,
              std::size_t tokens, float* out);

 private:
  using Group = ExpertGroup;
  struct FailedGroup {
    Group group;
    Status status;
  };

  // What is to become of the results.
  struct Sums {
    RowInputs u = {};         // [tokens, H]; without x: the inputs were all gathered
    RowInputs shared_u = {};  // of the shared expert
    std::size_t tokens = 0;
    float* out = nullptr;                // [tokens, H]; null: the caller makes the sums
    const MoeWeights* shared = nullptr;  // of a shared expert that is still to be computed
    bool has_shared = false;             // to be added
    bool has_shared_gate = false;
    bool is_done = false;     // they were added to `out`
    bool is_gathered = true;  // floats of u in the order of groups
    FunctionRef<void()> last_reads;
    const MoeWeights* weights = nullptr;
  };

  template <typename RouteRow>
  std::span<const Assignment> choose_rows(Compute& compute, std::span<const RowRange> rows,
                                          const RouteRow& route_row_of);
  void sort_by_expert(std::size_t tokens);
  void add_to_groups(std::uint32_t expert, std::size_t place);
  void gather(Compute& compute, const float* u);
  void gather_blocks(const RowInputs& u);
  static bool needs_floats(const Compute& compute, std::span<const ExpertHandle> handles);
  void leave_out_failed(std::span<const Group> groups, std::vector<ReadyExpert>& ready);
  Status run_groups(Compute& compute, ExpertStore& store, std::uint32_t layer, Sums& sums);
  Status run_batch(Compute& compute, ExpertStore& store, std::uint32_t layer,
                   std::span<const Group> groups, Sums& sums);
  void run_ready(Compute& compute, std::span<const Group> groups,
                 std::span<const ExpertHandle> handles, std::span<const ReadyExpert> ready,
                 Sums& sums);
  void add_group(const Compute& compute, const MoeWeights& weights, const Group& group,
                 const ExpertHandle& handle, const RowInputs& u);
  void add_shared_work(const MoeWeights& weights, const RowInputs& u, std::size_t tokens);
  void add_sum(const Compute& compute, const Sums& sums, std::size_t t, std::size_t begin,
               std::size_t end) const;
  void add_sums(Compute& compute, const Sums& sums) const;
  void sum_results(const Compute& compute, std::size_t t, float* sum) const;
  void join_row(Compute& compute, const MoeWeights& weights, std::size_t t, float* sum,
                float* out) const;
  // What the shared expert of row t is multiplied with.
  float shared_factor(bool has_gate, std::size_t t) const {
    return has_gate ? sigmoid(scratch_.shared_weight[t]) : 1.0F;
  }

  ModelConfig config_;
  Activations& scratch_;
  ExpertTasks tasks_;
  std::vector<Assignment> chosen_;        // by row, then rank
  std::vector<std::uint32_t> choosing_;   // the rows of the last choose()
  std::vector<float> probabilities_;      // [threads, experts]
  std::vector<Assignment> ranked_;        // [threads, M] of cache-aware routing
  std::vector<std::uint32_t> unchanged_;  // [rows of choosing_], of the last choose_cached()
  RoutingAgreement agreement_;
  std::vector<std::size_t> starts_;     // of the experts' uses while they are sorted
  std::vector<std::uint32_t> experts_;  // of the batch
  std::vector<FailedGroup> failed_;     // of the last run_groups(), by expert
  std::span<Group> groups_;             // those in use, at the start of scratch_.groups
  std::span<float> gathered_;           // of scratch_, like the next three
  std::span<float> gate_;
  std::span<float> up_;
  std::span<float> results_;
};

}  // namespace moepack
