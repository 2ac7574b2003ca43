// SPDX-License-Identifier: Apache-2.0
// `troupe eval perplexity` and `troupe eval logits`: a model's numbers, without the serving path.
#include "cli/arguments.hpp"
#include "cli/catalogue.hpp"
#include "cli/command.hpp"
#include "cli/engine_settings.hpp"
#include "cli/text.hpp"
#include "cli/text_model.hpp"
#include "engine/load_watch.hpp"
#include "kernels/cpu_backend.hpp"
#include "models/gguf_file.hpp"
#include "models/hf_folder.hpp"
#include "models/model.hpp"
#include "plugins/host/scheme_registry.hpp"
#include "quant/evaluation.hpp"
#include "quant/golden.hpp"
#include "quant/perplexity.hpp"

#include <boost/json.hpp>

#include <cstdio>
#include <unistd.h>

namespace troupe::cli {

namespace {

namespace json = boost::json;

struct evaluated_model {
  std::shared_ptr<const models::model> model;
  std::unique_ptr<kernels::cpu_backend> backend;
  std::string kernels; // one line
};

std::shared_ptr<const models::model>
load_watched(const std::string& path, models::model_options& options, std::uint32_t positions) {
  const auto load = [&](const auto& file, std::uint64_t bytes) {
    detail::watch_loading(
        options, {.path = path,
                  .file_bytes = bytes,
                  .context = positions,
                  .positions = positions,
                  .tell = tell_loading});
    return models::load_model(file, options).value();
  };
  if (models::is_folder(path)) {
    const auto folder = models::hf_folder::open(path).value();
    return load(folder, folder.tensors.file_bytes());
  }
  const auto file = models::gguf_file::open(path).value();
  return load(file, file.file_bytes());
}

// `positions`: what the KV pool must hold.
evaluated_model load(const config::settings& all, std::uint32_t positions) {
  plugins::scheme_registry registry;
  plugins::add_built_in_schemes(registry).value();
  models::model_options options;
  options.find_scheme = [&registry](std::string_view id) { return registry.find(id); };
  options.reference = all.engine.reference;
  options.threads = all.engine.threads;
  const std::string path = resolve_model(all.model.path);
  auto model = opening(path, [&] { return load_watched(path, options, positions); });
  if (positions > model->config.context)
    throw failure(
        errc::bad_config, "a context of " + std::to_string(positions) + " is more than the model's " +
                              std::to_string(model->config.context));
  kernels::cpu_backend_options backend_options;
  backend_options.threads = all.engine.threads;
  if (!all.engine.isa.empty()) backend_options.level = kernels::parse_isa(all.engine.isa);
  if (all.engine.reference) backend_options.level = kernels::isa::ref;
  auto backend = kernels::make_cpu_backend(backend_options).value();
  backend->create_pool(model->program->kv, quant::blocks_for(model->program->kv, positions)).value();
  std::string kernels = kernels::describe_kernels(*model->program, backend->level());
  return {std::move(model), std::move(backend), std::move(kernels)};
}

void print_json(const json::object& object) {
  std::printf("%s\n", json::serialize(object).c_str());
}

constexpr std::string_view evaluation_groups[] = {"model", "engine"};
// The others are taken, as from any --config, and change nothing here.
constexpr std::string_view evaluation_settings[] = {
    "model.path", "engine.isa", "engine.reference", "engine.threads"};

} // namespace

int eval_perplexity_command(const std::vector<std::string>& words) {
  config::settings all;
  std::string file;
  std::uint32_t context = 512, chunks = 0;
  bool as_json = false;
  arguments options(
      "eval perplexity", "Perplexity of a text: chunks of --ctx tokens, the second half of each scored.");
  options.option("-f,--file", file, "the text");
  options.required("--file");
  options.option("--ctx", context, 4U, 1U << 20, "tokens of a chunk");
  options.option("--chunks", chunks, 0U, 1U << 30, "at most so many chunks; 0: all that are whole");
  options.flag("--json", as_json, "print one JSON object");
  options.settings(all, evaluation_groups, evaluation_settings);
  if (!options.parse(words)) return 0;

  const std::string text = read_text_file(file, "--file", most_text);
  const text_model opened = open_text_model(all.model.path);
  const auto ids = encode_aloud("eval perplexity", *opened.tokenizer, text, {}, "the text");
  const evaluated_model loaded = load(all, context);
  quant::perplexity_options how;
  how.context = context;
  how.chunks = chunks;
  if (opened.tokenizer->vocab().add_bos) how.bos = opened.tokenizer->vocab().bos;
  const bool terminal = isatty(STDERR_FILENO) == 1;
  if (terminal)
    how.progress = [](std::uint32_t done, std::uint32_t total, double perplexity) {
      std::fprintf(stderr, "\r  %u of %u chunks, perplexity %.4f ", done, total, perplexity);
    };
  const auto measured = quant::measure_perplexity(*loaded.backend, loaded.model->program, ids, how).value();
  if (terminal) std::fputc('\n', stderr);
  if (chunks > measured.chunk_nll.size())
    std::fprintf(
        stderr,
        "troupe eval perplexity: the text has %zu whole chunks of %u tokens, fewer than --chunks %u\n",
        measured.chunk_nll.size(), context, chunks);
  if (as_json) {
    print_json(
        {{"perplexity", measured.perplexity},
         {"standard_error", measured.standard_error},
         {"tokens", measured.tokens},
         {"context", context},
         {"chunk_nll", json::value_from(measured.chunk_nll)},
         {"model", loaded.model->path},
         {"kernels", loaded.kernels}});
    return 0;
  }
  std::printf(
      "perplexity %.4f +- %.4f over %llu tokens of %zu chunks\n%s\n", measured.perplexity,
      measured.standard_error, static_cast<unsigned long long>(measured.tokens), measured.chunk_nll.size(),
      loaded.kernels.c_str());
  return 0;
}

int eval_logits_command(const std::vector<std::string>& words) {
  config::settings all;
  std::string path;
  double margin = 0.15, logit_tolerance = 0.1;
  bool as_json = false;
  arguments options(
      "eval logits", "Compares each step's most likely token and the first step's logits with those of an "
                     "independent program; exit status 1 if they differ.");
  options.option("--against", path, "JSON file with prompts, greedy ids, margins and first logits");
  options.required("--against");
  options.option(
      "--margin", margin, 0.0, 100.0, "steps whose two best logits are nearer than this may differ");
  options.option("--tolerance", logit_tolerance, 0.0, 100.0, "largest difference of a first-step logit");
  options.flag("--json", as_json, "print one JSON object");
  options.settings(all, evaluation_groups, evaluation_settings);
  if (!options.parse(words)) return 0;

  const auto golden = quant::read_golden(path);
  if (!golden)
    throw failure(golden.error().code, golden.error().message + "; give another file with --against");
  const evaluated_model loaded = load(all, quant::longest_case(*golden));
  const auto report =
      quant::compare_golden(*loaded.backend, loaded.model->program, *golden, {margin, 128, nullptr}).value();
  if (report.steps_compared == 0 && report.first_logits == 0)
    throw failure(
        errc::bad_file,
        path + ": nothing to compare: no step has a margin above --margin, and no first logit is listed");
  const bool agrees = report.mismatches.empty() && report.first_logit_difference <= logit_tolerance;
  if (as_json) {
    json::array mismatches;
    for (const quant::golden_mismatch& each : report.mismatches)
      mismatches.push_back(
          {{"prompt", each.name},
           {"step", each.step},
           {"expected", each.expected},
           {"got", each.got},
           {"margin", each.margin}});
    print_json(
        {{"agrees", agrees},
         {"cases", report.cases},
         {"steps", report.steps},
         {"steps_compared", report.steps_compared},
         {"mismatches", std::move(mismatches)},
         {"largest_mismatch_margin", report.largest_mismatch_margin},
         {"first_logit_difference", report.first_logit_difference},
         {"kernels", loaded.kernels}});
    return agrees ? 0 : 1;
  }
  for (const quant::golden_mismatch& each : report.mismatches)
    std::printf(
        "differs: \"%s\" step %u, margin %.4f: expected %d, got %d\n", one_line(each.name).c_str(), each.step,
        each.margin, each.expected, each.got);
  std::printf(
      "%u prompts, %u of %u steps compared, %zu differ; first-step logits within %.5f\n%s\n", report.cases,
      report.steps_compared, report.steps, report.mismatches.size(), report.first_logit_difference,
      loaded.kernels.c_str());
  return agrees ? 0 : 1;
}

} // namespace troupe::cli
