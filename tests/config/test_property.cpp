// SPDX-License-Identifier: Apache-2.0
// The property table row by row: bounds, text forms and the suggestions for wrong names.
#include "config/nearest.hpp"
#include "config/property.hpp"

#include <boost/test/unit_test.hpp>

#include <set>
#include <string>

BOOST_AUTO_TEST_SUITE(property)

using namespace troupe;
using namespace troupe::config;

namespace {

bool is_number(const config::property& row) {
  return !std::holds_alternative<std::string& (*)(settings&)>(row.field) &&
         !std::holds_alternative<bool& (*)(settings&)>(row.field);
}
bool is_fraction(const config::property& row) {
  return std::holds_alternative<double& (*)(settings&)>(row.field);
}

} // namespace

BOOST_AUTO_TEST_CASE(every_row_is_complete_and_unique) {
  std::set<std::string_view> names, flags;
  for (const config::property& row : properties()) {
    BOOST_TEST_CONTEXT(row.name) {
      BOOST_TEST(names.insert(row.name).second);
      BOOST_TEST(row.name.find('.') != std::string_view::npos);
      BOOST_TEST(!row.help.empty());
      BOOST_TEST(!row.help.ends_with('.'));
      if (!row.flag.empty()) {
        BOOST_TEST(flags.insert(row.flag).second);
        BOOST_TEST(row.flag.starts_with("--"));
      }
      if (is_number(row)) BOOST_TEST(row.least < row.most);
    }
  }
}

BOOST_AUTO_TEST_CASE(every_default_is_within_its_own_bounds_and_reads_back) {
  const settings defaults;
  for (const config::property& row : properties()) {
    BOOST_TEST_CONTEXT(row.name) {
      settings other;
      BOOST_TEST(!row.set_text(other, row.text(defaults)).has_error());
      BOOST_TEST(row.toml(other) == row.toml(defaults));
    }
  }
}

