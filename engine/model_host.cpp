// SPDX-License-Identifier: Apache-2.0
#include "engine/model_host.hpp"

#include "actors/scheduler_core.hpp"
#include "engine/load_watch.hpp"
#include "engine/memory_watch.hpp"
#include "kernels/cpu_backend.hpp"
#include "models/chat_template.hpp"
#include "models/detokenizer.hpp"
#include "models/folder_tokenizer.hpp"
#include "models/generation_defaults.hpp"
#include "models/gguf_file.hpp"
#include "models/hf_folder.hpp"
#include "models/mapped_file.hpp"
#include "models/model.hpp"
#include "models/tokenizer.hpp"
#include "plugins/host/scheme_registry.hpp"
#include "runtime/base/log.hpp"
#include "runtime/memory_facts.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <new>
#include <optional>
#include <span>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace troupe::detail {
namespace {

// What a request costs. Its text is counted in prompt_backlog_bytes, and gone once it is tokenised.

/// Of its own, running or waiting: the actor with its mailbox and its trace ring, the connection's coroutine.
constexpr std::uint64_t request_bytes = 64U << 10;
/// Of one position while it runs: the id with the request and with the scheduler, which grow by doubling, and
/// with the executor, the block tables and prefix hashes of its share of a block; another byte for each
/// further layer group.
constexpr std::uint64_t position_bytes = 5 * sizeof(std::int32_t) + 1;
/// Of an unread event beside its struct: ids and text.
constexpr std::uint64_t event_payload_bytes = 64;
/// What a connection holds unsent before its request pauses (server.unsent_bytes).
constexpr std::uint64_t unsent_bytes = 64U << 10;
/// Of a KV block in the ledger and, with its tokens, in the index of prefixes: by hash and in order.
std::uint64_t ledger_bytes(const kernels::kv_groups& groups) {
  return 192 + (std::uint64_t{groups.block_tokens()} + groups.size()) * sizeof(std::int32_t);
}

/// The host of a model file.
class file_host final : public model_host {
 public:
  ~file_host() override { backend.reset(); } // waits for its step before weights and schemes go

  result<std::vector<std::int32_t>>
  encode(const prompt& what, bool special, std::size_t max_ids) const override;
  result<std::string> render(const chat_prompt& what) const override;
  result<std::vector<std::int32_t>> tokenize(std::string_view text, bool special, bool bos) const override {
    models::encode_options o;
    o.parse_special = special;
    o.add_bos = bos;
    return tokenizer->encode(text, o);
  }
  result<lost_text> find_lost(std::string_view text, bool special) const override {
    models::encode_options o;
    o.parse_special = special;
    const auto found = models::find_lost(*tokenizer, text, o);
    if (!found) return found.error();
    return lost_text{found->count, found->first};
  }
  std::string detokenize(std::span<const std::int32_t> ids, bool special) const override {
    return models::detokenize(*tokenizer, ids, special);
  }
  std::unique_ptr<actors::token_text> make_text(const actors::text_options& how) const override {
    return actors::make_token_text(*tokenizer, how);
  }

  result<models::jinja::rendered_text> apply_template(const chat_prompt& what) const;
  /// `ids` as they are, unless the model lacks one of them: such an id would fail a step for everybody in it.
  result<std::vector<std::int32_t>> checked(std::vector<std::int32_t> ids, const char* field) const;

  plugins::scheme_registry schemes;
  std::shared_ptr<const models::model> model;
  std::unique_ptr<const models::tokenizer> tokenizer;
  std::unique_ptr<const models::chat_template> chat; ///< null: the file has none, or one that cannot be read
  std::optional<error> chat_fault;                   ///< why it cannot be read
};

/// What a model is read from: a GGUF file with all its parts, or a folder's weights and the files beside them
/// that count. Files that only lie there are not looked at. Move-only.
struct model_files {
  std::optional<models::gguf_file> file; ///< one of the two is there
  std::optional<models::hf_folder> folder;
  std::vector<models::mapped_file> side; ///< of a folder: configuration, tokenizer, chat template

  static result<model_files> open(const std::string& path);

