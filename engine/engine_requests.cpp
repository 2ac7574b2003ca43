// SPDX-License-Identifier: Apache-2.0
// A request's way in and out: what is refused at the door, the actor it gets, its events and its end.
#include "actors/request_actor.hpp"
#include "engine/contained.hpp"
#include "engine/engine_state.hpp"
#include "engine/request_check.hpp"
#include "runtime/base/log.hpp"
#include "runtime/mailbox.hpp"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace troupe::detail {
namespace {

namespace asio = boost::asio;

constexpr std::uint32_t request_trace_records = 256;

std::uint32_t most_tokens(const request& asked) noexcept {
  return asked.max_tokens.value_or(actors::no_limit);
}

/// `max_tokens` of 0 leaves out the one new token that a prompt needs room for.
error too_long(std::string count, std::uint32_t limit, std::uint32_t max_tokens) {
  const std::string with = max_tokens > 0 ? "with one new token at most " + std::to_string(limit + 1)
                                          : "at most " + std::to_string(limit);
  return error{
      errc::context_length_exceeded,
      "the prompt has " + count + " tokens; " + with + " fit the model's context and the KV cache", "prompt",
      0};
}

} // namespace

held_prompt::held_prompt(
    prompt given, bool parse_special, std::shared_ptr<std::atomic<std::uint64_t>> counter) :
    what(std::move(given)),
    special(parse_special), backlog(std::move(counter)), bytes(prompt_bytes(what)) {
  *backlog += bytes;
}

held_prompt::~held_prompt() {
  *backlog -= bytes;
}

/// Ids of the longest prompt that leaves room for one new token, if one is to be drawn.
std::uint32_t engine_state::prompt_limit(std::uint32_t max_tokens) const noexcept {
  const std::uint32_t positions =
      host->kv_groups.longest(host->memory.kv_blocks, options.max_step_tokens, host->context);
  return max_tokens > 0 && positions > 0 ? positions - 1 : positions;
}

// ---- a request's way in ----

stream engine_state::submit(request what) {
  // One id for each sequence; a request of more than are allowed is refused before it uses any.
  const std::uint64_t id =
      next_id_.fetch_add(std::clamp<std::uint64_t>(sequence_count(what), 1, max_request_sequences));
  ++submitted_;
  auto client = std::make_shared<stream_state>(executor, id, weak_from_this());
  asio::dispatch(executor, [self = shared_from_this(), id, client, asked = std::move(what)]() mutable {
    self->begin(id, std::move(client), std::move(asked));
  });
  return stream(std::move(client));
}

/// Every event of every request goes this way, so that each end is counted, once.
void engine_state::tell(stream_state& client, stream_event event) {
  if (is_terminal(event) && !client.ended()) count_end(event);
  client.push(std::move(event));
}

void engine_state::refuse(stream_state& client, error why) {
  tell(client, failed_event{std::move(why)});
}

/// Why the engine takes no request of so many sequences now.
std::optional<error> engine_state::refusal(const stream_state& client, std::uint64_t sequences) const {
  switch (stage_.load()) {
  case stage::new_made:
  case stage::loading:
    return error{errc::model_loading, "the model is being loaded", {}, 1000};
  case stage::failed:
    return start_failure_;
  case stage::down:
    return error{errc::executor_failed, "the engine is not running: it failed too often", {}, 0};
  case stage::over:
  case stage::draining:
    return error{errc::draining, "the engine is shutting down", {}, 0};
  case stage::ready:
    break;
  }
  if (client.cancelled) return error{errc::cancelled, "the client cancelled", {}, 0};
  if (live_.size() + sequences > most_live())
    return error{errc::queue_full, "too many requests are in flight: try again", {}, 1000};
  return std::nullopt;
}

/// Why this prompt is not taken: it can never fit, or the text thread has enough to do.
std::optional<error> engine_state::prompt_refusal(const prompt& asked, std::uint32_t max_tokens) const {
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&asked)) {
    const std::uint32_t limit = prompt_limit(max_tokens);
    if (ids->size() > limit) return too_long(std::to_string(ids->size()), limit, max_tokens);
    return std::nullopt;
  }
  const std::uint64_t waiting = prompt_backlog_->load();
  if (waiting > 0 && waiting + prompt_bytes(asked) > prompt_backlog_bytes)
    return error{errc::queue_full, "too much text waits to be tokenised: try again", {}, 1000};
  return std::nullopt;
}

