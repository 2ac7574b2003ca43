// SPDX-License-Identifier: Apache-2.0
// TOML documents: right ones, wrong ones with the line they name, and documents that the program writes
// itself.
#include "config/loader.hpp"
#include "config/property.hpp"

#include <boost/test/unit_test.hpp>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

BOOST_AUTO_TEST_SUITE(loader)

using namespace troupe;
using namespace troupe::config;

namespace {

// The message for a document that must be refused.
std::string refusal(std::string_view document) {
  settings all;
  const auto done = apply_toml(all, document, "troupe.toml");
  BOOST_TEST_REQUIRE(done.has_error());
  BOOST_TEST((done.error().code == errc::bad_config));
  return done.error().message;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string source_root() {
  const char* root = std::getenv("TROUPE_SOURCE_ROOT");
  return root == nullptr ? "." : root;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_document_sets_every_kind_of_value) {
  settings all;
  const auto done = apply_toml(
      all, R"(
[model]
path = "/models/a.gguf"
[engine]
reference = true
kv_memory = "256MiB"
max_batch = 8
kv_high_watermark = 1
kv_low_watermark = 0.5
[server]
tcp_port = -1
body_bytes = 4096
)",
      "troupe.toml");
  BOOST_TEST_REQUIRE(done.has_value());
  BOOST_TEST(all.model.path == "/models/a.gguf");
  BOOST_TEST(all.engine.reference);
  BOOST_TEST(all.engine.kv_memory == 268435456U);
  BOOST_TEST(all.engine.max_batch == 8U);
  BOOST_TEST(all.engine.kv_high_watermark == 1.0);
  BOOST_TEST(all.engine.kv_low_watermark == 0.5);
  BOOST_TEST(all.server.tcp_port == -1);
  BOOST_TEST(all.server.body_bytes == 4096U);
}

BOOST_AUTO_TEST_CASE(a_wrong_key_names_the_nearest_right_one_the_file_and_the_line) {
  BOOST_TEST(
      refusal("[engine]\nthreads = 2\nmax_bacth = 4\n") ==
      R"(troupe.toml:3: unknown key "engine.max_bacth"; did you mean "engine.max_batch"?)");
  BOOST_TEST(
      refusal("\n[engin]\nmax_batch = 4\n") ==
      "troupe.toml:2: unknown table [engin]; did you mean [engine]?");
  BOOST_TEST(refusal("port = 80\n") == R"(troupe.toml:1: unknown key "port"; did you mean "server.port"?)");
  BOOST_TEST(refusal("[engine]\nmax_batch.x = 4\n")
                 .starts_with("troupe.toml:2: engine.max_batch has the wrong type"));
}

BOOST_AUTO_TEST_CASE(an_empty_file_sets_nothing_and_a_missing_one_says_why) {
  settings all;
  BOOST_TEST(apply_file(all, "/dev/null").has_value());
  BOOST_TEST(dump(all) == dump(settings{}));
  errno = 0;
  const auto missing = apply_file(all, "/nonexistent/troupe.toml");
  BOOST_REQUIRE(missing.has_error());
  BOOST_TEST(missing.error().message.find("No such file") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_wrong_value_names_the_key_the_line_and_what_is_allowed) {
  BOOST_TEST(
      refusal("[engine]\nmax_batch = 0\n") ==
      "troupe.toml:2: engine.max_batch cannot be 0; it takes a whole number, 1 to 4096");
  BOOST_TEST(
      refusal("[engine]\nkv_memory = \"256M\"\n") ==
      "troupe.toml:2: engine.kv_memory cannot be \"256M\"; it takes a size, 0 to 64TiB");
  BOOST_TEST(
      refusal("[server]\nport = 65536\n") ==
      "troupe.toml:2: server.port cannot be 65536; it takes a whole number, 0 to 65535");
  BOOST_TEST(
      refusal("[server]\nport = \"80\"\n").starts_with("troupe.toml:2: server.port has the wrong type"));
  BOOST_TEST(refusal("[server]\nport = 80.5\n").starts_with("troupe.toml:2: server.port cannot be 80.5"));
  BOOST_TEST(refusal("[engine]\nreference = 1\n").starts_with("troupe.toml:2: engine.reference cannot be 1"));
  BOOST_TEST(refusal("[engine]\nkv_low_watermark = nan\n")
                 .starts_with("troupe.toml:2: engine.kv_low_watermark cannot be nan"));
  BOOST_TEST(refusal("[model]\npath = [1]\n").starts_with("troupe.toml:2: model.path has the wrong type"));
}

BOOST_AUTO_TEST_CASE(a_document_that_is_not_toml_names_the_line) {
  BOOST_TEST(refusal("[engine]\nmax_batch = \n").starts_with("troupe.toml:2: "));
  BOOST_TEST(refusal("[engine]\n[engine]\n").starts_with("troupe.toml:2: "));
  BOOST_TEST(refusal("\xFF\xFE").starts_with("troupe.toml:1: "));
  BOOST_TEST(refusal("a = " + std::string(100'000, '[')).find('\n') == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_read_is_named) {
  settings all;
  const auto missing = apply_file(all, "/nonexistent/troupe.toml");
  BOOST_TEST_REQUIRE(missing.has_error());
  BOOST_TEST(
      missing.error().message == "/nonexistent/troupe.toml: No such file or directory; `troupe serve "
                                 "--dump-config` prints a file to begin with");
  BOOST_TEST(apply_file(all, "/").has_error());
}

BOOST_AUTO_TEST_CASE(an_assignment_sets_one_value) {
  settings all;
  BOOST_TEST(apply_assignment(all, "engine.kv_memory=1GiB").has_value());
  BOOST_TEST(all.engine.kv_memory == 1U << 30);
  BOOST_TEST(apply_assignment(all, "model.name=a=b").has_value());
  BOOST_TEST(all.model.name == "a=b");
  BOOST_TEST(
      apply_assignment(all, "engine.max_batch").error().message ==
      "--set takes TABLE.KEY=VALUE, not \"engine.max_batch\"");
  BOOST_TEST(
      apply_assignment(all, "engine.maxbatch=3").error().message ==
      "unknown setting \"engine.maxbatch\"; did you mean \"engine.max_batch\"?");
  BOOST_TEST(
      apply_assignment(all, "engine.max_batch=x").error().message ==
      "engine.max_batch cannot be \"x\"; it takes a whole number, 1 to 4096");
}

BOOST_AUTO_TEST_CASE(a_dump_reads_back_unchanged_whatever_was_set) {
  settings all;
  all.model.name = "quote \" slash \\ tab \t line \n \x7F end";
  all.engine.kv_memory = 268435457;
  all.engine.reference = true;
  all.engine.kv_low_watermark = 0.1 + 0.2;
  all.server.tcp_port = 0;
  const std::string text = dump(all);
  settings again;
  const auto done = apply_toml(again, text, "dump");
  BOOST_TEST_REQUIRE(done.has_value());
  BOOST_TEST(dump(again) == text);
  BOOST_TEST(again.model.name == all.model.name);
  BOOST_TEST(again.engine.kv_memory == all.engine.kv_memory);
  BOOST_TEST(again.engine.kv_low_watermark == all.engine.kv_low_watermark);
}

BOOST_AUTO_TEST_CASE(the_committed_reference_is_the_tables) {
  const std::string committed = read(source_root() + "/docs/config.md");
  BOOST_TEST_REQUIRE(!committed.empty());
  BOOST_TEST(
      (committed == reference_markdown()),
      "docs/config.md is stale: build/release/troupe doctor --config-reference > docs/config.md");
}

BOOST_AUTO_TEST_CASE(the_committed_example_profile_is_valid_and_says_what_it_changes) {
  settings all;
  const auto done = apply_file(all, source_root() + "/config/server.toml");
  BOOST_TEST_REQUIRE(done.has_value());
  BOOST_TEST(check_together(all).has_value());
  BOOST_TEST(dump(all) != dump(settings{}));
}

BOOST_AUTO_TEST_SUITE_END()
