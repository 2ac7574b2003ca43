// SPDX-License-Identifier: Apache-2.0
// `troupe inspect`: what is in a model file, and whether it can be run.
#include "cli/arguments.hpp"
#include "cli/catalogue.hpp"
#include "cli/command.hpp"
#include "cli/text.hpp"
#include "models/chat_template.hpp"
#include "models/folder_tokenizer.hpp"
#include "models/generation_defaults.hpp"
#include "models/gguf_file.hpp"
#include "models/hf_folder.hpp"
#include "models/json_document.hpp"
#include "models/model.hpp"
#include "models/tokenizer.hpp"
#include "models/vocabulary_gguf.hpp"
#include "plugins/host/scheme_registry.hpp"
#include "runtime/base/byte_text.hpp"
#include "runtime/memory_facts.hpp"

#include <boost/json.hpp>

#include <cstdio>
#include <filesystem>
#include <map>

namespace troupe::cli {

namespace {

struct type_sum {
  std::uint64_t tensors = 0, elements = 0, bytes = 0;
  std::string_view scheme; // empty: readable, not runnable
};

void print_shape(const models::model_config& shape) {
  const auto number = [](std::uint64_t n) { return std::to_string(n); };
  print_fact(
      "architecture", shape.architecture + (shape.name.empty() ? "" : ", \"" + one_line(shape.name) + '"'));
  print_fact(
      "layers", number(shape.layers) + ", hidden " + number(shape.hidden) + ", feed-forward " +
                    number(shape.intermediate));
  print_fact(
      "attention", number(shape.heads) + " heads, " + number(shape.kv_heads) + " of keys and values, " +
                       number(shape.head_dim) + " wide");
  print_fact(
      "vocabulary",
      number(shape.vocab) + " tokens" + (shape.tied_head ? ", head tied to the embedding" : ""));
  print_fact("context", number(shape.context) + " positions");
}

void print_tokenizer(const models::tokenizer& tokenizer) {
  const models::vocabulary& words = tokenizer.vocab();
  const auto token = [&](const char* name, std::optional<models::token_id> id) {
    return id ? std::string(", ") + name + " " + std::to_string(*id) + " '" +
                    one_line(words.tokens[static_cast<std::size_t>(*id)]) + "'"
              : std::string();
  };
  print_fact(
      "tokenizer", std::to_string(words.tokens.size()) + " tokens" + token("BOS", words.bos) +
                       token("EOS", words.eos) + (words.add_bos ? ", BOS put before a text" : ""));
  for (const std::string& remark : words.remarks) print_fact("", one_line(remark));
}

// `rows`: of the model's embedding.
void print_lacking(const models::vocabulary& words, std::uint32_t rows) {
  if (const std::string lacking = models::tokens_without_row(words, rows); !lacking.empty())
    print_fact("", "the model has no row for " + lacking + "; a prompt with one is refused");
}

void print_template(const std::optional<std::string>& chat_template) {
  std::string chat = "none";
  if (chat_template) {
    const auto compiled = models::chat_template::compile(*chat_template);
    chat = human_bytes(chat_template->size()) +
           (compiled ? "" : ", cannot be read: " + one_line(compiled.error().message));
  }
  print_fact("chat template", chat);
}

// The first of what is wrong with a model. It is told at the end, after all that can be read.
class first_fault {
 public:
  template<class T>
  bool in(const result<T>& what) {
    if (!what && !fault_) fault_ = what.error();
    return !what;
  }
  explicit operator bool() const noexcept { return fault_.has_value(); }
  void raise() const {
    if (fault_) throw failure(*fault_);
  }

