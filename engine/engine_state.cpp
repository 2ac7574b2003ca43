// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_state.hpp"

#include "actors/cache_actor.hpp"
#include "actors/executor_actor.hpp"
#include "actors/guard_actor.hpp"
#include "actors/request_actor.hpp"
#include "actors/scheduler_actor.hpp"
#include "engine/request_check.hpp"
#include "runtime/base/log.hpp"
#include "runtime/mailbox.hpp"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include <algorithm>
#include <exception>
#include <new>
#include <random>
#include <xxhash.h>

namespace troupe::detail {
namespace {

namespace asio = boost::asio;

constexpr std::uint32_t door_slack = 256; // requests between submission and the scheduler's answer
constexpr std::uint32_t request_trace_records = 256;
constexpr std::uint32_t cache_slots_per_request = 2, executor_slots_per_request = 2;

actors::scheduler_options scheduler_options_of(const engine_options& o) {
  actors::scheduler_options s;
  s.max_batch = o.max_batch;
  s.max_step_tokens = o.max_step_tokens;
  s.max_wait = std::chrono::milliseconds(o.max_wait_ms);
  s.max_queue = o.max_queue;
  s.queue_timeout = std::chrono::milliseconds(o.queue_timeout_ms);
  s.kv_high_watermark = o.kv_high_watermark;
  s.kv_low_watermark = o.kv_low_watermark;
  s.preempt_every = o.preempt_every;
  return s;
}

result<void> check_options(const engine_options& o) {
  const auto wrong = [](std::string text, std::string param) {
    return error{errc::bad_config, std::move(text), std::move(param), 0};
  };
  if (o.max_batch == 0) return wrong("max-batch is 0, at least 1 is needed", "max_batch");
  if (o.max_step_tokens == 0) return wrong("max-step-tokens is 0, at least 1 is needed", "max_step_tokens");
  // Every live request has its slots in the scheduler's mailbox.
  constexpr std::uint64_t most = runtime::most_mailbox_messages / actors::scheduler_slots_per_request;
  const std::uint64_t live = std::uint64_t{o.max_batch} + o.max_queue + door_slack;
  if (live > most)
    return wrong(
        "max-queue is " + std::to_string(o.max_queue) + " and max-batch " + std::to_string(o.max_batch) +
            ", together at most " + std::to_string(most - door_slack) + " are allowed",
        "max_queue");
  return {};
}

/// Does a job of the background thread, which an exception would end the process from.
template<class Job>
auto contained(const char* doing, Job&& job) -> decltype(job()) {
  try {
    return job();
  } catch (const std::bad_alloc&) {
    log().error("{}: no memory", doing);
    return error{errc::no_memory, std::string(doing) + ": no memory", {}, 0};
  } catch (const std::exception& e) {
    log().error("{}: {}", doing, e.what());
    return error{errc::internal, std::string(doing) + " failed inside the engine", {}, 0};
  }
}

std::uint64_t digest_of(const prompt& what) {
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&what))
    return XXH3_64bits_withSeed(ids->data(), ids->size() * sizeof(std::int32_t), 0);
  if (const auto* text = std::get_if<std::string>(&what))
    return XXH3_64bits_withSeed(text->data(), text->size(), 1);
  std::uint64_t digest = 2;
  for (const chat_message& m : std::get<chat_prompt>(what).messages) {
    digest = XXH3_64bits_withSeed(m.role.data(), m.role.size(), digest);
    digest = XXH3_64bits_withSeed(m.content.data(), m.content.size(), digest);
  }
  return digest;
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

std::uint32_t most_tokens(const request& asked) noexcept {
  return asked.max_tokens.value_or(actors::no_limit);
}

/// The request that one sequence of several runs.
request member_request(const request& asked, std::uint32_t choice, std::uint32_t sequences) {
  request one;
  one.sampling = asked.sampling;
  if (one.sampling.seed) one.sampling.seed = choice_seed(*one.sampling.seed, choice);
  one.max_tokens = asked.max_tokens;
  one.echo = asked.echo;
  one.min_tokens = asked.min_tokens;
  one.stop = asked.stop;
  one.stop_token_ids = asked.stop_token_ids;
  one.ignore_eos = asked.ignore_eos;
  one.skip_special_tokens = asked.skip_special_tokens;
  one.logprobs = asked.logprobs || sequences_per_prompt(asked) > asked.n; // candidates are chosen by them
  one.top_logprobs = asked.top_logprobs;
  one.priority = asked.priority;
  one.deadline_ms = asked.deadline_ms;
  one.tenant = asked.tenant;
  one.credit = asked.credit == 0 ? 0 : std::max<std::uint32_t>(1, asked.credit / sequences);
  return one;
}

} // namespace

