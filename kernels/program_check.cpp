// SPDX-License-Identifier: Apache-2.0
// Shapes of every op, one function each.
#include "kernels/program_check.hpp"

namespace troupe::kernels {

namespace {

/// Remembers the first thing that does not fit.
class program_checker {
 public:
  explicit program_checker(const step_program& program) : program_(program) {}

  const char* wrong() const noexcept { return wrong_; }
  bool unsupported() const noexcept { return unsupported_; }

  void operator()(const embed_op& o) {
    buffer_is(o.out, table_width(o.table), false);
    matrix_is(o.table, program_.vocab, width(o.out));
  }
  void operator()(const rms_norm_op& o) {
    buffer_is(o.in, o.weight.size(), outputs(o.out));
    buffer_is(o.out, o.weight.size(), outputs(o.out));
  }
  void operator()(const qkv_op& o) {
    const std::uint64_t q = heads_fit(o), kv = std::uint64_t{o.kv_heads} * o.head_dim, all = q + 2 * kv;
    need(o.weights.size() == 1 || o.weights.size() == 3, "needs one matrix or three");
    std::uint64_t channels = 0;
    for (const auto& weight : o.weights) {
      const std::uint64_t n = o.weights.size() == 1 ? all : channels == 0 ? q : kv;
      matrix_is(weight, n, width(o.in));
      channels += n;
    }
    buffer_is(o.in, width(o.in), false);
    vector_is(o.bias, all);
    vector_is(o.q_norm, o.head_dim);
    vector_is(o.k_norm, o.head_dim);
  }
  void operator()(const place_op& o) {
    const std::uint64_t q = heads_fit(o), kv = std::uint64_t{o.kv_heads} * o.head_dim;
    buffer_is(o.qkv, q + 2 * kv, false);
    vector_is(o.q_norm, q);
    vector_is(o.k_norm, kv);
  }
  void operator()(const attention_op& o) {
    need(o.kv_heads > 0 && o.heads % o.kv_heads == 0, "has heads that its KV heads do not divide");
    need(o.kv_heads == program_.kv.kv_heads && o.head_dim == program_.kv.head_dim, "has other KV heads");
    kv_layer_is(o);
    const std::uint32_t kept = o.group < program_.kv.windows.size() ? program_.kv.windows[o.group] : 0;
    need(kept == 0 || (o.window != 0 && o.window <= kept), "reads more than its layer group keeps");
    buffer_is(o.q, std::uint64_t{o.heads} * o.head_dim, false);
    buffer_is(o.out, std::uint64_t{o.heads} * o.head_dim, false);
    need(o.softcap >= 0, "has a negative soft cap");
  }
  void operator()(const linear_op& o) {
    const std::uint64_t n = o.weight == nullptr ? 0 : o.weight->shape.n;
    matrix_is(o.weight, n, width(o.in));
    need(std::uint64_t{o.first} + n <= width(o.out), "writes beyond its buffer");
    buffer_is(o.in, width(o.in), outputs(o.out));
    vector_is(o.bias, n);
  }
  void operator()(const linear_add_op& o) {
    matrix_is(o.weight, width(o.residual), width(o.in));
    buffer_is(o.in, width(o.in), outputs(o.residual));
    vector_is(o.bias, width(o.residual));
  }
  void operator()(const add_op& o) { buffer_is(o.in, width(o.residual), outputs(o.residual)); }
  void operator()(const gate_up_op& o) {
    matrix_is(o.gate, width(o.out), width(o.in));
    matrix_is(o.up, width(o.out), width(o.in));
    buffer_is(o.in, width(o.in), outputs(o.out));
    vector_is(o.gate_bias, width(o.out));
    vector_is(o.up_bias, width(o.out));
  }
  void operator()(const moe_op& o) {
    const std::uint64_t hidden = width(o.in);
    need(o.chosen >= 1 && o.chosen <= o.experts, "chooses more experts than there are, or none");
    need(o.intermediate >= 1, "has experts of no width");
    if (wrong_ != nullptr) return;
    matrix_is(o.router, o.experts, hidden);
    experts_are(o.gate, o.experts, o.intermediate, hidden);
    experts_are(o.up, o.experts, o.intermediate, hidden);
    experts_are(o.down, o.experts, hidden, o.intermediate);
    buffer_is(o.in, hidden, false);
    buffer_is(o.residual, hidden, false);
    buffer_is(o.scores, o.experts, false);
    buffer_is(o.gathered, o.chosen * hidden, false);
    buffer_is(o.gated, std::uint64_t{o.chosen} * o.intermediate, false);
  }
  void operator()(const select_rows_op& o) {
    buffer_is(o.in, width(o.out), false);
    buffer_is(o.out, width(o.out), true);
  }
  void operator()(const head_op& o) {
    matrix_is(o.weight, program_.vocab, width(o.in));
    buffer_is(o.in, width(o.in), true);
    buffer_is(o.logits, program_.vocab, true);
    need(o.scale > 0 && o.softcap >= 0, "has a scale or soft cap below zero");
  }
  void operator()(const sample_op& o) { buffer_is(o.logits, program_.vocab, true); }

