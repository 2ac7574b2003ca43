// SPDX-License-Identifier: Apache-2.0
// Tiny models of every architecture against the logits of transformers (tools/tiny_models/README.md).
#include "models/architectures/architecture.hpp"
#include "models/hf_folder.hpp"
#include "models/json_document.hpp"
#include "models/model.hpp"
#include "tests/models/model_runs.hpp"
#include "tests/models/shared_files.hpp"

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>

using namespace troupe;
using namespace troupe::models;
using namespace troupe::models::test;

namespace {

namespace fs = std::filesystem;

const fs::path arch_folder = TROUPE_TEST_DATA "/arch";
constexpr double tolerance = 1e-3;

struct expected_run {
  std::vector<std::int32_t> ids;
  rows logits;
};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(arch_folder))
    all.push_back(entry.path().filename().string());
  std::sort(all.begin(), all.end());
  return all;
}

rows read_rows(const fs::path& path, std::size_t count) {
  const std::string bytes = read_file(path);
  BOOST_REQUIRE(bytes.size() % (count * sizeof(float)) == 0);
  const std::size_t width = bytes.size() / (count * sizeof(float));
  rows all(count, std::vector<float>(width));
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(all[i].data(), bytes.data() + i * width * sizeof(float), width * sizeof(float));
  return all;
}

/// The answers for one kind of file, "huggingface" or "gguf"; empty when there is no such file.
std::vector<expected_run> expected_runs(const std::string& name, const char* kind) {
  const auto document = read_json_object((arch_folder / name / "expected.json").string());
  BOOST_REQUIRE_MESSAGE(document, document.error().message);
  std::vector<expected_run> runs;
  const boost::json::value* list = document->if_contains(kind);
  if (list == nullptr) return runs;
  for (const boost::json::value& each : list->as_array()) {
    expected_run run;
    run.ids = boost::json::value_to<std::vector<std::int32_t>>(each.at("ids"));
    run.logits = read_rows(arch_folder / name / std::string(each.at("logits").as_string()), run.ids.size());
    runs.push_back(std::move(run));
  }
  return runs;
}

/// In one step, in odd ones whose borders meet none of window, scaling and KV blocks, and row by row.
const std::vector<std::vector<std::size_t>> cuts{{1000}, {7, 13, 1, 19, 5}, {1}};

void check(const fs::path& path, const std::vector<expected_run>& runs) {
  const auto m = load(path);
  for (const kernels::isa level : levels()) {
    const auto backend = backend_of(*m, level);
    for (const expected_run& expected : runs)
      for (const auto& chunks : cuts)
        BOOST_TEST_CONTEXT(
            path.string() << ' ' << kernels::isa_name(level) << ", " << expected.ids.size()
                          << " positions, chunks of " << chunks[0]) {
          BOOST_TEST(
              largest_difference(logits_of(*backend, *m, expected.ids, chunks), expected.logits) < tolerance);
        }
  }
}

/// A folder of links to a fixture's files, with another config.json. Gone with the object.
struct linked_folder {
  fs::path path = fs::temp_directory_path() / ("troupe_arch_" + std::to_string(::getpid()));
  linked_folder(const std::string& name, const char* config) {
    fs::remove_all(path);
    fs::create_directories(path);
    for (const auto& entry : fs::directory_iterator(arch_folder / name))
      if (entry.path().string().find("safetensors") != std::string::npos)
        fs::create_symlink(fs::absolute(entry.path()), path / entry.path().filename());
    fs::copy_file(arch_folder / name / config, path / "config.json");
  }
  ~linked_folder() { fs::remove_all(path); }
};

} // namespace

BOOST_AUTO_TEST_SUITE(architectures_)

BOOST_AUTO_TEST_CASE(every_fixture_is_there) {
  BOOST_TEST(names().size() >= 19U);
}

BOOST_AUTO_TEST_CASE(folders_give_the_logits_of_transformers) {
  for (const std::string& name : names()) {
    const auto runs = expected_runs(name, "huggingface");
    BOOST_TEST(!runs.empty());
    check(arch_folder / name, runs);
  }
}

BOOST_AUTO_TEST_CASE(gguf_files_give_the_logits_of_transformers) {
  std::size_t files = 0;
  for (const std::string& name : names()) {
    const auto runs = expected_runs(name, "gguf");
    if (runs.empty()) continue;
    check(arch_folder / name / "model.gguf", runs);
    ++files;
  }
  BOOST_TEST(files >= 14U);
}