  const models::tensor_source& tensors() const {
    return file ? static_cast<const models::tensor_source&>(*file) : folder->tensors;
  }
  /// In a fixed order.
  std::vector<std::span<const std::byte>> contents() const {
    auto all = tensors().contents();
    for (const models::mapped_file& each : side) all.push_back(each.bytes());
    return all;
  }
};

result<model_files> model_files::open(const std::string& path) {
  model_files files;
  if (!models::is_folder(path)) {
    auto file = models::gguf_file::open(path);
    if (!file) return file.error();
    files.file = std::move(*file);
    return files;
  }
  auto folder = models::hf_folder::open(path);
  if (!folder) return folder.error();
  files.folder = std::move(*folder);
  for (const std::string& name : models::side_files(path)) {
    auto each = models::mapped_file::open(name);
    if (!each) return each.error();
    files.side.push_back(std::move(*each));
  }
  return files;
}

/// Pages of a mapped file that were read count as resident until the system wants them back, or is told.
void let_go(std::span<const std::byte> mapped) noexcept {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(mapped.data());
  const std::uintptr_t skipped = address % page;
  (void)::madvise(
      const_cast<std::byte*>(mapped.data()) - skipped, mapped.size() + skipped, MADV_DONTNEED); // advice only
}

/// So that a start never holds a model twice: what was packed is let go of as the loading proceeds.
void let_go_while_loading(models::model_options& options, const model_files& files) {
  constexpr std::uint64_t at_once = std::uint64_t{32} << 20;
  options.progress = [tell = std::move(options.progress), parts = files.contents(),
                      next = at_once](std::uint64_t done, std::uint64_t total) mutable {
    if (done >= next) {
      next = done + at_once;
      std::ranges::for_each(parts, let_go);
    }
    if (tell) tell(done, total);
  };
}

constexpr std::size_t hashed_at_once = std::size_t{16} << 20; // between two looks at `stop`

/// Errors: shutdown. Reads every byte, from the disk where they are not in memory.
result<std::uint64_t> content_hash(const model_files& files, const std::stop_token& stop) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (state == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  for (std::span<const std::byte> rest : files.contents())
    while (!rest.empty()) {
      if (stop.stop_requested()) return error{errc::shutdown, "loading was stopped", {}, 0};
      const auto part = rest.first(std::min(rest.size(), hashed_at_once));
      XXH3_64bits_update(state.get(), part.data(), part.size());
      let_go(part);
      rest = rest.subspan(part.size());
    }
  return XXH3_64bits_digest(state.get());
}

/// Tells which numbers an answer came from: the files' content, the plan and the kernels.
std::string fingerprint(std::uint64_t content, const models::execution_plan& plan, kernels::isa level) {
  char text[64];
  const char* kv = plan.kv == kernels::kv_type::f32   ? "f32"
                   : plan.kv == kernels::kv_type::f16 ? "f16"
                                                      : "bf16";
  std::snprintf(
      text, sizeof text, "%016llx-p%llu-%s-%s", static_cast<unsigned long long>(content),
      static_cast<unsigned long long>(plan.number), std::string(kernels::isa_name(level)).c_str(), kv);
  return text;
}

result<std::optional<kernels::isa>> wanted_isa(const engine_options& options) {
  if (options.reference) return std::optional(kernels::isa::ref);
  if (options.isa.empty()) return std::optional<kernels::isa>();
  const auto level = kernels::parse_isa(options.isa);
  if (!level || *level > kernels::isa::avx512) // no kernel of ours needs more
    return error{
        errc::bad_config, "isa is \"" + options.isa + "\", one of ref, avx2, avx512 is allowed", "isa", 0};
  if (*level > kernels::best_isa())
    return error{
        errc::unsupported,
        "isa is " + options.isa + ", this machine has " + std::string(kernels::isa_name(kernels::best_isa())),
        "isa", 0};
  return std::optional(*level);
}

void describe_model(
    file_host& host, const engine_options& options, kernels::isa level, std::string fingerprint_text) {
  const models::model& m = *host.model;
  model_info& info = host.info;
  info.name = options.model_name;
  if (info.name.empty()) { // the file's or folder's own name, without what leads to it and its ending
    info.name = options.model_path;
    while (info.name.size() > 1 && info.name.back() == '/') info.name.pop_back();
    info.name.erase(0, info.name.find_last_of('/') + 1);
    if (info.name.size() > 5 && info.name.ends_with(".gguf")) info.name.resize(info.name.size() - 5);
  }
  info.architecture = m.config.architecture;
  // Traces are replayed from other folders.
  std::error_code nowhere;
  info.path = std::filesystem::absolute(options.model_path, nowhere).string();
  if (nowhere) info.path = options.model_path;
  info.context = host.context;
  info.vocabulary = m.config.vocab;
  info.layers = m.config.layers;
  info.end_of_sequence = models::end_of_generation_ids(host.tokenizer->vocab());
  std::erase_if(info.end_of_sequence, [&](std::int32_t id) { // never drawn
    return static_cast<std::uint32_t>(id) >= m.config.vocab;
  });
  info.has_chat_template = host.chat != nullptr;
  info.kernels = kernels::describe_kernels(*host.program, level) + "; " + host.backend->describe();
  info.system_fingerprint = std::move(fingerprint_text);
}

/// What all requests hold that may be in hand, beside KV and scratch.
std::uint64_t
request_buffers(const engine_options& options, std::uint64_t context, const kernels::kv_groups& groups) {
  const std::uint64_t events = options.stream_credit * (sizeof(stream_event) + event_payload_bytes);
  const std::uint64_t running =
      request_bytes + context * (position_bytes + groups.size() - 1) + events + unsent_bytes;
  const std::uint64_t prompts = std::uint64_t{options.max_queue} * context * sizeof(std::int32_t);
  return options.max_batch * running + options.max_queue * request_bytes +
         std::min(options.max_queue_bytes, prompts) + prompt_backlog_bytes;
}

/// The weights are in memory already, and everything else that this process holds: what was freed while
/// loading is not counted against the plan.
result<memory_plan> forecast(const file_host& host, const engine_options& options) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  const memory_sample now = read_memory_sample();
  const kernels::step_program& program = *host.model->program;
  memory_demand demand;
  demand.weights = host.model->weight_bytes;
  demand.program = now.resident - std::min(now.resident, demand.weights);
  demand.data = now.mapped;
  demand.kv_block = program.kv.bytes_per_block();
  demand.kv_block_tokens = program.kv.block_tokens;
  demand.kv_windows = program.kv.windows;
  demand.max_step_tokens = options.max_step_tokens;
  demand.kv_block_ledger = ledger_bytes(program.kv.groups());
  demand.activations = host.backend->scratch_bytes(
      program, options.max_step_tokens, options.max_batch + actors::default_scored_rows);
  demand.buffers = request_buffers(options, host.context, program.kv.groups());
  demand.context = host.context;
  demand.max_batch = options.max_batch;
  demand.kv_memory = options.kv_memory_bytes;
  if (options.park_ram_bytes > 0) {
    const auto park = [&](std::uint64_t disk) {
      return actors::park_store::bytes_of({demand.kv_block, options.park_ram_bytes, disk, {}});
    };
    demand.park = park(options.park_disk_bytes);
    demand.park_disk = demand.park - park(0);
  }
  auto plan = plan_memory(demand, available_memory() + std::max(now.resident, demand.weights));
  if (!plan) return plan;
  if (auto fits = check_data_limit(*plan, runtime::read_memory_facts().data_limit); !fits)
    return fits.error();
  return plan;
}

} // namespace

