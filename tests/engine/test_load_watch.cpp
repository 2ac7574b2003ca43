// SPDX-License-Identifier: Apache-2.0
// What is told and refused while a model is loaded.
#include "engine/load_watch.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::detail;

namespace {

constexpr std::uint64_t gib = 1ULL << 30;

struct told {
  std::vector<std::string> lines;
  models::model_options options;

  explicit told(load_watch what) {
    what.path = "m.gguf";
    what.tell = [this](std::string_view line) { lines.emplace_back(line); };
    watch_loading(options, std::move(what));
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(load_watch_)

BOOST_AUTO_TEST_CASE(a_large_model_is_told_of_in_tenths_behind_its_forecast) {
  told t({.file_bytes = gib});
  BOOST_REQUIRE(t.options.forecast({1000, 10, 100}).has_value());
  for (std::uint64_t done = 0; done <= 1000; done += 50) t.options.progress(done, 1000);
  BOOST_REQUIRE_EQUAL(t.lines.size(), 11U);
  BOOST_TEST(t.lines[0].starts_with("memory forecast: weights "));
  BOOST_TEST(t.lines[1] == "loading: 10 %");
  BOOST_TEST(t.lines[10] == "loading: 100 %");
}

BOOST_AUTO_TEST_CASE(a_small_model_is_loaded_in_silence) {
  told t({.file_bytes = gib - 1});
  BOOST_REQUIRE(t.options.forecast({1000, 10, 100}).has_value());
  t.options.progress(1000, 1000);
  t.options.progress(0, 0);
  BOOST_TEST(t.lines.empty());
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused_in_one_line_whatever_the_file_size) {
  constexpr std::uint64_t too_much = 1ULL << 60;
  const auto refusal = [](load_watch what, const models::load_forecast& needs) {
    told t(std::move(what));
    const auto fits = t.options.forecast(needs);
    BOOST_REQUIRE(!fits);
    BOOST_TEST((fits.error().code == errc::no_memory));
    BOOST_TEST(t.lines.empty());
    return fits.error().message;
  };
  BOOST_TEST(refusal({.file_bytes = gib}, {too_much, 1, 1}).find("m.gguf: ") == 0U);
  BOOST_TEST(refusal({.kv_memory = too_much}, {1, 1, 1}).find("kv-memory is ") == 0U);
  BOOST_TEST(
      refusal({.positions = 1024}, {1, too_much / 1024, 1, kernels::kv_groups(32), too_much / 32})
          .find("m.gguf: the KV cache of 1024 tokens") == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