BOOST_AUTO_TEST_CASE(bounds_are_inclusive_and_one_beyond_is_refused) {
  for (const config::property& row : properties()) {
    if (!is_number(row) || is_fraction(row)) continue;
    BOOST_TEST_CONTEXT(row.name) {
      settings all;
      const auto least = static_cast<std::int64_t>(row.least), most = static_cast<std::int64_t>(row.most);
      BOOST_TEST(row.set_integer(all, least).has_value());
      BOOST_TEST(row.set_integer(all, most).has_value());
      const std::string kept = row.toml(all);
      BOOST_TEST(row.set_integer(all, least - 1).has_error());
      const auto above = row.set_integer(all, most + 1);
      BOOST_REQUIRE(above.has_error());
      BOOST_TEST(above.error().param == row.name);
      BOOST_TEST(above.error().message.find(row.allowed()) != std::string::npos);
      BOOST_TEST(row.toml(all) == kept);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_share_refuses_numbers_outside_and_not_a_number) {
  settings all;
  const config::property* row = find_property("engine.kv_high_watermark");
  BOOST_REQUIRE(row != nullptr);
  BOOST_TEST(row->set_text(all, "0.5").has_value());
  BOOST_TEST(all.engine.kv_high_watermark == 0.5);
  for (const char* bad : {"0", "1.01", "nan", "inf", "-1", "1e999", "half", "", "0.5x"})
    BOOST_TEST(row->set_text(all, bad).has_error(), bad);
  BOOST_TEST(all.engine.kv_high_watermark == 0.5);
}

BOOST_AUTO_TEST_CASE(a_choice_takes_only_its_words) {
  settings all;
  const config::property* row = find_property("engine.isa");
  BOOST_REQUIRE(row != nullptr);
  for (const char* good : {"", "ref", "avx2", "avx512"})
    BOOST_TEST(row->set_text(all, good).has_value(), good);
  const auto bad = row->set_text(all, "sse9");
  BOOST_REQUIRE(bad.has_error());
  BOOST_TEST(bad.error().message == R"(cannot be "sse9"; it takes "", ref, avx2 or avx512)");
}

BOOST_AUTO_TEST_CASE(a_switch_takes_true_and_false) {
  settings all;
  const config::property* row = find_property("engine.reference");
  BOOST_REQUIRE(row != nullptr);
  BOOST_TEST(row->set_text(all, "true").has_value());
  BOOST_TEST(all.engine.reference);
  for (const char* bad : {"yes", "1", "", "True"}) BOOST_TEST(row->set_text(all, bad).has_error(), bad);
}

BOOST_AUTO_TEST_CASE(sizes_are_read_with_their_units) {
  const std::pair<const char*, std::uint64_t> good[] = {
      {"0", 0},
      {"4096", 4096},
      {"4096B", 4096},
      {"64KiB", 65536},
      {"256MiB", 268435456},
      {"1.5GiB", 1610612736},
      {"200MB", 200'000'000},
      {"1TiB", 1099511627776}};
  for (const auto& [text, bytes] : good) {
    const auto read = parse_bytes(text);
    BOOST_TEST_REQUIRE(read.has_value(), text);
    BOOST_TEST(*read == bytes, text);
  }
  for (const char* bad :
       {"", "MiB", "-1", "1 MiB", "1mib", "256M", "1e3", "0x10", "0.3B", "99999999TiB", "nan", "1MiBx"})
    BOOST_TEST(parse_bytes(bad).has_error(), bad);
}

BOOST_AUTO_TEST_CASE(sizes_are_written_so_that_they_read_back_exactly) {
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1000}, std::uint64_t{1023}, std::uint64_t{1024},
        std::uint64_t{268435456}, std::uint64_t{268435457}, std::uint64_t{1} << 50}) {
    const auto read = parse_bytes(format_bytes(bytes));
    BOOST_TEST_REQUIRE(read.has_value());
    BOOST_TEST(*read == bytes);
  }
  BOOST_TEST(format_bytes(268435456) == "256MiB");
}

BOOST_AUTO_TEST_CASE(a_wrong_name_suggests_the_one_that_was_meant) {
  BOOST_TEST(suggest_property("engine.max_bacth") == "did you mean \"engine.max_batch\"?");
  BOOST_TEST(suggest_property("engine.port") == "did you mean \"server.port\"?");
  BOOST_TEST(suggest_property("max_queue") == "did you mean \"engine.max_queue\"?");
  BOOST_TEST(suggest_property("server.body_byte") == "did you mean \"server.body_bytes\"?");
  BOOST_TEST(suggest_property("log.levle") == "did you mean \"log.level\"?");
}

BOOST_AUTO_TEST_CASE(a_name_that_is_near_none_is_told_what_there_is) {
  BOOST_TEST(suggest_property("foo.qqqqqqqq") == "the tables are [model], [engine], [server], [log]");
  BOOST_TEST(suggest_property("log.colour_of_lines") == "[log] has level");
}

BOOST_AUTO_TEST_CASE(the_nearest_name_is_one_of_which_half_is_right) {
  nearest_name near("prefil");
  near.consider("decode");
  BOOST_TEST(near.best().empty());
  near.consider("prefill");
  near.consider("refill");
  BOOST_TEST(near.best() == "prefill");
  nearest_name nothing("");
  nothing.consider("a");
  BOOST_TEST(nothing.best().empty());
}

BOOST_AUTO_TEST_CASE(edit_distance_is_levenshteins) {
  BOOST_TEST(edit_distance("", "") == 0U);
  BOOST_TEST(edit_distance("abc", "") == 3U);
  BOOST_TEST(edit_distance("kitten", "sitting") == 3U);
  BOOST_TEST(edit_distance("flaw", "lawn") == 2U);
}