BOOST_AUTO_TEST_CASE(configurations_as_transformers_5_writes_them_give_the_same_logits) {
  for (const std::string& name : names()) {
    const linked_folder folder(name, "config_v5.json");
    const auto m = load(folder.path);
    const auto backend = backend_of(*m, kernels::best_isa());
    for (const expected_run& expected : expected_runs(name, "huggingface")) BOOST_TEST_CONTEXT(name) {
        BOOST_TEST(
            largest_difference(logits_of(*backend, *m, expected.ids, {1000}), expected.logits) < tolerance);
      }
  }
}

BOOST_AUTO_TEST_CASE(a_16_bit_cache_stays_near) {
  for (const std::string& name : names()) {
    const auto m = load(arch_folder / name, false);
    const auto backend = backend_of(*m, kernels::best_isa());
    const auto runs = expected_runs(name, "huggingface");
    BOOST_TEST_CONTEXT(name) {
      BOOST_TEST(largest_difference(logits_of(*backend, *m, runs[0].ids, {24}), runs[0].logits) < 0.1);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_sequence_has_the_same_bits_whatever_runs_beside_it) {
  for (const std::string& name : names()) {
    const auto m = load(arch_folder / name, false);
    const auto ids = expected_runs(name, "huggingface")[0].ids;
    for (const kernels::isa level : levels()) {
      const auto backend = backend_of(*m, level);
      const rows alone = logits_of(*backend, *m, ids, {1000});
      rows together;
      // Chunks of the sequence between rows of two others, of other lengths and tokens.
      std::uint32_t other = 0;
      for (std::size_t first = 0; first < ids.size();) {
        const std::size_t last = std::min(ids.size(), first + 5 + first % 11);
        kernels::step_input input;
        for (const std::vector<std::uint32_t>& blocks :
             std::vector<std::vector<std::uint32_t>>{{4, 5}, {0, 1, 2}, {6, 7}})
          input.sequences.push_back(sequence_of(*m, ids.size(), blocks));
        for (std::uint32_t i = 0; i < 3; ++i)
          input.rows.push_back({0, ids[(other + i) * 7 % ids.size()], other + i, kernels::row_output::none});
        for (std::size_t p = first; p < last; ++p)
          input.rows.push_back({1, ids[p], static_cast<std::uint32_t>(p), kernels::row_output::logits});
        input.rows.push_back({2, ids[first], other / 3, kernels::row_output::none});
        for (kernels::row_result& row : run(*backend, *m, std::move(input)).rows)
          together.push_back(std::move(row.logits));
        other += 3;
        first = last;
      }
      BOOST_TEST_CONTEXT(name << ' ' << kernels::isa_name(level)) {
        BOOST_REQUIRE_EQUAL(together.size(), alone.size());
        std::size_t different = 0;
        for (std::size_t i = 0; i < alone.size(); ++i)
          different += std::memcmp(alone[i].data(), together[i].data(), alone[i].size() * sizeof(float)) != 0;
        BOOST_TEST(different == 0U);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(both_kinds_of_file_describe_the_same_model) {
  for (const std::string& name : names()) {
    const fs::path gguf = arch_folder / name / "model.gguf";
    if (!fs::exists(gguf) || name == "mistral" || name == "mixtral") continue; // `llama` in GGUF
    const auto file = gguf_file::open(gguf.string());
    BOOST_REQUIRE_MESSAGE(file, file.error().message);
    const auto a = read_model_config(*file);
    BOOST_REQUIRE_MESSAGE(a, a.error().message);
    const auto folder = hf_folder::open((arch_folder / name).string());
    BOOST_REQUIRE_MESSAGE(folder, folder.error().message);
    const model_config& b = folder->config;
    BOOST_TEST_CONTEXT(name) {
      BOOST_TEST(a->architecture == b.architecture);
      BOOST_TEST((a->kind == b.kind));
      BOOST_TEST(a->layers == b.layers);
      BOOST_TEST(a->head_dim == b.head_dim);
      BOOST_TEST(a->kv_heads == b.kv_heads);
      BOOST_TEST(a->vocab == b.vocab);
      BOOST_TEST(a->context == b.context);
      BOOST_TEST(a->rope.dims == b.rope.dims);
      BOOST_TEST(a->rope.base == b.rope.base);
      BOOST_TEST(a->tied_head == b.tied_head);
      BOOST_TEST(a->embedding_scale == b.embedding_scale);
      BOOST_TEST(a->experts.count == b.experts.count);
      for (std::uint32_t i = 0; i < a->layers; ++i) {
        BOOST_TEST(a->layer(i).window == b.layer(i).window);
        BOOST_TEST((a->layer(i).rope == b.layer(i).rope));
        BOOST_TEST(a->layer(i).experts == b.layer(i).experts);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