std::optional<error> engine_state::prompts_refusal(const request& asked) const {
  const auto refused = [&](const prompt& one) -> std::optional<error> {
    if (auto why = prompt_refusal(one, most_tokens(asked))) return why;
    if (blame_.poisoned(prompt_digest(one)))
      return error{errc::poison_request, "the engine failed twice over a request with this prompt", {}, 0};
    return std::nullopt;
  };
  if (auto why = refused(asked.prompt)) return why;
  for (const prompt& one : asked.further_prompts)
    if (auto why = refused(one)) return why;
  return std::nullopt;
}

void engine_state::begin(std::uint64_t id, std::shared_ptr<stream_state> client, request asked) {
  const std::uint64_t sequences = sequence_count(asked);
  if (auto why = refusal(*client, 1)) return refuse(*client, std::move(*why));
  if (auto checked = check_request(asked, host->info.vocabulary); !checked)
    return refuse(*client, checked.error());
  if (const std::uint64_t places = std::uint64_t{options.max_batch} + options.max_queue; sequences > places)
    return refuse(
        *client, {errc::bad_request,
                  "the request has " + std::to_string(sequences) + " sequences; this server has places for " +
                      std::to_string(places),
                  asked.further_prompts.empty() ? "n" : "prompt", 0});
  if (auto why = refusal(*client, sequences)) return refuse(*client, std::move(*why));
  if (auto why = prompts_refusal(asked)) return refuse(*client, std::move(*why));
  if (sequences > 1) return open_group(id, std::move(client), std::move(asked));
  opening one = opening_of(asked.prompt, asked);
  one.id = id;
  if (auto opened = open(std::move(one), client, std::move(asked)); !opened) {
    live_.erase(id);
    cast_->requests.erase(id);
    refuse(*client, opened.error());
  }
}

/// What all choices of one prompt have in common. Takes the prompt, so `asked` no longer tells what it was.
engine_state::opening engine_state::opening_of(prompt& taken, const request& asked) const {
  opening one;
  one.digest = prompt_digest(taken);
  one.score_prompt = asked.echo && asked.logprobs;
  one.continues = !std::holds_alternative<chat_prompt>(taken);
  if (const auto* text = std::get_if<std::string>(&taken); text != nullptr && asked.echo)
    one.given = std::make_shared<const std::string>(*text);
  one.text = std::make_shared<const held_prompt>(std::move(taken), asked.parse_special, prompt_backlog_);
  return one;
}

result<void> engine_state::open(opening what, std::shared_ptr<stream_state> client, request asked) {
  const std::uint64_t id = what.id;
  live_request live;
  live.client = std::move(client);
  live.name = asked.name;
  live.digest = what.digest;
  live.group = what.group;
  live.most_tokens = most_tokens(asked);
  // Distinct per sequence, reproducible from the trace.
  const std::uint64_t seed =
      asked.sampling.seed.value_or((environment.seed << 20) ^ (id * 0x9E3779B97F4A7C15U));
  auto o = actors::make_request_options({0, generation_, id}, asked, seed, options.stream_credit);
  o.prompt_tokens = actors::estimated_tokens(what.text->what);
  o.score_prompt = what.score_prompt;
  o.group = what.group;
  o.slow_consumer = std::chrono::milliseconds(options.slow_consumer_ms);
  o.model = host->info.name;
  o.system_fingerprint = host->info.system_fingerprint;
  auto text =
      host->make_text({asked.stop, !asked.skip_special_tokens, what.continues, std::move(what.given)});
  live.text = std::move(what.text);
  if (!options.trace_dir.empty()) {
    live.trace = std::make_unique<request_trace>();
    live.trace->asked = std::move(asked); // its prompt comes as ids, when they are known
    live.trace->asked.sampling.seed = seed;
    live.trace->model_path = host->info.path;
    live.trace->system_fingerprint = host->info.system_fingerprint;
    live.trace->isa = host->isa;
    live.trace->reference = options.reference;
    live.trace->context = host->context;
    live.trace->chat = !what.continues;
    live.trace->plans.push_back({0, host->plan_number, false});
  }

  runtime::spawn_options spawning;
  spawning.drain_budget = environment.drain_budget;
  spawning.name = "request/" + std::to_string(id);
  spawning.mailbox.control = {actors::request_slots, std::uint64_t{actors::request_slots} << 12};
  spawning.mailbox.stream = {64, 256U << 10};
  spawning.trace_records = request_trace_records;
  spawning.on_exit = [weak = weak_from_this(), id](const runtime::exit_report& report) {
    if (report.reason != runtime::exit_reason::crashed) return;
    auto self = weak.lock();
    if (!self) return;
    log().error("request {} crashed at {}: {}", id, report.crash.message, report.crash.what);
    self->unreachable({0, self->generation_, id});
  };
  live_.emplace(id, std::move(live));
  auto spawned = runtime::spawn<actors::request_actor>(
      system, executor, std::move(spawning), std::move(o), std::move(text), cast_);
  if (!spawned) return spawned.error();
  live_[id].actor = *spawned;
  cast_->requests.emplace(id, actors::cast_request{*spawned});
  watch_memory();
  return {};
}