BOOST_AUTO_TEST_CASE(settings_that_contradict_each_other_are_refused) {
  settings all;
  BOOST_TEST(check_together(all).has_value());
  all.engine.kv_low_watermark = 0.96;
  BOOST_REQUIRE(check_together(all).has_error());
  BOOST_TEST(check_together(all).error().param == "engine.kv_low_watermark");
  all = {};
  all.engine.max_step_tokens = all.engine.max_batch - 1;
  BOOST_REQUIRE(check_together(all).has_error());
  BOOST_TEST(check_together(all).error().param == "engine.max_step_tokens");
  all = {};
  all.model.path.clear();
  BOOST_TEST(check_together(all).has_error());
  all = {};
  all.server.host.clear();
  BOOST_REQUIRE(check_together(all).has_error());
  BOOST_TEST(check_together(all).error().param == "server.host");
}

BOOST_AUTO_TEST_CASE(times_by_priority_are_one_number_or_a_list) {
  using numbers = std::array<std::uint32_t, 10>;
  BOOST_TEST((parse_by_priority("0").value() == numbers{}));
  numbers fifty;
  fifty.fill(50);
  BOOST_TEST((parse_by_priority("50").value() == fifty));
  BOOST_TEST((parse_by_priority("0:50").value() == fifty));
  BOOST_TEST((parse_by_priority("0:30,5:50,7:0").value() == numbers{30, 30, 30, 30, 30, 50, 50, 0, 0, 0}));
  BOOST_TEST((parse_by_priority("0:0,9:86400000").value() == numbers{0, 0, 0, 0, 0, 0, 0, 0, 0, 86'400'000}));
  for (const char* wrong :
       {"", "x", "-1", "5.5", "86400001", "5:50", "0:30,", ",0:30", "0:30,3", "0:30,0:40", "0:30,5:50,4:1",
        "0:1,10:2", "0:", ":5", "0:1 ", "0:1,,2:3", "0 :1"}) {
    const auto read = parse_by_priority(wrong);
    BOOST_TEST_CONTEXT(wrong) {
      BOOST_REQUIRE(!read);
      BOOST_TEST((read.error().code == errc::bad_config));
    }
    settings all;
    all.engine.tpot_goal_ms = wrong;
    const auto checked = check_together(all);
    BOOST_REQUIRE(!checked);
    BOOST_TEST(checked.error().message.find("engine.tpot_goal_ms") == 0U);
  }
}

BOOST_AUTO_TEST_CASE(a_reload_takes_live_settings_and_names_the_others) {
  settings old, wanted;
  wanted.engine.max_wait_ms = 7;
  wanted.engine.max_batch = 3;
  wanted.server.drain_timeout_ms = 11;
  wanted.server.port = 1;
  wanted.log.level = "error";
  const reloading done = reload(old, wanted);
  BOOST_TEST(done.in_force.engine.max_wait_ms == 7U);
  BOOST_TEST(done.in_force.engine.max_batch == old.engine.max_batch);
  BOOST_TEST(done.in_force.server.drain_timeout_ms == 11U);
  BOOST_TEST(done.in_force.server.port == old.server.port);
  BOOST_TEST(done.in_force.log.level == "error");
  const std::vector<std::string_view> taken{"engine.max_wait_ms", "server.drain_timeout_ms", "log.level"};
  const std::vector<std::string_view> others{"engine.max_batch", "server.port"};
  BOOST_TEST(done.taken == taken, boost::test_tools::per_element());
  BOOST_TEST(done.for_restart == others, boost::test_tools::per_element());
  const reloading same = reload(old, old);
  BOOST_TEST(same.taken.empty());
  BOOST_TEST(same.for_restart.empty());
}

BOOST_AUTO_TEST_CASE(the_memory_watermarks_keep_their_order) {
  settings all;
  all.engine.memory_low_watermark = 0.98;
  BOOST_TEST(check_together(all).error().param == "engine.memory_low_watermark");
}

BOOST_AUTO_TEST_SUITE_END()