 private:
  std::optional<error> fault_;
};

void print_text_half(const models::model_config& shape) {
  if (shape.text_half) print_fact("", "reads images, too; that half is not used here");
}

void print_generation(const std::optional<std::string>& unapplied) {
  if (unapplied) print_fact("generation", *unapplied);
}

void print_forecast(const models::load_forecast& needs) {
  print_fact("memory", "weights " + human_bytes(needs.weight_bytes) + " once loaded");
  print_fact(
      "", "KV " + human_bytes(needs.kv_position_bytes) + " per token at 16 bits, " +
              human_bytes(needs.kv_bytes(needs.context, engine_options{}.max_step_tokens)) +
              " for one sequence of " + std::to_string(needs.context));
  const std::uint64_t available = runtime::read_memory_facts().available();
  if (available != runtime::memory_facts::unlimited)
    print_fact("", human_bytes(available) + " available here");
}

result<models::load_forecast> check_runnable(const models::gguf_file& file) {
  plugins::scheme_registry schemes;
  plugins::add_built_in_schemes(schemes).value();
  return models::check_model(file, [&](std::string_view id) { return schemes.find(id); });
}

void print_tensors(const models::tensor_source& source, bool each) {
  std::map<std::string_view, type_sum> sums;
  std::uint64_t parameters = 0;
  for (const models::model_tensor& tensor : source.tensors()) {
    const models::ggml_type_info& info = models::type_info(tensor.type);
    type_sum& sum = sums[info.name];
    sum.scheme = info.scheme;
    ++sum.tensors;
    sum.elements += tensor.elements;
    sum.bytes += tensor.data.size();
    parameters += tensor.elements;
  }
  print_fact(
      "parameters",
      std::to_string(parameters) + " in " + std::to_string(source.tensors().size()) + " tensors");
  for (const auto& [name, sum] : sums)
    print_fact(
        "", std::string(name) + ": " + std::to_string(sum.tensors) + " tensors, " +
                std::to_string(sum.elements) + " elements, " + human_bytes(sum.bytes) +
                (sum.scheme.empty() ? ", cannot be run" : ", run by " + std::string(sum.scheme)));
  for (const models::model_tensor& tensor : each ? source.tensors() : std::span<const models::model_tensor>{})
    std::printf("%-32s %s\n", one_line(tensor.name).c_str(), models::describe(tensor).c_str());
}

void inspect_file(const std::string& path, bool tensors, bool metadata) {
  const auto file = models::gguf_file::open(path).value();
  print_fact(
      "file", one_line(file.name()) +
                  (file.parts() > 1 ? " and " + std::to_string(file.parts() - 1) + " more" : std::string()) +
                  ", " + human_bytes(file.file_bytes()) + ", GGUF version " + std::to_string(file.version()) +
                  ", aligned to " + std::to_string(file.alignment()));
  first_fault fault;
  const bool words_only = file.tensors().empty();
  const auto shape = models::read_model_config(file);
  if (shape) {
    print_shape(*shape);
    print_text_half(*shape);
  } else if (const auto stated = file.get<std::string_view>("general.architecture")) {
    print_fact("architecture", one_line(*stated) + (words_only ? "" : ", cannot be run"));
  }
  if (metadata)
    for (const models::gguf_value& value : file.metadata())
      std::printf("%-32s %s\n", one_line(value.key).c_str(), models::describe(value).c_str());
  if (words_only)
    print_fact("weights", "none: the file holds a vocabulary only");
  else
    print_tensors(file, tensors);
  const auto needs = check_runnable(file);
  if (!words_only) fault.in(needs);

  const auto words = models::read_vocabulary(file);
  if (!fault.in(words)) {
    const auto tokenizer = models::make_tokenizer(*words);
    if (!fault.in(tokenizer)) {
      print_tokenizer(**tokenizer);
      if (shape && !words_only) print_lacking((*tokenizer)->vocab(), shape->vocab);
    }
  }
  const auto chat = models::read_chat_template(file);
  if (!fault.in(chat)) print_template(*chat);
  print_generation(models::unapplied_generation(file));
  fault.raise();
  if (needs) print_forecast(*needs);
}

void print_stated_architecture(const boost::json::object& config) {
  for (const char* key : {"model_type", "architectures"}) {
    const boost::json::value* stated = config.if_contains(key);
    if (stated && stated->is_array() && !stated->get_array().empty()) stated = &stated->get_array().front();
    if (!stated || !stated->is_string()) continue;
    print_fact("architecture", one_line(std::string_view(stated->get_string())) + ", cannot be run");
    return;
  }
}

// What config.json and the safetensors files say. FP8 and INT8 weights are listed as the type that they are
// loaded as. `rows`: of the embedding, when they are known.
std::optional<models::load_forecast> inspect_weights(
    const std::string& path, bool tensors, std::optional<std::uint32_t>& rows, first_fault& fault) {
  const auto folder = models::hf_folder::open(path);
  if (!fault.in(folder)) {
    print_fact(
        "folder", one_line(path) + ", " + human_bytes(folder->tensors.file_bytes()) + " of safetensors");
    print_shape(folder->config);
    print_text_half(folder->config);
    rows = folder->config.vocab;
    print_tensors(folder->tensors, tensors);
    const auto needs = models::check_folder(*folder);
    if (fault.in(needs)) return std::nullopt;
    return *needs;
  }
  print_fact("folder", one_line(path));
  const std::string name = path + "/config.json";
  const auto config = models::read_json_object(name);
  if (!config) return std::nullopt;
  if (const auto shape = models::read_model_config(*config, name))
    print_shape(*shape);
  else
    print_stated_architecture(*config);
  return std::nullopt;
}

void inspect_folder(const std::string& path, bool tensors) {
  first_fault fault;
  std::optional<models::load_forecast> needs;
  std::optional<std::uint32_t> rows;
  const auto text = models::make_tokenizer_from_folder(path);
  std::error_code ignored;
  if (text && !std::filesystem::exists(path + "/config.json", ignored)) {
    print_fact("folder", one_line(path));
    print_fact("weights", "none: the folder holds a vocabulary only");
  } else {
    needs = inspect_weights(path, tensors, rows, fault);
  }
  if (text) {
    print_tokenizer(*text->tokenizer);
    if (rows) print_lacking(text->tokenizer->vocab(), *rows);
    print_template(text->chat_template);
  } else if (text.error().code == errc::not_found) {
    print_fact("tokenizer", "none: " + one_line(text.error().message));
  } else {
    fault.in(text);
  }
  print_generation(models::unapplied_generation(path));
  fault.raise();
  if (needs) print_forecast(*needs);
}

} // namespace

int inspect_command(const std::vector<std::string>& words) {
  std::string path;
  bool tensors = false, metadata = false;
  arguments options(
      "inspect",
      "Checks a model file or folder and prints what is in it; exit status 1 if its weights cannot be run or "
      "something cannot be read.");
  options.positional("FILE", path, "GGUF file, Hugging Face folder or catalogue name", true);
  options.flag("--tensors", tensors, "list every tensor");
  options.flag("--metadata", metadata, "list every metadata key of a GGUF file");
  if (!options.parse(words)) return 0;
  const std::string resolved = resolve_model(path);
  const auto look = [&] {
    if (models::is_folder(resolved))
      inspect_folder(resolved, tensors);
    else
      inspect_file(resolved, tensors, metadata);
  };
  opening(resolved, look, true);
  return 0;
}

} // namespace troupe::cli
