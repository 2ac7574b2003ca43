// SPDX-License-Identifier: Apache-2.0
// A program whose parts do not fit is refused, and what does not fit is named.
#include "kernels/program_check.hpp"
#include "tests/kernels/feature_model.hpp"
#include "tests/kernels/random_model.hpp"

#include <boost/test/unit_test.hpp>

#include <functional>
#include <future>
#include <string>

using namespace troupe;
using namespace troupe::kernels;
using namespace troupe::kernels::test;

namespace {

/// What check_program says of the program after `change` of its first op of this type.
template<class Op>
std::string after(step_program program, const std::function<void(Op&)>& change) {
  for (op& any : program.ops)
    if (auto* found = std::get_if<Op>(&any)) {
      change(*found);
      const auto checked = check_program(program);
      return checked ? "fits" : checked.error().message;
    }
  return "no such op";
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

step_program program_of(const std::function<void(feature_options&)>& change) {
  feature_options options;
  change(options);
  return *feature_model(options).program();
}

} // namespace

BOOST_AUTO_TEST_SUITE(program_check)

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_named) {
  const auto llama = program_of([](feature_options& o) { o.qkv_bias = true; });
  BOOST_TEST(check_program(llama).has_value());
  BOOST_TEST(has(after<qkv_op>(llama, [](auto& o) { o.bias.pop_back(); }), "op 2 has a bias"));
  BOOST_TEST(has(after<qkv_op>(llama, [](auto& o) { o.layer = 9; }), "KV layer"));
  BOOST_TEST(has(after<qkv_op>(llama, [](auto& o) { o.weights[0] = nullptr; }), "lacks a matrix"));
  BOOST_TEST(has(after<qkv_op>(llama, [](auto& o) { o.q_norm.resize(5); }), "norm of another length"));
  BOOST_TEST(
      has(after<qkv_op>(
              llama,
              [](auto& o) {
                auto turn = *o.rotary;
                turn.dims = 14;
                o.rotary = std::make_shared<const rope>(turn);
              }),
          "rotates more than a head"));
  BOOST_TEST(has(after<attention_op>(llama, [](auto& o) { o.softcap = -1; }), "soft cap"));
  BOOST_TEST(has(after<attention_op>(llama, [](auto& o) { o.q = 1000; }), "buffer that is not there"));
  BOOST_TEST(has(after<linear_add_op>(llama, [](auto& o) { o.bias.resize(3); }), "bias"));
  BOOST_TEST(has(after<gate_up_op>(llama, [](auto& o) { std::swap(o.in, o.out); }), "another shape"));
  BOOST_TEST(has(after<rms_norm_op>(llama, [](auto& o) { o.weight.pop_back(); }), "another shape"));
  BOOST_TEST(has(after<select_rows_op>(llama, [](auto& o) { o.in = o.out; }), "another shape"));
  BOOST_TEST(has(after<head_op>(llama, [](auto& o) { o.scale = 0; }), "scale"));
  BOOST_TEST(after<head_op>(llama, [](auto& o) { o.scale = 2; }) == "fits");
}

BOOST_AUTO_TEST_CASE(mixtures_are_checked_expert_by_expert) {
  const auto apart = program_of([](feature_options& o) { o.experts = 4, o.chosen = 2; });
  BOOST_TEST(check_program(apart).has_value());
  BOOST_TEST(has(after<moe_op>(apart, [](auto& o) { o.chosen = 5; }), "more experts"));
  BOOST_TEST(has(after<moe_op>(apart, [](auto& o) { o.chosen = 0; }), "or none"));
  BOOST_TEST(has(after<moe_op>(apart, [](auto& o) { o.up.pop_back(); }), "do not divide"));
  BOOST_TEST(has(after<moe_op>(apart, [](auto& o) { o.gate[3] = o.down[3]; }), "another shape"));
  BOOST_TEST(has(after<moe_op>(apart, [](auto& o) { o.scores = o.in; }), "another shape"));
}

BOOST_AUTO_TEST_CASE(experts_in_one_matrix_must_start_at_panels) {
  feature_options options;
  options.experts = 4;
  options.chosen = 2;
  options.hidden = 64;
  options.stacked = true;
  options.intermediate = 32;
  BOOST_TEST(check_program(*feature_model(options).program()).has_value());
  options.intermediate = 40;
  const auto checked = check_program(*feature_model(options).program());
  BOOST_REQUIRE(!checked);
  BOOST_TEST((checked.error().code == errc::unsupported));
}

BOOST_AUTO_TEST_CASE(norms_over_all_heads_are_checked) {
  const auto olmo = program_of(
      [](feature_options& o) { o.norm = qk_norm::all_heads, o.pre_norms = false, o.post_norms = true; });
  BOOST_TEST(check_program(olmo).has_value());
  BOOST_TEST(has(after<place_op>(olmo, [](auto& o) { o.k_norm.push_back(1); }), "norm of another length"));
  BOOST_TEST(has(after<linear_op>(olmo, [](auto& o) { o.first = 1; }), "beyond its buffer"));
  BOOST_TEST(has(after<add_op>(olmo, [](auto& o) { o.in = 0xffffffff; }), "not there"));
}

BOOST_AUTO_TEST_CASE(a_backend_answers_a_program_that_does_not_fit_as_failed) {
  auto program = std::make_shared<step_program>(program_of([](feature_options&) {}));
  for (op& any : program->ops)
    if (auto* linear = std::get_if<linear_add_op>(&any)) linear->bias.resize(1);
  const auto machine = backend_for(*program, isa::ref);
  step_input input;
  input.sequences = {greedy_sequence({0})};
  input.rows.push_back({0, 11, 0, row_output::token});
  std::promise<step_result> answer;
  machine->submit(program, std::move(input), [&](step_result done) { answer.set_value(std::move(done)); });
  const step_result done = answer.get_future().get();
  BOOST_TEST(done.failed);
  BOOST_TEST(has(done.failure, "has a bias"), done.failure);
}

BOOST_AUTO_TEST_SUITE_END()
