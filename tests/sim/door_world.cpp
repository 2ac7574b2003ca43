// SPDX-License-Identifier: Apache-2.0
#include "sim/door_world.hpp"

#include "engine/engine_state.hpp"
#include "runtime/sim/byte_stream.hpp"
#include "runtime/sim/counting_timers.hpp"
#include "runtime/sim/world.hpp"
#include "server/http_protocol.hpp"
#include "server/line_protocol.hpp"
#include "server/session_core.hpp"
#include "sim/door_client.hpp"
#include "sim/door_model.hpp"
#include "sim/door_watch.hpp"
#include "sim/door_wishes.hpp"
#include "sim/failing_timers.hpp"
#include "sim/stand_in.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

namespace troupe::sim {
namespace {

namespace asio = boost::asio;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t most_events = 2'000'000; // a run that goes on longer is stuck
constexpr seconds early_drain{1}, late_drain{120};
constexpr microseconds latest_timer{3000};
// Three recoveries in a row, with the engine's growing delays, and what the backend still does.
constexpr milliseconds longest_recovery{400};

/// Both ends of one connection.
struct connection {
  connection(const runtime::sim::pipe_faults& faults, std::uint64_t seed) : pipes(faults, seed) {}

  door_kind kind = door_kind::http;
  std::vector<door_wish> wishes;
  runtime::sim::byte_stream_pair pipes; // a: the client
  bool open = false;

  // server
  std::unique_ptr<server::session_core> core;
  std::map<server::request_key, stream> streams;
  std::map<server::request_key, const door_wish*> asked;
  std::string server_out;
  bool server_closing = false, server_gone = false;
  std::optional<time_point> armed;

  // client
  std::unique_ptr<answer_reader> reader;
  std::string client_out;
  std::uint64_t received = 0;
  std::optional<std::uint64_t> vanishes_at, stalls_at; // bytes received
  std::optional<time_point> opened, stalled_since;
  bool vanishes_by_reset = false, client_gone = false;
  std::set<std::string> cancelled;

  bool lost = false; // by the client's leaving or the server's abort

  bool over() const { return open && server_gone && client_gone; }
};

class door_world final : server::door_services {
 public:
  explicit door_world(std::uint64_t seed);
  door_outcome run();

 private:
  // door_services
  server::door_health health() const override { return draining_ ? server::door_health::draining : health_; }
  const server::openai_rules& rules() const override { return rules_; }
  std::uint32_t context_tokens() const override { return context_; }
  std::string system_fingerprint() const override { return "sim-1"; }
  std::int64_t started_unix_seconds() const override { return 1; }
  std::int64_t unix_seconds() const override { return 2; }
  std::string metrics_text() const override { return {}; }
  std::uint64_t random() override { return chance_(); }

  void take_facts(const engine_options& o, duration lateness);
  void draw_clients();
  void draw_crashes();
  bool scheduler_runs() const;
  void connect(connection& c);
  void apply(connection& c);
  void arm(connection& c);
  void finish_server(connection& c);
  bool pump(connection& c);
  bool pump_server(connection& c);
  bool pump_client(connection& c);
  void wake_for(runtime::sim::byte_pipe& pipe);
  bool pump_all(bool every);
  const door_wish* wish_of(std::uint64_t seed) const;
  void on_stream_event(connection& c, server::request_key key, stream_event event);
  void leave(connection& c, server::request_key key);
  void check_answers(door_outcome& out);
  void check_answer(const connection& c, const door_wish& w, const door_answer& a, door_outcome& out);
  void start_drain();
  void fail(std::string what, const door_wish* broken = nullptr) {
    if (!failure_.empty()) return;
    failure_ = std::move(what);
    const auto at = broken ? stream_of_seed_.find(broken->wish.seed) : stream_of_seed_.end();
    if (at != stream_of_seed_.end()) guilty_ = at->second;
  }
  time_point now() const { return world_.clock.now(); }