held_prompt::held_prompt(prompt given, std::shared_ptr<std::atomic<std::uint64_t>> counter) :
    what(std::move(given)), backlog(std::move(counter)), bytes(prompt_bytes(what)) {
  *backlog += bytes;
}

held_prompt::~held_prompt() {
  *backlog -= bytes;
}

engine_environment real_environment(const asio::any_io_executor& executor) {
  // The pool is joined when the last user of its executor is gone: jobs hold no engine, so never on its own
  // thread.
  auto pool = std::make_shared<asio::thread_pool>(1);
  engine_environment e;
  e.clock = std::make_shared<runtime::steady_clock>();
  e.timers = std::make_shared<runtime::asio_timers>(executor);
  e.background = pool->get_executor();
  e.keep = pool;
  e.load = load_model_host;
  e.seed = std::random_device{}();
  return e;
}

engine_state::engine_state(asio::any_io_executor ex, engine_options given, engine_environment around) :
    executor(std::move(ex)), options(std::move(given)), environment(std::move(around)),
    system(*environment.clock, *environment.timers),
    restarts_(runtime::restart_strategy::one_for_one, {}, environment.seed) {}

engine_state::~engine_state() = default;

std::uint32_t engine_state::most_live() const noexcept {
  return options.max_batch + options.max_queue + door_slack;
}

/// Ids of the longest prompt that leaves room for one new token, if one is to be drawn.
std::uint32_t engine_state::prompt_limit(std::uint32_t max_tokens) const noexcept {
  const auto positions = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(host->context, std::uint64_t{host->memory.kv_blocks} * host->block_tokens));
  return max_tokens > 0 && positions > 0 ? positions - 1 : positions;
}

void engine_state::cancel_timer(runtime::timer_handle& timer) noexcept {
  if (timer) environment.timers->cancel(timer);
  timer = {};
}

// ---- start
// -------------------------------------------------------------------------------------------------

void engine_state::start(start_handler done) {
  stage expected = stage::new_made;
  if (!stage_.compare_exchange_strong(expected, stage::loading)) {
    complete(
        executor, std::move(done),
        result<void>(error{errc::internal, "the engine was started before", {}, 0}));
    return;
  }
  on_start_.emplace(waiting_handler{std::move(done), tracked(executor)});
  if (auto checked = check_options(options); !checked) return loaded(checked.error());
  // The job holds no strong reference: the engine must never be destroyed on its own text thread.
  asio::post(
      environment.background, [weak = weak_from_this(), ex = tracked(executor), o = options,
                               load = environment.load, stop = loading_.get_token()] {
        auto what = contained("loading the model", [&] { return load(o, stop); });
        asio::post(ex, [weak, w = std::move(what)]() mutable {
          if (auto self = weak.lock()) self->loaded(std::move(w));
        });
      });
}

void engine_state::loaded(host_result what) {
  if (stage_ == stage::over) { // shut down, or destroyed: then nobody waits any more
    answer_start(error{errc::shutdown, "the engine was shut down while it loaded", {}, 0});
    answer_shutdown({});
    return;
  }
  result<void> outcome;
  if (what) {
    host = std::move(*what);
    outcome = spawn_actors();
  } else
    outcome = what.error();
  if (!outcome) start_failure_ = outcome.error();
  stage_ = outcome ? stage::ready : stage::failed;
  answer_start(std::move(outcome));
}

void engine_state::answer_start(result<void> outcome) {
  if (!on_start_) return;
  waiting_handler waiting = std::move(*on_start_);
  on_start_.reset();
  complete(executor, std::move(waiting.handler), std::move(outcome));
}