void engine_state::tokenize(actors::request_id id) {
  const auto found = live_.find(id.number);
  if (found == live_.end() || !found->second.text) return;
  live_request& live = found->second;
  asio::post(
      environment.background,
      [h = host, text = std::exchange(live.text, nullptr), actor = live.actor, id, most = live.most_tokens,
       limit = prompt_limit(live.most_tokens), ex = tracked(executor), owner = weak_from_this(),
       group = live.group, told_here = live.group != 0 || live.trace != nullptr]() mutable {
        if (!text->encoded)
          text->encoded = contained("tokenising", [&]() -> result<actors::token_list> {
            auto encoded = h->encode(text->what, text->special, limit);
            if (!encoded) return encoded.error();
            return std::make_shared<const std::vector<std::int32_t>>(std::move(*encoded));
          });
        const result<actors::token_list> ids = *text->encoded;
        text.reset();
        // Before the actor hears of it: what it does with the prompt may be over before this thread goes on.
        // The engine is told for the trace, and of a choice of several, when all of its request's prompts are
        // known.
        if (ids && told_here)
          asio::post(ex, [owner, group, number = id.number, tokens = *ids] {
            if (auto self = owner.lock()) self->prompt_known(group, number, tokens);
          });
        auto told = runtime::enqueue_result::ok;
        if (ids)
          told = actor.tell(actors::prompt_ready{id, *ids});
        else if (ids.error().code == errc::context_length_exceeded)
          told = actor.tell(
              actors::prompt_failed{id, too_long("more than " + std::to_string(limit), limit, most)});
        else
          told = actor.tell(actors::prompt_failed{id, ids.error()});
        if (told == runtime::enqueue_result::full)
          asio::post(ex, [owner, id] {
            if (auto self = owner.lock()) self->unreachable(id);
          });
      });
}

// ---- a request's way out ----

void engine_state::emit(actors::request_id id, stream_event event) {
  const auto found = live_.find(id.number);
  if (found == live_.end()) return;
  live_request& live = found->second;
  if (live.trace) remember(live, event);
  // What is told in a recovery was drawn before the crash.
  if (const auto* token = std::get_if<token_event>(&event); token != nullptr && !token->echo && !crashed_)
    blame_.drew_token({id.number, live.digest});
  if (std::holds_alternative<done_event>(event)) blame_.answered({id.number, live.digest});
  if (live.group == 0) return tell(*live.client, std::move(event));
  const auto group = groups_.find(live.group);
  if (group == groups_.end()) return;
  const auto member = static_cast<std::uint32_t>(id.number - group->first);
  choice_group::output out;
  group->second.joined.take(member, std::move(event), out);
  carry_out(group->first, member, std::move(out));
}