  std::uint64_t seed_;
  runtime::random_stream chance_;
  runtime::sim::world world_;
  runtime::random_stream crash_chance_;
  imaginary_model model_;
  std::uint32_t blocks_, block_tokens_, context_;
  double step_fails_ = 0;
  bool crowded_ = false; // many choices, cancels and requests per connection
  std::shared_ptr<slow_backend> backend_;
  std::shared_ptr<sim_host> host_;
  door_facts facts_;
  std::optional<door_watch> watch_;
  std::optional<time_point> draining_since_, ready_at_;
  std::shared_ptr<runtime::sim::counting_timers> engine_timers_; // the world's, those of the engine counted
  std::shared_ptr<failing_timers> failing_timers_;
  std::uint32_t crashes_left_ = 0, scheduler_crashes_ = 0;
  std::shared_ptr<detail::engine_state> engine_;
  std::map<std::uint64_t, std::uint64_t> stream_of_seed_; // a wish is known in the engine by its drawn seed
  std::optional<std::uint64_t> guilty_;                   // stream of the request that broke an oracle first
  server::door_counters counters_;
  server::openai_rules rules_;
  server::door_context context_of_doors_;
  server::door_health health_ = server::door_health::loading;
  bool draining_ = false, drained_ = false, drains_early_ = false;
  std::vector<std::unique_ptr<connection>> connections_;
  std::uint64_t hash_ = 14695981039346656037ULL;
  std::string failure_;
};

door_world::door_world(std::uint64_t seed) :
    seed_(seed), chance_(seed, 17), world_(seed, microseconds(chance_.below(2) == 0 ? 0 : 5)),
    crash_chance_(seed, 53), blocks_(static_cast<std::uint32_t>(12 + chance_.below(80))), block_tokens_(4),
    context_(static_cast<std::uint32_t>(48 + chance_.below(80))), context_of_doors_{
                                                                      {}, {}, counters_, *this} {
  const auto one_in = [this](std::uint64_t n) { return chance_.below(n) == 0; };
  if (one_in(4)) step_fails_ = 0.02;
  const bool late_timers = one_in(3);
  if (late_timers)
    world_.timers.lateness = [this] { return duration(microseconds(chance_.below(latest_timer.count()))); };
  rules_.model_name = "sim";
  rules_.vocabulary = model_.vocabulary;

  engine_options o;
  o.max_batch = static_cast<std::uint32_t>(1 + chance_.below(12));
  o.max_queue = static_cast<std::uint32_t>(chance_.below(30));
  o.max_step_tokens = static_cast<std::uint32_t>(o.max_batch + chance_.below(40));
  o.max_wait_ms = one_in(3) ? 3 : 0;
  o.stream_credit = static_cast<std::uint32_t>(one_in(2) ? 2 + chance_.below(6) : 256);
  o.preempt_every = static_cast<std::uint32_t>(one_in(4) ? 2 + chance_.below(6) : 0);
  o.slow_consumer_ms = 2000;
  o.queue_timeout_ms = one_in(4) ? 40 : 60'000;
  crowded_ = one_in(5);
  // Few places and a crowd: then few requests share the slots of the mailboxes, and each must find its own.
  const bool tiny = one_in(4);
  if (tiny) {
    o.max_batch = static_cast<std::uint32_t>(1 + chance_.below(2));
    o.max_queue = static_cast<std::uint32_t>(chance_.below(3));
    o.max_step_tokens = static_cast<std::uint32_t>(o.max_batch + chance_.below(40));
  }
  // A session that buffers little stops reading from the engine while its client stalls.
  if (one_in(2)) context_of_doors_.limits.output_soft_bytes = 64 + chance_.below(512);
  if (one_in(3)) world_.executor.starve(4U << chance_.below(5));
  backend_ = std::make_shared<slow_backend>(model_, blocks_, block_tokens_, world_, seed, step_fails_);
  host_ = std::make_shared<sim_host>(model_, context_, blocks_, block_tokens_, backend_);
  host_->text_chance = runtime::random_stream(seed, 41);
  if (one_in(8)) host_->text_fails_one_in = 20 + chance_.below(200);
  take_facts(o, late_timers ? duration(latest_timer) : duration::zero());

  // With no slack to speak of, the mailboxes have no slot more than the live requests can fill.
  detail::engine_environment e;
  if (tiny)
    e.door_slack = 0;
  else if (!one_in(4))
    e.door_slack = static_cast<std::uint32_t>(chance_.below(12));

  e.clock = std::shared_ptr<runtime::clock>(std::shared_ptr<void>(), &world_.clock);
  engine_timers_ = std::make_shared<runtime::sim::counting_timers>(
      std::shared_ptr<runtime::timers>(std::shared_ptr<void>(), &world_.timers));
  failing_timers_ = std::make_shared<failing_timers>(engine_timers_);
  e.timers = failing_timers_;
  e.background = world_.executor.get_executor();
  e.load = [host = host_](const engine_options&, std::stop_token) -> detail::host_result {
    return std::shared_ptr<const detail::model_host>(host);
  };
  e.seed = seed;
  e.drain_budget = 1;
  engine_ =
      std::make_shared<detail::engine_state>(world_.executor.get_executor(), std::move(o), std::move(e));
  draw_clients();
  draw_crashes();
}

/// In a third of the runs the executor and the scheduler crash, now and then more often than the engine
/// bears.
void door_world::draw_crashes() {
  if (crash_chance_.below(3) != 0) return;
  crashes_left_ = static_cast<std::uint32_t>(1 + crash_chance_.below(crash_chance_.below(6) == 0 ? 8 : 3));
  facts_.recovery = longest_recovery;
  const std::uint64_t one_in = 2 + crash_chance_.below(40);
  const auto now_crashes = [this, one_in] {
    if (crashes_left_ == 0 || crash_chance_.below(one_in) != 0) return false;
    --crashes_left_;
    return true;
  };
  backend_->crashes = now_crashes;
  failing_timers_->fails = [this, now_crashes] {
    if (crashes_left_ == 0 || !scheduler_runs() || !now_crashes()) return false;
    ++scheduler_crashes_;
    return true;
  };
}

/// Whether it is the scheduler who starts a timer, over a message.
bool door_world::scheduler_runs() const {
  const auto all = engine_->system.status();
  return std::any_of(all.begin(), all.end(), [](const runtime::actor_status& s) {
    return s.name == actors::scheduler_protocol::name && s.state == "running" && !s.message.empty();
  });
}

void door_world::take_facts(const engine_options& o, duration lateness) {
  facts_.blocks = blocks_;
  facts_.block_tokens = block_tokens_;
  facts_.max_queue = o.max_queue;
  facts_.places = std::uint64_t{o.max_batch} + o.max_queue;
  facts_.kv_high = o.kv_high_watermark;
  facts_.kv_low = o.kv_low_watermark;
  facts_.queue_timeout = milliseconds(o.queue_timeout_ms);
  facts_.slow_consumer = milliseconds(o.slow_consumer_ms);
  facts_.lateness = lateness;
  facts_.longest_step =
      slow_backend::shortest + slow_backend::per_row * o.max_step_tokens + slow_backend::drawn;
  facts_.steps_fail = step_fails_ > 0;
}

void door_world::draw_clients() {
  const wish_bounds bounds{
      context_, std::min(context_, blocks_ * block_tokens_), model_.vocabulary, crowded_};
  const std::size_t count = 1 + chance_.below(14);
  for (std::size_t i = 0; i < count; ++i) {
    runtime::sim::pipe_faults faults;
    faults.capacity = 64U << chance_.below(11);
    faults.latency_max = microseconds(chance_.below(400));
    faults.short_write = chance_.below(2) == 0 ? 0.3 : 0;
    faults.short_read = chance_.below(2) == 0 ? 0.3 : 0;
    auto c = std::make_unique<connection>(faults, seed_ * 131 + i);
    c->kind = static_cast<door_kind>(chance_.below(3));
    c->wishes = draw_wishes(c->kind, i, bounds, chance_);
    if (chance_.below(6) == 0) c->vanishes_at = chance_.below(2000);
    if (chance_.below(8) == 0) c->stalls_at = chance_.below(2000);
    c->vanishes_by_reset = chance_.below(2) == 0;
    connection* raw = c.get();
    connections_.push_back(std::move(c));
    world_.timers.start(microseconds(chance_.below(20'000)), [this, raw] { connect(*raw); });
  }
}

void door_world::connect(connection& c) {
  c.open = true;
  c.opened = now();
  std::unique_ptr<server::door_protocol> protocol;
  if (c.kind == door_kind::line)
    protocol = std::make_unique<server::line_protocol>(context_of_doors_.limits.line_bytes);
  else
    protocol = std::make_unique<server::http_protocol>(context_of_doors_.limits.http);
  c.core = std::make_unique<server::session_core>(context_of_doors_, std::move(protocol), now());
  c.reader = std::make_unique<answer_reader>(c.kind, c.wishes);
  c.client_out = opening_bytes(c.kind, c.wishes);
  if (draining_) c.core->on_drain(now());
  apply(c);
}

void door_world::apply(connection& c) {
  if (c.server_gone) return;
  server::session_actions actions = c.core->take();
  for (server::door_submit& s : actions.submits) {
    const door_wish* wish = s.what.sampling.seed ? wish_of(*s.what.sampling.seed) : nullptr;
    const auto at = c.streams.emplace(s.key, engine_->submit(std::move(s.what))).first;
    if (wish == nullptr) return fail("a request reached the engine without its seed");
    c.asked[s.key] = wish;
    watch_->submitted(*wish, at->second.id(), !ready_at_, now());
    stream_of_seed_[wish->wish.seed] = at->second.id();
    at->second.async_wait_failure([this, &c, key = s.key](boost::system::error_code ec, stream_event event) {
      if (!ec) on_stream_event(c, key, std::move(event));
    });
  }
  for (const auto key : actions.cancels)
    if (const auto at = c.streams.find(key); at != c.streams.end()) at->second.cancel();
  for (const auto key : actions.drops) leave(c, key);
  for (const auto key : actions.reads) {
    const auto at = c.streams.find(key);
    if (at == c.streams.end()) continue;
    at->second.async_read([this, &c, key](boost::system::error_code ec, stream_event event) {
      if (ec == boost::asio::error::eof) return; // the failure is on its way to the other handler
      if (ec && !c.server_gone && c.streams.contains(key)) return fail("a stream ended without a result");
      if (!ec) on_stream_event(c, key, std::move(event));
    });
  }
  c.server_out += actions.output;
  c.server_closing = c.server_closing || actions.close;
  if (actions.abort) {
    if (!c.stalled_since && !c.client_gone) fail("a client that reads was cut");
    c.pipes.reset();
    c.lost = true;
    return finish_server(c);
  }
  arm(c);
}

const door_wish* door_world::wish_of(std::uint64_t seed) const {
  for (const auto& c : connections_)
    for (const door_wish& w : c->wishes)
      if (w.wish.seed == seed) return &w;
  return nullptr;
}

void door_world::on_stream_event(connection& c, server::request_key key, stream_event event) {
  if (std::holds_alternative<token_event>(event)) watch_->event_read(now());
  if (c.server_gone || !c.streams.contains(key)) return;
  const door_wish& wish = *c.asked.at(key);
  if (const auto* failed = std::get_if<failed_event>(&event)) {
    door_circumstances about{
        now(),
        c.stalled_since,
        draining_since_,
        c.cancelled.contains(wish.id),
        0,
        scheduler_crashes_,
        engine_->stats().restarts >= 3 && !engine_->stats().ready,
        false};
    std::uint32_t in_hand = 0;
    for (std::uint32_t i = 0; i < wish.n; ++i) {
      const auto steps = backend_->failures.find(detail::choice_seed(wish.wish.seed, i));
      if (steps != backend_->failures.end()) about.failed_steps = std::max(about.failed_steps, steps->second);
      const auto crashes = backend_->crashed_with.find(detail::choice_seed(wish.wish.seed, i));
      if (crashes != backend_->crashed_with.end()) in_hand += crashes->second; // one prompt
    }
    about.crashes += in_hand;
    about.text_failed = host_->text_failures > 0;
    if (const auto fault = watch_->failed(wish, failed->why, about); !fault.empty())
      fail("request " + wish.id + " " + fault, &wish);
  }
  if (detail::is_terminal(event)) leave(c, key);
  c.core->on_event(key, std::move(event), now());
  apply(c);
}

void door_world::leave(connection& c, server::request_key key) {
  if (c.streams.erase(key) > 0) watch_->left(c.asked.at(key)->wish.seed, now());
}

void door_world::arm(connection& c) {
  const auto due = c.core->deadline();
  if (!due || (c.armed && *c.armed <= *due)) return;
  c.armed = due;
  world_.timers.start(*due - now(), [this, &c] {
    c.armed.reset();
    if (c.server_gone) return;
    c.core->on_time(now());
    apply(c);
  });
}

void door_world::finish_server(connection& c) {
  c.server_gone = true;
  c.pipes.b_to_a.shut_down();
  while (!c.streams.empty()) leave(c, c.streams.begin()->first);
}

void door_world::wake_for(runtime::sim::byte_pipe& pipe) {
  if (const auto at = pipe.next_readable(now()); at && *at > now()) world_.timers.start(*at - now(), [] {});
}

bool door_world::pump_server(connection& c) {
  if (c.server_gone) return false;
  bool moved = false;
  std::array<std::byte, 4096> bytes;
  const auto in = c.pipes.a_to_b.read(std::span(bytes).first(1 + chance_.below(bytes.size())), now());
  if (in.status == runtime::sim::io_status::ok) {
    moved = true;
    wake_for(c.pipes.a_to_b); // for what is still under way behind it
    c.core->on_bytes({reinterpret_cast<const char*>(bytes.data()), in.bytes}, now());
  } else if (in.status != runtime::sim::io_status::would_block) {
    c.core->on_peer_closed(now());
    apply(c);
    finish_server(c);
    return true;
  }
  apply(c);
  if (!c.server_gone && !c.server_out.empty()) {
    const auto out = c.pipes.b_to_a.write(std::as_bytes(std::span(c.server_out)), now());
    if (out.status == runtime::sim::io_status::ok && out.bytes > 0) {
      moved = true;
      c.server_out.erase(0, out.bytes);
      c.core->on_written(out.bytes, now());
      wake_for(c.pipes.b_to_a);
      apply(c);
    }
  }
  if (!c.server_gone && c.server_closing && c.server_out.empty()) {
    finish_server(c);
    moved = true;
  }
  return moved;
}

bool door_world::pump_client(connection& c) {
  if (c.client_gone) return false;
  bool moved = false;
  if (!c.client_out.empty()) {
    const auto out = c.pipes.a_to_b.write(std::as_bytes(std::span(c.client_out)), now());
    if (out.bytes > 0) {
      moved = true;
      c.client_out.erase(0, out.bytes);
      wake_for(c.pipes.a_to_b);
    }
  }
  if (c.stalls_at && c.received >= *c.stalls_at) {
    c.stalls_at.reset();
    c.stalled_since = now();
    c.pipes.b_to_a.stall_reader(now() + milliseconds(1 + chance_.below(5000)));
    wake_for(c.pipes.b_to_a);
  }
  std::array<std::byte, 2048> bytes;
  const auto in = c.pipes.b_to_a.read(std::span(bytes).first(1 + chance_.below(bytes.size())), now());
  if (in.status == runtime::sim::io_status::ok) {
    moved = true;
    wake_for(c.pipes.b_to_a);
    c.received += in.bytes;
    for (std::size_t i = 0; i < in.bytes; ++i)
      hash_ = (hash_ ^ static_cast<std::uint8_t>(bytes[i])) * 1099511628211ULL;
    c.reader->feed({reinterpret_cast<const char*>(bytes.data()), in.bytes});
    for (const door_wish& w : c.wishes) {
      const door_answer& a = c.reader->answers().at(w.id);
      if (w.cancel_after > 0 && a.token_objects >= w.cancel_after && a.terminals == 0 &&
          c.cancelled.insert(w.id).second)
        c.client_out += cancel_bytes(c.kind, w.id);
    }
  }
  const bool ended = in.status == runtime::sim::io_status::eof || in.status == runtime::sim::io_status::reset;
  if (ended) c.reader->end();
  if (c.vanishes_at && c.received >= *c.vanishes_at && !ended) {
    if (c.vanishes_by_reset)
      c.pipes.reset();
    else
      c.pipes.a_to_b.shut_down();
    c.client_gone = c.lost = moved = true;
  } else if (ended || (c.kind != door_kind::http && c.reader->all_ended())) {
    c.vanishes_at.reset();
    c.pipes.a_to_b.shut_down();
    c.client_gone = moved = true;
  }
  return moved;
}

bool door_world::pump_all(bool every) {
  bool moved = false;
  for (const auto& c : connections_) {
    if (!c->open || c->over()) continue;
    if (every || chance_.below(2) == 0) moved = pump_server(*c) || moved;
    if (every || chance_.below(2) == 0) moved = pump_client(*c) || moved;
  }
  return moved;
}

void door_world::start_drain() {
  draining_ = true;
  draining_since_ = now();
  for (const auto& c : connections_)
    if (c->core && !c->server_gone) {
      c->core->on_drain(now());
      apply(*c);
    }
  engine_->shut_down(drains_early_ ? early_drain : late_drain, [this](result<void> r) {
    drained_ = true;
    if (engine_timers_->pending() != 0)
      fail("the engine's shutdown left " + std::to_string(engine_timers_->pending()) + " timers");
    if (!r) fail("shutdown: " + r.error().message);
  });
}

void door_world::check_answer(
    const connection& c, const door_wish& w, const door_answer& a, door_outcome& out) {
  const auto broken = [&](const std::string& what) { fail("request " + w.id + ": " + what, &w); };
  if (!w.broken && !c.lost) ++out.asked;
  if (a.terminals > 1) return broken("ended twice");
  if (a.terminals == 0) {
    // Only where the connection was lost, or the door closed before it had read the request.
    if (!c.lost && !(drains_early_ && !watch_->knows(w.wish.seed))) return broken("has no end");
    ++out.cut;
    return;
  }
  if (a.done) {
    ++out.finished;
    if (w.broken) return broken("an unknown field was accepted");
    if (watch_->failure_of(w.wish.seed)) return broken("finished, and the engine had failed it");
    if (a.choices.size() != w.n)
      return broken(std::to_string(a.choices.size()) + " choices for " + std::to_string(w.n));
    for (const auto& [index, choice] : a.choices)
      if (const std::string fault = choice_fault(model_, w, c.cancelled.contains(w.id), index, choice);
          !fault.empty())
        return broken("choice " + std::to_string(index) + " " + fault);
    return;
  }
  ++out.refused;
  ++out.codes[a.code];
  if (w.broken) {
    if (a.status != 400 || a.param != "no_such_field")
      broken("an unknown field gave " + a.code + " at " + a.param);
    return;
  }
  // The engine's failures were judged as they came; others are the door's own, which knows but two.
  static const std::set<std::string> at_the_door{
      "kv_cache_full", "queue_full", "shed_low_priority", "queue_timeout", "model_loading"};
  if (at_the_door.contains(a.code) && a.accepted) return broken("was accepted, then refused: " + a.code);
  if (a.code == "queue_timeout" && a.status != 429) return broken("waited too long, but got no 429");
  const auto failure = watch_->failure_of(w.wish.seed);
  if (failure) {
    if (a.code != code_name(*failure))
      broken("ended with " + a.code + ", and the engine said " + std::string(code_name(*failure)));
    return;
  }
  if (a.code == "draining" && draining_) return;
  if (a.code == "model_loading" && c.opened && (!ready_at_ || *c.opened <= *ready_at_)) return;
  broken("ended with " + a.code + " by the door");
}

void door_world::check_answers(door_outcome& out) {
  for (const auto& c : connections_) {
    if (!c->reader) continue;
    if (!c->reader->complaint().empty()) fail("client: " + c->reader->complaint());
    for (const door_wish& w : c->wishes) check_answer(*c, w, c->reader->answers().at(w.id), out);
  }
}

door_outcome door_world::run() {
  door_outcome out;
  engine_->start([this](result<void> r) {
    if (!r) return fail("start: " + r.error().message);
    health_ = server::door_health::ready;
    ready_at_ = now();
  });
  drains_early_ = chance_.below(8) == 0;
  facts_.drain_limit = drains_early_ ? early_drain : late_drain;
  watch_.emplace(facts_);
  if (drains_early_)
    world_.timers.start(microseconds(chance_.below(20'000)), [this] {
      if (health_ == server::door_health::ready && !draining_) start_drain();
    });
  while (failure_.empty() && out.events < most_events) {
    ++out.events;
    bool moved = pump_all(false);
    // Time must not jump while bytes could move.
    if (!moved && world_.executor.ready() == 0) moved = pump_all(true);
    const bool advanced = (world_.executor.ready() > 0 || !moved) && world_.advance();
    if (const auto fault = watch_->check(*engine_, now()); !fault.empty()) fail(fault);
    if (advanced || moved) continue;
    if (draining_) break; // nothing is left to happen
    start_drain();
  }
  out.hash = hash_;
  if (out.events >= most_events) fail("the run does not end");
  if (failure_.empty()) {
    const engine_stats s = engine_->stats();
    if (!drained_) fail("the engine did not finish its shutdown");
    if (s.kv_free + s.kv_cached != s.kv_total) fail("blocks are still held at the end");
    if (engine_->system.live_actors() != 0) fail("actors are still alive at the end");
    for (const auto& c : connections_)
      if (!c->over()) fail("a connection is still open at the end");
    check_answers(out);
  }
  out.failure = failure_;
  if (guilty_) out.diagram = engine_->system.diagram(*guilty_);
  if (!failure_.empty())
    for (std::uint64_t id = 1; id < 80 && out.diagram.empty(); ++id)
      out.diagram = engine_->system.diagram(id);
  // What a failed run leaves ends here, before the world that it runs on.
  for (const auto& c : connections_) c->streams.clear();
  engine_->abandon();
  while (world_.executor.step()) {
  }
  return out;
}

} // namespace

door_outcome run_doors(std::uint64_t seed) {
  door_world world(seed);
  return world.run();
}

} // namespace troupe::sim