runtime::spawn_options engine_state::engine_actor(std::uint32_t control, std::uint32_t admission) {
  runtime::spawn_options o;
  o.drain_budget = environment.drain_budget;
  o.mailbox.control = {control, std::uint64_t{control} << 12};
  if (admission > 0) o.mailbox.admission = {admission, std::uint64_t{admission} << 10};
  o.on_exit = [weak = weak_from_this()](const runtime::exit_report& report) {
    if (auto self = weak.lock()) self->actor_ended(report);
  };
  return o;
}

/// All of the engine's actors, or none.
result<void> engine_state::spawn_actors() {
  cast_ = std::make_shared<actors::cast>();
  cast_->listener = this;
  auto spawned = spawn_cast();
  if (spawned)
    crashed_ = false;
  else
    stop_cast();
  return spawned;
}

result<void> engine_state::spawn_cast() {
  const std::uint32_t blocks = host->memory.kv_blocks;
  auto guard = runtime::spawn<actors::guard_actor>(system, executor, engine_actor(16, 0), cast_);
  if (!guard) return guard.error();
  cast_->guard = *guard;
  ++engine_actors_;
  auto cache = runtime::spawn<actors::cache_actor>(
      system, executor, engine_actor(cache_slots_per_request * most_live(), 0), actors::pool_key{}, blocks,
      host->block_tokens, cast_);
  if (!cache) return cache.error();
  cast_->cache = *cache;
  ++engine_actors_;
  auto scheduler = runtime::spawn<actors::scheduler_actor>(
      system, executor, engine_actor(actors::scheduler_slots_per_request * most_live(), most_live()),
      scheduler_options_of(options), cast_);
  if (!scheduler) return scheduler.error();
  cast_->scheduler = *scheduler;
  ++engine_actors_;
  auto runner = runtime::spawn<actors::executor_actor>(
      system, executor, engine_actor(executor_slots_per_request * most_live(), 0), host->backend,
      host->program, cast_);
  if (!runner) return runner.error();
  cast_->executor = *runner;
  ++engine_actors_;

  actors::model_ready facts;
  facts.kv_blocks = blocks;
  facts.block_tokens = host->block_tokens;
  facts.context = host->context;
  facts.end_of_sequence = host->info.end_of_sequence;
  if (cast_->scheduler.tell(std::move(facts)) != runtime::enqueue_result::ok)
    return error{errc::internal, "the scheduler took no mail", {}, 0};
  return {};
}

void engine_state::stop_cast() {
  cast_->guard.stop();
  cast_->cache.stop();
  cast_->scheduler.stop();
  cast_->executor.stop();
}

// ---- a request's way in
// --------------------------------------------------------------------------------------

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
  if (crashed_)
    return error{errc::executor_failed, "the engine recovers from a failure: try again", {}, 1000};
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
    if (poison_.poisoned(digest_of(one)))
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
  opening one{id, 0, nullptr, digest_of(asked.prompt), asked.echo && asked.logprobs};
  one.text = std::make_shared<const held_prompt>(std::move(asked.prompt), prompt_backlog_);
  if (auto opened = open(std::move(one), client, std::move(asked)); !opened) {
    live_.erase(id);
    cast_->requests.erase(id);
    refuse(*client, opened.error());
  }
}

void engine_state::open_group(std::uint64_t id, std::shared_ptr<stream_state> client, request asked) {
  const auto prompts = static_cast<std::uint32_t>(asked.further_prompts.size() + 1);
  const choice_group::shape shape{prompts, asked.n, sequences_per_prompt(asked), asked.logprobs};
  live_group& group = groups_.emplace(id, live_group{client, choice_group(shape), 0, {}}).first->second;
  if (asked.credit == 0) asked.credit = options.stream_credit;
  const std::uint32_t members = group.joined.members();
  for (std::uint32_t p = 0; p < prompts; ++p) {
    prompt& text = p == 0 ? asked.prompt : asked.further_prompts[p - 1];
    opening one{0, id, nullptr, digest_of(text), asked.echo && asked.logprobs};
    one.text = std::make_shared<const held_prompt>(std::move(text), prompt_backlog_);
    for (std::uint32_t c = 0; c < shape.candidates; ++c) {
      const std::uint32_t member = p * shape.candidates + c;
      one.id = id + member;
      ++group.alive;
      auto opened = open(one, client, member_request(asked, c, members));
      if (opened) continue;
      live_.erase(one.id);
      cast_->requests.erase(one.id);
      --group.alive;
      choice_group::output out;
      group.joined.fail(opened.error(), out);
      carry_out(id, member, std::move(out));
      if (group.alive == 0) groups_.erase(id);
      return;
    }
  }
}

