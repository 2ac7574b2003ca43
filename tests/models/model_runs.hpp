// SPDX-License-Identifier: Apache-2.0
// Running a loaded model's steps in a test: logits of every position.
#pragma once

#include "kernels/cpu_backend.hpp"
#include "models/model.hpp"
#include "plugins/host/scheme_registry.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <vector>

namespace troupe::models::test {

using rows = std::vector<std::vector<float>>;

inline std::shared_ptr<const model> load(const std::filesystem::path& path, bool reference = true) {
  static const auto schemes = [] {
    auto registry = std::make_unique<plugins::scheme_registry>();
    BOOST_REQUIRE(plugins::add_built_in_schemes(*registry));
    return registry;
  }();
  model_options options;
  options.reference = reference;
  options.find_scheme = [](std::string_view id) { return schemes->find(id); };
  const auto loaded = load_model(path.string(), options);
  BOOST_REQUIRE_MESSAGE(loaded, loaded.error().message);
  return *loaded;
}

inline std::unique_ptr<kernels::cpu_backend>
backend_of(const model& m, kernels::isa level, unsigned threads = 2) {
  auto backend = kernels::make_cpu_backend({level, threads});
  BOOST_REQUIRE_MESSAGE(backend, backend.error().message);
  BOOST_REQUIRE((*backend)->create_pool(m.program->kv, 16 * m.program->kv.groups().size()));
  return std::move(*backend);
}

inline kernels::step_result run(kernels::backend& backend, const model& m, kernels::step_input input) {
  std::promise<kernels::step_result> promise;
  auto answer = promise.get_future();
  backend.submit(
      m.program, std::move(input), [&](kernels::step_result done) { promise.set_value(std::move(done)); });
  kernels::step_result done = answer.get();
  BOOST_REQUIRE_MESSAGE(!done.failed, done.failure);
  return done;
}

/// With blocks at these indices, of each layer group its own. What the row at `first` and those behind it do
/// not read is left out.
inline kernels::step_sequence sequence_of(
    const model& m, std::size_t reach, const std::vector<std::uint32_t>& indices, std::size_t first = 0) {
  kernels::step_sequence sequence;
  const kernels::kv_groups groups = m.program->kv.groups();
  for (const std::uint32_t index : indices)
    for (std::uint32_t g = 0; g < groups.size(); ++g) sequence.blocks.push_back(index * groups.size() + g);
  groups.for_passed(
      static_cast<std::uint32_t>(indices.size()), 0, static_cast<std::uint32_t>(first),
      [&](std::uint32_t entry) { sequence.blocks[entry] = kernels::no_block; });
  sequence.reach = static_cast<std::uint32_t>(reach);
  return sequence;
}

/// Logits of every position, computed in steps of the widths of `chunks`, taken in turn.
inline rows logits_of(
    kernels::backend& backend, const model& m, const std::vector<std::int32_t>& ids,
    const std::vector<std::size_t>& chunks) {
  rows all;
  for (std::size_t first = 0, turn = 0; first < ids.size(); ++turn) {
    const std::size_t last = std::min(ids.size(), first + chunks[turn % chunks.size()]);
    kernels::step_input input;
    input.sequences.push_back(sequence_of(m, ids.size(), {3, 0, 2, 1}, first));
    for (std::size_t p = first; p < last; ++p)
      input.rows.push_back({0, ids[p], static_cast<std::uint32_t>(p), kernels::row_output::logits});
    for (kernels::row_result& row : run(backend, m, std::move(input)).rows) {
      BOOST_REQUIRE_EQUAL(row.flags, 0U);
      all.push_back(std::move(row.logits));
    }
    first = last;
  }
  return all;
}

inline double largest_difference(const rows& a, const rows& b) {
  BOOST_REQUIRE_EQUAL(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    BOOST_REQUIRE_EQUAL(a[i].size(), b[i].size());
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      const double difference = std::abs(static_cast<double>(a[i][j]) - static_cast<double>(b[i][j]));
      largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
    }
  }
  return largest;
}

inline std::vector<kernels::isa> levels() {
  std::vector<kernels::isa> all{kernels::isa::ref};
  for (const auto level : {kernels::isa::avx2, kernels::isa::avx512})
    if (level <= kernels::best_isa()) all.push_back(level);
  return all;
}

} // namespace troupe::models::test