result<models::jinja::rendered_text> file_host::apply_template(const chat_prompt& what) const {
  if (chat_fault) return *chat_fault;
  if (!chat)
    return error{
        errc::unsupported, "the model " + info.name + " has no chat template: use completions", "messages",
        0};
  // The bytes of messages are the client's; roles are compared by templates and printed, so they are too.
  models::jinja::heap values;
  std::vector<models::jinja::value> messages;
  for (const chat_message& m : what.messages) {
    models::jinja::dict_object* entry = values.make_dict();
    const auto set = [&](std::string_view key, std::string_view text) {
      entry->set(
          models::jinja::value::of(values.make_text(key)),
          models::jinja::value::of(values.make_text(text, true)));
    };
    set("role", m.role);
    set("content", m.content);
    messages.push_back(models::jinja::value::of(entry));
  }
  models::chat_context given;
  given.messages = models::jinja::value::of(values.make_list(std::move(messages)));
  given.add_generation_prompt = what.add_generation_prompt;
  models::set_names(given, tokenizer->vocab(), values);
  const std::time_t now = std::time(nullptr);
  localtime_r(&now, &given.now);
  auto rendered = chat->render(given);
  if (!rendered) return error{rendered.error().code, rendered.error().message, "messages", 0};
  return rendered;
}