result<void> engine_state::open(opening what, std::shared_ptr<stream_state> client, request asked) {
  const std::uint64_t id = what.id;
  live_request live;
  live.client = std::move(client);
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
  const bool continues = !std::holds_alternative<chat_prompt>(asked.prompt);
  auto text = host->make_text(asked.stop, !asked.skip_special_tokens, continues);
  live.text = std::move(what.text);
  if (!options.trace_dir.empty() && most_tokens(asked) > 0) { // else there is nothing to reproduce
    live.trace = std::make_unique<request_trace>();
    live.trace->asked = std::move(asked); // its prompt comes as ids, when they are known
    live.trace->asked.sampling.seed = seed;
    live.trace->model_path = host->info.path;
    live.trace->system_fingerprint = host->info.system_fingerprint;
    live.trace->plans.push_back({0, host->plan_number, false});
  }

  runtime::spawn_options spawning;
  spawning.drain_budget = environment.drain_budget;
  spawning.name = "request/" + std::to_string(id);
  spawning.mailbox.control = {24, 64U << 10};
  spawning.mailbox.stream = {64, 256U << 10};
  spawning.trace_records = request_trace_records;
  spawning.on_exit = [weak = weak_from_this(), id](const runtime::exit_report& report) {
    if (report.reason != runtime::exit_reason::crashed) return;
    auto self = weak.lock();
    if (!self) return;
    log().error("request {} crashed at {}: {}", id, report.crash.message, report.crash.what);
    if (self->cast_->scheduler.tell(
            actors::cancel{{0, self->generation_, id}, error{errc::internal, "the request failed", {}, 0}}) !=
        runtime::enqueue_result::ok)
      log().error("request {}: its place could not be given back", id);
    self->emit(
        {0, self->generation_, id},
        failed_event{{errc::internal, "the request failed inside the engine", {}, 0}});
    self->retired({0, self->generation_, id});
  };
  live_.emplace(id, std::move(live));
  auto spawned = runtime::spawn<actors::request_actor>(
      system, executor, std::move(spawning), std::move(o), std::move(text), cast_);
  if (!spawned) return spawned.error();
  live_[id].actor = *spawned;
  cast_->requests.emplace(id, *spawned);
  return {};
}