void engine_state::remember_prompt(live_request& live, const std::vector<std::int32_t>& ids) {
  if (!live.trace || live.prompt_traced) return;
  live.trace->asked.prompt = ids;
  live.prompt_traced = true;
}

void engine_state::remember(live_request& live, const stream_event& event) {
  if (const auto* accepted = std::get_if<accepted_event>(&event))
    remember_prompt(live, accepted->prompt_token_ids);
  if (const auto* token = std::get_if<token_event>(&event); token != nullptr && !token->echo) {
    live.trace->token_ids.insert(
        live.trace->token_ids.end(), token->token_ids.begin(), token->token_ids.end());
    live.trace->text += token->text;
  }
  if (const auto* done = std::get_if<done_event>(&event)) live.trace->reason = done->reason;
  const auto* failed = std::get_if<failed_event>(&event);
  if (failed == nullptr) return;
  if (failed->why.code == errc::cancelled)
    live.trace->reason = finish_reason::cancelled;
  else
    live.trace->failed = trace_failure{std::string(code_name(failed->why.code)), failed->why.message};
}

/// Of what ended before it was tokenised nothing could be run again.
void engine_state::finish_trace(std::uint64_t id, live_request& live) {
  if (!live.trace || !live.prompt_traced) return;
  asio::post(
      environment.background,
      [t = std::shared_ptr<request_trace>(std::move(live.trace)), dir = options.trace_dir, run = run_, id] {
        auto written = contained("writing a trace", [&] { return write_trace(*t, dir, run, id); });
        if (!written) log().error("{}", written.error().message);
      });
}

void engine_state::retired(actors::request_id id) {
  cast_->requests.erase(id.number);
  const auto found = live_.find(id.number);
  if (found == live_.end()) return;
  blame_.gone(id.number);
  finish_trace(id.number, found->second);
  const auto group = groups_.find(found->second.group);
  live_.erase(found);
  if (live_.empty()) cancel_timer(memory_timer_);
  if (group != groups_.end() && --group->second.alive == 0) close_group(group->first);
  if (returning_.erase(id.number) != 0) tell_of_drain();
  finish_drain();
}

/// The end of a request whose actor is gone, or cannot be told what it waits for.
void engine_state::unreachable(actors::request_id id) {
  const auto found = live_.find(id.number);
  if (found == live_.end()) return;
  id.generation = generation_; // as the scheduler knows it
  found->second.actor.stop();
  if (cast_->scheduler.tell(actors::cancel{id, error{errc::internal, "the request failed", {}, 0}}) ==
      runtime::enqueue_result::full)
    log().error("request {}: its place could not be given back", id.number);
  emit(id, failed_event{{errc::internal, "the request failed inside the engine", {}, 0}});
  retired(id);
}

/// The number stands for all reads so far: should the message find no memory, the next one makes up for it.
void engine_state::tell_of_events(std::uint64_t id, std::uint32_t more) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  found->second.events_taken += more;
  (void)found->second.actor.tell(actors::events_read{{0, generation_, id}, found->second.events_taken});
}

void engine_state::event_read(std::uint64_t stream_id, std::uint32_t index) {
  const auto group = groups_.find(stream_id);
  if (group != groups_.end() && group->second.joined.chooses()) return; // they were read as they came
  const std::uint64_t id = group == groups_.end() ? stream_id : stream_id + index;
  tell_of_events(id, 1);
  if (group != groups_.end()) tell_of_reading(stream_id);
}

void engine_state::cancel_stream(std::uint64_t stream_id) {
  asio::dispatch(executor, [self = shared_from_this(), stream_id] {
    const auto group = self->groups_.find(stream_id);
    const std::uint32_t members = group == self->groups_.end() ? 1 : group->second.joined.members();
    for (std::uint32_t m = 0; m < members; ++m) self->cancel_sequence(stream_id + m);
  });
}

void engine_state::cancel_sequence(std::uint64_t id) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  const actors::request_id named{0, generation_, id};
  if (found->second.actor.tell(actors::client_cancel{
          named, error{errc::cancelled, "the client cancelled", {}, 0}}) == runtime::enqueue_result::full)
    unreachable(named);
}

} // namespace troupe::detail
