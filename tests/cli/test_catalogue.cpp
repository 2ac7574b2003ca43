// SPDX-License-Identifier: Apache-2.0
// The catalogue is complete, and names become files.
#include "cli/catalogue.hpp"
#include "cli/sha256.hpp"
#include "config/settings.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

BOOST_AUTO_TEST_SUITE(catalogue_of_models)

using namespace troupe;
using namespace troupe::cli;
namespace fs = std::filesystem;

namespace {

// A folder of its own as XDG_CACHE_HOME, for the length of a case.
class cache_folder {
 public:
  cache_folder() {
    std::string name = (fs::temp_directory_path() / "troupe_cache_XXXXXX").string();
    BOOST_TEST_REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
    setenv("XDG_CACHE_HOME", name.c_str(), 1);
  }
  ~cache_folder() {
    unsetenv("XDG_CACHE_HOME");
    fs::remove_all(path_);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string message_of(const std::string& model) {
  try {
    resolve_model(model);
  } catch (const failure& bad) {
    return bad.what();
  }
  return "";
}

} // namespace

BOOST_AUTO_TEST_CASE(every_model_says_where_it_comes_from_and_how_to_check_it) {
  BOOST_TEST(!catalogue().empty());
  for (const catalogue_model& model : catalogue()) {
    BOOST_TEST_CONTEXT(model.name) {
      BOOST_TEST(model.sha256.size() == 64U);
      BOOST_TEST(model.sha256.find_first_not_of("0123456789abcdef") == std::string::npos);
      BOOST_TEST(model.bytes > 0U);
      BOOST_TEST(!model.licence.empty());
      BOOST_TEST(model.file.ends_with(".gguf"));
      BOOST_TEST(model.file.find('/') == std::string::npos);
      BOOST_TEST(!model.pip_package.empty());
      BOOST_TEST(!model.pip_version.empty());
      BOOST_TEST(!model.pip_member.empty());
      BOOST_TEST(model.url.starts_with("https://"));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_default_model_is_in_the_catalogue) {
  const catalogue_model& model = catalogue_entry(config::settings{}.model.path);
  BOOST_TEST(model.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53");
  BOOST_TEST(model.bytes == 98'362'432U);
}

BOOST_AUTO_TEST_CASE(a_name_means_the_file_in_the_cache) {
  const cache_folder cache;
  const catalogue_model& model = catalogue().front();
  BOOST_TEST(message_of(model.name).find("troupe pull " + model.name) != std::string::npos);
  fs::create_directories(model_cache());
  std::ofstream(model_cache() / model.file) << "content";
  BOOST_TEST(resolve_model(model.name) == (cache.path() / "troupe" / "models" / model.file).string());
}

BOOST_AUTO_TEST_CASE(a_path_is_taken_as_it_is_and_an_unknown_name_lists_the_known_ones) {
  const cache_folder cache;
  BOOST_TEST(resolve_model("/nonexistent/a.gguf") == "/nonexistent/a.gguf");
  BOOST_TEST(resolve_model("a.gguf") == "a.gguf");
  BOOST_TEST(message_of("no-such-model").find(catalogue().front().name) != std::string::npos);
}

BOOST_AUTO_TEST_CASE(hashes_are_those_of_the_standard) {
  BOOST_TEST(sha256_of_bytes("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  BOOST_TEST(sha256_of_bytes("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const cache_folder cache;
  const fs::path file = cache.path() / "file";
  std::ofstream(file) << "abc";
  BOOST_TEST(sha256_of_file(file).value() == sha256_of_bytes("abc"));
  BOOST_TEST(sha256_of_file(cache.path() / "missing").has_error());
}

BOOST_AUTO_TEST_SUITE_END()