 private:
  void need(bool fine, const char* what) {
    if (!fine && wrong_ == nullptr) wrong_ = what;
  }
  std::uint64_t width(buffer_id id) const noexcept {
    return id < program_.buffers.size() ? program_.buffers[id].width : 0;
  }
  bool outputs(buffer_id id) const noexcept {
    return id < program_.buffers.size() && program_.buffers[id].output_rows;
  }
  static std::uint64_t table_width(const std::shared_ptr<const packed_weight>& weight) noexcept {
    return weight == nullptr ? 0 : weight->shape.k;
  }
  void buffer_is(buffer_id id, std::uint64_t elements, bool output_rows) {
    need(id < program_.buffers.size(), "names a buffer that is not there");
    need(
        width(id) == elements && elements > 0 && outputs(id) == output_rows, "has a buffer of another shape");
  }
  void matrix_is(const std::shared_ptr<const packed_weight>& weight, std::uint64_t n, std::uint64_t k) {
    need(weight != nullptr && weight->scheme != nullptr, "lacks a matrix");
    need(
        wrong_ != nullptr || (weight->shape.n == n && weight->shape.k == k && n > 0 && k > 0),
        "has a matrix of another shape");
  }
  void vector_is(const std::vector<float>& vector, std::uint64_t elements) {
    need(vector.empty() || vector.size() == elements, "has a bias or norm of another length");
  }
  void experts_are(const moe_op::matrices& list, std::uint64_t experts, std::uint64_t n, std::uint64_t k) {
    need(!list.empty() && experts % list.size() == 0, "has matrices that do not divide its experts");
    if (wrong_ != nullptr) return;
    const std::uint64_t each = experts / list.size();
    for (const auto& weight : list) matrix_is(weight, each * n, k);
    if (wrong_ != nullptr || each == 1 || n % TROUPE_PANEL_CHANNELS == 0) return;
    unsupported_ = true;
    need(false, "has experts in one matrix whose channels do not start at panels");
  }
  template<class Op>
  void kv_layer_is(const Op& o) {
    need(
        o.layer < program_.kv.layers && o.group < program_.kv.windows.size(),
        "names a KV layer that is not there");
  }
  /// The checks that qkv_op and place_op share; gives heads * head_dim.
  template<class Op>
  std::uint64_t heads_fit(const Op& o) {
    const std::uint64_t q = std::uint64_t{o.heads} * o.head_dim;
    need(o.kv_heads == program_.kv.kv_heads && o.head_dim == program_.kv.head_dim, "has other KV heads");
    kv_layer_is(o);
    buffer_is(o.q, q, false);
    if (o.rotary == nullptr) return q;
    const rope& turn = *o.rotary;
    need(turn.dims % 2 == 0 && turn.dims <= o.head_dim, "rotates more than a head");
    need(turn.inverse_frequency.size() == turn.dims / 2, "has a rotation of another length");
    vector_is(turn.long_inverse_frequency, turn.dims / 2);
    return q;
  }

  const step_program& program_;
  const char* wrong_ = nullptr;
  bool unsupported_ = false;
};

} // namespace

result<void> check_program(const step_program& program) {
  program_checker checker(program);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    std::visit([&](const auto& o) { checker(o); }, program.ops[i]);
    if (checker.wrong() != nullptr)
      return error{
          checker.unsupported() ? errc::unsupported : errc::internal,
          "program: op " + std::to_string(i) + ' ' + checker.wrong(),
          {},
          0};
  }
  return {};
}

} // namespace troupe::kernels