result<std::string> file_host::render(const chat_prompt& what) const {
  auto rendered = apply_template(what);
  if (!rendered) return rendered.error();
  return std::move(rendered->text);
}

result<std::vector<std::int32_t>> file_host::checked(std::vector<std::int32_t> ids, const char* field) const {
  auto known = models::check_rows(tokenizer->vocab(), ids, model->config.vocab);
  if (!known) return error{known.error().code, std::move(known.error().message), field, 0};
  return ids;
}

result<std::vector<std::int32_t>>
file_host::encode(const prompt& what, bool special, std::size_t max_ids) const {
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&what)) return *ids;
  models::encode_options o;
  o.max_ids = max_ids;
  if (const auto* text = std::get_if<std::string>(&what)) {
    o.parse_special = special;
    o.add_bos = tokenizer->vocab().add_bos;
    auto ids = tokenizer->encode(*text, o);
    if (!ids) return ids;
    return checked(std::move(*ids), "prompt");
  }
  auto rendered = apply_template(std::get<chat_prompt>(what));
  if (!rendered) return rendered.error();
  o.parse_special = true;
  o.untrusted = rendered->untrusted;
  auto ids = tokenizer->encode(rendered->text, o);
  if (!ids) return ids;
  return checked(std::move(*ids), "messages");
}

namespace {

/// A template that cannot be read takes chat away, not the model.
void compile_chat(file_host& host, const std::string& source, const std::string& path) {
  auto chat = models::chat_template::compile(source);
  if (chat) {
    host.chat = std::make_unique<const models::chat_template>(std::move(*chat));
    return;
  }
  log().warn("{}: chat template: {}; chat is off", path, chat.error().message);
  host.chat_fault = error{
      errc::bad_template, "the model's chat template cannot be read: " + chat.error().message, "messages", 0};
}

/// The text side of a folder, whose files are its own.
result<void> load_folder_text(file_host& host, const std::string& path) {
  auto text = models::make_tokenizer_from_folder(path);
  if (!text) return text.error();
  host.tokenizer = std::move(text->tokenizer);
  if (text->chat_template) compile_chat(host, *text->chat_template, path);
  return {};
}

/// The text side of a GGUF file, which came with the model.
result<void> load_file_text(file_host& host, const std::string& path) {
  auto tokenizer = models::make_tokenizer(host.model->vocabulary);
  if (!tokenizer) return tokenizer.error();
  host.tokenizer = std::move(*tokenizer);
  if (host.model->chat_template) compile_chat(host, *host.model->chat_template, path);
  return {};
}

/// What of a model is used in a way that its file does not show.
void tell_of_reading(const models::model& m, const std::string& path) {
  if (m.config.text_half) log().info("{}: the vision half is not used", path);
  if (!m.config.rope.long_factors.empty() || !m.weights.long_rope_factors.empty())
    log().info(
        "{}: LongRoPE: sequences of up to {} tokens take the short factors; one that grows longer is "
        "computed anew with the long ones",
        path, m.config.rope.original_context);
}

/// The model, and its text side: a folder's first, because the KV type is chosen with its BOS.
result<void> load_model_and_text(
    file_host& host, const model_files& files, const std::string& path, models::model_options options) {
  if (files.folder) {
    if (auto text = load_folder_text(host, path); !text) return text;
    options.bos = host.tokenizer->vocab().bos;
  }
  auto model =
      files.folder ? models::load_model(*files.folder, options) : models::load_model(*files.file, options);
  if (!model) return model.error();
  host.model = std::move(*model);
  if (files.file)
    if (auto text = load_file_text(host, path); !text) return text;
  tell_of_reading(*host.model, path);
  if (const auto unapplied =
          files.folder ? models::unapplied_generation(path) : models::unapplied_generation(*files.file))
    log().info("{}: {}", path, *unapplied);
  const std::string lacking = models::tokens_without_row(host.tokenizer->vocab(), host.model->config.vocab);
  if (!lacking.empty())
    log().warn("{}: the model has no row for {}; a prompt with one is refused", path, lacking);
  return {};
}

/// That memory for `what` could not be had, or that loading was stopped.
error not_taken(std::string_view what, error why) {
  if (why.code == errc::no_memory) why.message = std::string(what) + ": " + why.message;
  return why;
}

/// KV pool and scratch, at once and wholly: what is not there is missed now and not in a step.
result<void> take_memory(file_host& host, const engine_options& options, const std::stop_token& stop) {
  const kernels::step_program& program = *host.model->program;
  if (auto pool = host.backend->create_pool(program.kv, host.memory.kv_blocks, stop); !pool)
    return not_taken("KV memory", pool.error());
  auto scratch = host.backend->reserve(
      program, options.max_step_tokens, options.max_batch + actors::default_scored_rows);
  if (!scratch) return not_taken("activations", scratch.error());
  return scratch;
}

} // namespace