void engine_state::tokenize(actors::request_id id) {
  const auto found = live_.find(id.number);
  if (found == live_.end() || !found->second.text) return;
  live_request& live = found->second;
  // A choice of several tells the engine too, when all of its request's prompts are known.
  std::weak_ptr<engine_state> group_owner;
  if (live.group != 0) group_owner = weak_from_this();
  asio::post(
      environment.background, [h = host, text = std::exchange(live.text, nullptr), actor = live.actor, id,
                               most = live.most_tokens, limit = prompt_limit(live.most_tokens),
                               ex = tracked(executor), group_owner, group = live.group]() mutable {
        if (!text->encoded)
          text->encoded = contained("tokenising", [&]() -> result<actors::token_list> {
            auto encoded = h->encode(text->what, limit);
            if (!encoded) return encoded.error();
            return std::make_shared<const std::vector<std::int32_t>>(std::move(*encoded));
          });
        const result<actors::token_list> ids = *text->encoded;
        text.reset();
        // Before the actor hears of it: what it does with the prompt may be over before this thread goes on.
        if (ids && !group_owner.expired())
          asio::post(ex, [group_owner, group, number = id.number, tokens = *ids] {
            if (auto self = group_owner.lock()) self->prompt_known(group, number, tokens);
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
          log().error("request {}: no room for its prompt", id.number);
      });
}

void engine_state::prompt_known(std::uint64_t group, std::uint64_t id, const actors::token_list& tokens) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return;
  const auto member = static_cast<std::uint32_t>(id - group);
  choice_group::output out;
  found->second.joined.prompt_known(member, *tokens, out);
  carry_out(group, member, std::move(out));
}

// ---- a request's way out
// -------------------------------------------------------------------------------------

void engine_state::emit(actors::request_id id, stream_event event) {
  const auto found = live_.find(id.number);
  if (found == live_.end()) return;
  live_request& live = found->second;
  if (live.trace) remember(live, event);
  if (std::holds_alternative<done_event>(event)) poison_.forget(live.digest);
  if (live.group == 0) return tell(*live.client, std::move(event));
  const auto group = groups_.find(live.group);
  if (group == groups_.end()) return;
  const auto member = static_cast<std::uint32_t>(id.number - group->first);
  choice_group::output out;
  group->second.joined.take(member, std::move(event), out);
  carry_out(group->first, member, std::move(out));
}

void engine_state::carry_out(std::uint64_t group, std::uint32_t member, choice_group::output what) {
  live_group& g = groups_.at(group);
  if (what.kept)
    if (const auto found = live_.find(group + member); found != live_.end())
      (void)found->second.actor.tell(actors::events_read{{0, generation_, group + member}, 1});
  for (stream_event& event : what.events) tell(*g.client, std::move(event));
  if (!what.cancel_members) return;
  for (std::uint32_t m = 0; m < g.joined.members(); ++m) cancel_sequence(group + m);
}

void engine_state::remember(live_request& live, const stream_event& event) {
  if (const auto* accepted = std::get_if<accepted_event>(&event))
    live.trace->asked.prompt = accepted->prompt_token_ids;
  if (const auto* token = std::get_if<token_event>(&event); token != nullptr && !token->echo) {
    live.trace->token_ids.insert(
        live.trace->token_ids.end(), token->token_ids.begin(), token->token_ids.end());
    live.trace->text += token->text;
  }
  if (const auto* done = std::get_if<done_event>(&event)) live.trace->reason = done->reason;
  if (std::holds_alternative<failed_event>(event)) live.trace.reset(); // nothing to reproduce
}

void engine_state::finish_trace(std::uint64_t id, live_request& live) {
  if (!live.trace) return;
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
  finish_trace(id.number, found->second);
  const auto group = groups_.find(found->second.group);
  live_.erase(found);
  if (group != groups_.end() && --group->second.alive == 0) close_group(group->first);
  finish_drain();
}

/// All its members are gone. A client is never left without an end, whatever went wrong in the joining.
void engine_state::close_group(std::uint64_t group) {
  live_group& g = groups_.at(group);
  if (!g.joined.over()) {
    log().error("request {}: all its choices ended and the request did not", group);
    choice_group::output out;
    g.joined.fail({errc::internal, "the request failed inside the engine", {}, 0}, out);
    for (stream_event& event : out.events) tell(*g.client, std::move(event));
  }
  groups_.erase(group);
}

void engine_state::event_read(std::uint64_t stream_id, std::uint32_t index) {
  const auto group = groups_.find(stream_id);
  if (group != groups_.end() && group->second.joined.chooses()) return; // they were read as they came
  const std::uint64_t id = group == groups_.end() ? stream_id : stream_id + index;
  if (const auto found = live_.find(id); found != live_.end())
    (void)found->second.actor.tell(actors::events_read{{0, generation_, id}, 1});
  if (group != groups_.end()) tell_of_reading(stream_id);
}

/// A client that reads the events of one choice is no slow reader to the others, whose events come later. Not
/// at every event, since there may be many choices.
void engine_state::tell_of_reading(std::uint64_t group) {
  live_group& g = groups_.at(group);
  const auto now = environment.clock->now();
  const auto pause = std::min<runtime::duration>(
      std::chrono::seconds(1), std::chrono::milliseconds(options.slow_consumer_ms) / 4);
  if (now - g.told < pause) return;
  g.told = now;
  for (std::uint32_t m = 0; m < g.joined.members(); ++m)
    if (const auto found = live_.find(group + m); found != live_.end())
      (void)found->second.actor.tell(actors::events_read{{0, generation_, group + m}, 0});
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
  (void)found->second.actor.tell(
      actors::client_cancel{{0, generation_, id}, error{errc::cancelled, "the client cancelled", {}, 0}});
}

} // namespace troupe::detail