host_result load_model_host(const engine_options& options, std::stop_token stop) {
  auto level = wanted_isa(options);
  if (!level) return level.error();
  auto files = model_files::open(options.model_path);
  if (!files) return files.error();

  auto host = std::make_shared<file_host>();
  if (auto added = plugins::add_built_in_schemes(host->schemes); !added) return added.error();
  models::model_options model_options;
  model_options.find_scheme = [h = host.get()](std::string_view id) { return h->schemes.find(id); };
  model_options.reference = options.reference;
  model_options.threads = options.threads;
  watch_loading(
      model_options, {.path = options.model_path,
                      .file_bytes = files->tensors().file_bytes(),
                      .context = options.max_context,
                      .kv_memory = options.kv_memory_bytes,
                      .chunk = options.max_step_tokens,
                      .tell = options.on_loading});
  let_go_while_loading(model_options, *files);
  model_options.stop = stop;
  if (auto loaded = load_model_and_text(*host, *files, options.model_path, std::move(model_options)); !loaded)
    return loaded.error();
  for (const std::string& remark : host->tokenizer->vocab().remarks)
    log().warn("{}: tokenizer: {}", options.model_path, remark);

  kernels::cpu_backend_options backend_options;
  backend_options.level = *level;
  backend_options.threads = options.threads;
  auto backend = kernels::make_cpu_backend(backend_options);
  if (!backend) return backend.error();
  const kernels::isa used = (*backend)->level();
  host->backend = std::shared_ptr<kernels::backend>(std::move(*backend));

  if (stop.stop_requested()) return error{errc::shutdown, "loading was stopped", {}, 0};
  host->context = host->model->config.context;
  if (options.max_context > 0) host->context = std::min(host->context, options.max_context);
  const auto content = content_hash(*files, stop);
  if (!content) return content.error();
  // The files' pages are resident while they are mapped. From here on only what will stay is.
  files = model_files{};
  auto memory = forecast(*host, options);
  if (!memory) return memory.error();
  host->memory = *memory;
  if (auto taken = take_memory(*host, options, stop); !taken) return taken.error();
  if (options.park_ram_bytes > 0) {
    auto park = actors::park_store::make(
        {host->model->program->kv.bytes_per_block(), options.park_ram_bytes, options.park_disk_bytes,
         options.park_folder},
        stop);
    if (!park) return park.error();
    host->park = std::move(*park);
  }
  host->kv_groups = host->model->program->kv.groups();
  host->plan_number = host->model->plan.number;
  host->program = host->model->program;
  // Kernels, not CPUs: machines that run the same ones give the same numbers.
  const kernels::isa highest = kernels::highest_kernel(*host->program, used);
  host->isa = kernels::isa_name(highest);
  describe_model(*host, options, used, fingerprint(*content, host->model->plan, highest));
  return std::shared_ptr<const model_host>(std::move(host));
}

} // namespace troupe::detail
