// SPDX-License-Identifier: Apache-2.0
// Virtual time: crowds, their clients, and the replicas they send to.
#include "sim/load_world.hpp"

#include "sim/load_replica.hpp"
#include "sim/load_watch.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <queue>
#include <unordered_map>
#include <utility>

namespace troupe::sim {
namespace {

constexpr std::uint32_t nobody = ~0U;

duration seconds(double s) {
  return std::chrono::duration_cast<duration>(std::chrono::duration<double>(s));
}
float seconds_of(duration d) {
  return static_cast<float>(std::chrono::duration<double>(d).count());
}

/// What one client wants, however often it has to ask.
struct wish {
  std::uint32_t crowd = 0, client = nobody;
  std::uint32_t prompt = 1, output = 1, priority = 5, prefix = 0, tenant = 0, tries = 0;
  std::uint64_t content = 0;   ///< of its prompt behind the prefix
  double cancels_after_s = -1; ///< < 0: it does not
  std::uint32_t reads_at_most = nobody;
};

/// A request under way, as its client sees it.
struct attempt {
  sim::wish wish;
  std::uint32_t replica = 0;
  time_point submitted{}, first{}, last{};
  std::uint32_t tokens = 0, given = 0, taken = 0;
  bool reading = false;
};

class world final : public load_replica::outside {
 public:
  world(const load_plan& plan, double load, double rate);
  load_result run();

 private:
  enum class kind : std::uint8_t { arrival, phase, client, again, alarm, step, cancel, read };
  struct occasion {
    time_point at;
    std::uint64_t order;
    kind what;
    std::uint32_t who;
    std::uint64_t a, b;
    bool operator>(const occasion& other) const noexcept {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };
  struct crowd_state {
    crowd what;
    double rate = 0; ///< requests a second while they come
    runtime::random_stream chance{0};
    std::uint64_t phase = 0; ///< odd: a burst
    double in_window = 0;    ///< tokens of prompts and answers
  };
  struct client_state {
    std::uint32_t crowd;
    runtime::random_stream chance;
  };

  void at(time_point when, kind what, std::uint32_t who, std::uint64_t a = 0, std::uint64_t b = 0) {
    events_.push({std::max(when, now_), order_++, what, who, a, b});
  }
  void open_crowd(std::uint32_t index, double load, double rate);
  void handle(const occasion& e);
  void arrive(std::uint32_t crowd, std::uint64_t phase);
  void change_phase(std::uint32_t crowd);
  wish make_wish(const crowd_state& c, std::uint32_t crowd, runtime::random_stream& chance) const;
  void submit(wish w);
  std::uint32_t route();
  void read_one(std::uint64_t request);
  void over(std::uint64_t request, bool served, const error* why);
  void go_on(const wish& w, std::uint32_t retry_after_ms);
  void end_window();
  load_result sum_up();
  void sum_up_watches();

  // load_replica::outside
  actors::token_list prompt_of(std::uint64_t request) override;
  void
  ring_at(std::uint32_t replica, std::uint64_t request, std::uint64_t version, time_point when) override {
    at(when, kind::alarm, replica, request, version);
  }
  void step_ends_at(std::uint32_t replica, time_point when) override { at(when, kind::step, replica); }
  std::uint64_t heard(std::uint64_t request, stream_event&& event) override;
  bool measuring() const override { return now_ >= from_ && now_ < until_; }

  const load_plan& plan_;
  time_point now_{}, from_, until_, window_end_ = time_point::max();
  std::priority_queue<occasion, std::vector<occasion>, std::greater<>> events_;
  std::uint64_t order_ = 0, handled_ = 0, requests_ = 0, turn_ = 0, hash_ = 0;
  std::vector<crowd_state> crowds_;
  std::vector<client_state> clients_;
  std::unordered_map<std::uint64_t, attempt> attempts_; ///< by number; looked up, never walked
  std::unordered_map<std::uint64_t, wish> waiting_;     ///< to ask again
  std::vector<std::unique_ptr<load_watch>> watches_;
  std::vector<std::unique_ptr<load_replica>> replicas_;
  std::vector<actors::scheduler_stats> at_start_; ///< of the measured time
  double unfair_ = 0; ///< the worst window: how far two tenants were from their sum's half, by the half
  load_result result_;
};

world::world(const load_plan& plan, double load, double rate) :
    plan_(plan), from_(seconds(plan.what.seconds * plan.what.warm_up)), until_(seconds(plan.what.seconds)) {
  if (plan.check && plan.what.fair_window_s > 0) window_end_ = from_;
  result_.load = load;
  result_.rate = plan.what.unit == workload::axis::clients ? 0 : rate;
  const bool one_tenant = std::all_of(
      plan.what.crowds.begin(), plan.what.crowds.end(), [](const crowd& c) { return c.tenants == 0; });
  for (std::uint32_t i = 0; i < plan.replicas; ++i) {
    if (plan.check) watches_.push_back(std::make_unique<load_watch>(plan.settings, one_tenant, i));
    replicas_.push_back(std::make_unique<load_replica>(
        i, plan.settings, plan.costs, plan.seed, *this, plan.check ? watches_.back().get() : nullptr));
  }
  for (std::uint32_t i = 0; i < plan.what.crowds.size(); ++i) open_crowd(i, load, rate);
}

/// Each crowd, and each client of a closed one, has random numbers of its own: what is sent stays the same
/// under other policies.
void world::open_crowd(std::uint32_t index, double load, double rate) {
  const crowd& c = plan_.what.crowds[index];
  auto& state = crowds_.emplace_back();
  state.what = c;
  state.chance = runtime::random_stream(plan_.seed, 1 + index);
  result_.crowds.emplace_back().name = c.name;
  if (c.arrives == crowd::arrival::closed) {
    const auto count = std::max(1.0, std::round(c.load_of(load)));
    for (double i = 0; i < count; ++i) {
      const auto lane = (std::uint64_t{1} << 32) + clients_.size();
      clients_.push_back({index, runtime::random_stream(plan_.seed, lane)});
      at(time_point(seconds(c.think.draw(clients_.back().chance))), kind::client,
         static_cast<std::uint32_t>(clients_.size() - 1));
    }
    return;
  }
  state.rate = c.load_of(rate);
  if (c.arrives == crowd::arrival::bursts) {
    state.rate *= (c.on_s + c.off_s) / c.on_s;
    at(now_, kind::phase, index);
  } else {
    arrive(index, 0);
  }
}

/// The arrival that an event stood for, unless its phase is over, and the next one.
void world::arrive(std::uint32_t index, std::uint64_t phase) {
  auto& c = crowds_[index];
  if (phase != c.phase) return;
  if (now_ > time_point{} && now_ < until_) submit(make_wish(c, index, c.chance));
  if (c.rate > 0 && now_ < until_)
    at(now_ + seconds(law{law::shape::exponential, 1 / c.rate}.draw(c.chance)), kind::arrival, index, phase);
}

void world::change_phase(std::uint32_t index) {
  auto& c = crowds_[index];
  const bool burst = ++c.phase % 2 == 1;
  if (burst && now_ < until_)
    at(now_ + seconds(law{law::shape::exponential, 1 / c.rate}.draw(c.chance)), kind::arrival, index,
       c.phase);
  if (now_ < until_)
    at(now_ + seconds(law{law::shape::exponential, burst ? c.what.on_s : c.what.off_s}.draw(c.chance)),
       kind::phase, index);
}

wish world::make_wish(const crowd_state& c, std::uint32_t crowd, runtime::random_stream& chance) const {
  const auto limit = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      plan_.settings.context, std::uint64_t{plan_.settings.kv_blocks} * plan_.settings.block_tokens));
  wish w;
  w.crowd = crowd;
  w.prompt = std::min(c.what.prompt.draw_count(chance), limit - 1);
  w.output = std::min(c.what.output.draw_count(chance), load_replica::most_output);
  w.priority = static_cast<std::uint32_t>(chance.between(c.what.priority_from, c.what.priority_to));
  w.prefix = static_cast<std::uint32_t>(chance.below(c.what.prefixes));
  w.tenant = static_cast<std::uint32_t>(chance.below(c.what.tenants));
  w.content = chance();
  const bool cancels = chance.chance(c.what.cancels), stalls = chance.chance(c.what.stalls);
  if (cancels) w.cancels_after_s = c.what.cancel_after.draw(chance);
  if (stalls) w.reads_at_most = static_cast<std::uint32_t>(chance.below(c.what.credit));
  return w;
}

std::uint32_t world::route() {
  if (!plan_.least_loaded) return static_cast<std::uint32_t>(turn_++ % replicas_.size());
  const auto least = std::min_element(
      replicas_.begin(), replicas_.end(), [](const auto& a, const auto& b) { return a->live() < b->live(); });
  return static_cast<std::uint32_t>(least - replicas_.begin());
}

void world::submit(wish w) {
  const crowd& c = crowds_[w.crowd].what;
  if (w.tries++ == 0 && measuring()) ++result_.crowds[w.crowd].offered;
  const std::uint64_t number = ++requests_;
  actors::request_options o;
  o.id.number = number;
  o.priority = w.priority;
  o.prompt_tokens = w.prompt;
  o.max_tokens = c.max_tokens;
  o.sampling.seed = load_replica::seed_of(number, w.output);
  o.credit = c.credit;
  o.deadline = seconds(c.deadline_s);
  o.slow_consumer = seconds(plan_.settings.slow_consumer_s);
  if (c.tenants > 0) o.tenant = c.name + std::to_string(w.tenant);
  attempt a;
  a.wish = w;
  a.replica = route();
  a.submitted = now_;
  attempts_.emplace(number, a);
  if (w.cancels_after_s >= 0) at(now_ + seconds(w.cancels_after_s), kind::cancel, a.replica, number);
  replicas_[a.replica]->begin(std::move(o), now_);
}

actors::token_list world::prompt_of(std::uint64_t request) {
  const wish& w = attempts_.at(request).wish;
  const crowd& c = crowds_[w.crowd].what;
  const std::uint32_t shared = std::min(c.prefix_tokens, w.prompt);
  const std::uint64_t beginning = std::uint64_t{w.crowd} << 32 | w.prefix;
  std::vector<std::int32_t> tokens(w.prompt);
  for (std::uint32_t i = 0; i < w.prompt; ++i) // any that differ
    tokens[i] = static_cast<std::int32_t>(
        1 + (((i < shared ? beginning : w.content) * 0x9E3779B97F4A7C15U + i * 0xD1B54A32D192ED03U) >> 36));
  return std::make_shared<const std::vector<std::int32_t>>(std::move(tokens));
}

std::uint64_t world::heard(std::uint64_t request, stream_event&& event) {
  const auto found = attempts_.find(request);
  if (found == attempts_.end()) return 0;
  attempt& a = found->second;
  hash_ = (hash_ ^ (request << 8 | event.index())) * 0x9E3779B97F4A7C15U ^
          static_cast<std::uint64_t>(now_.time_since_epoch().count());
  if (const auto* done = std::get_if<done_event>(&event)) {
    over(request, done->reason != finish_reason::cancelled, nullptr);
    return 0;
  }
  if (const auto* failed = std::get_if<failed_event>(&event)) {
    over(request, false, &failed->why);
    return 0;
  }
  if (!std::holds_alternative<token_event>(event)) return 0;
  auto& tally = result_.crowds[a.wish.crowd];
  auto& in_window = crowds_[a.wish.crowd].in_window;
  in_window += 1;
  if (a.tokens++ == 0) {
    in_window += a.wish.prompt;
    a.first = now_;
    if (measuring()) tally.ttft.push_back(seconds_of(now_ - a.submitted));
  }
  a.last = now_;
  if (measuring()) ++tally.tokens;
  ++a.given;
  if (a.given > a.wish.reads_at_most) return 0;
  const double pace = crowds_[a.wish.crowd].what.read_s;
  if (pace > 0) {
    if (!std::exchange(a.reading, true)) at(now_ + seconds(pace), kind::read, a.replica, request);
    return 0;
  }
  // Who reads at once need not be told of at every event: a quarter of the credit is soon enough.
  if (a.given - a.taken < std::max(1U, crowds_[a.wish.crowd].what.credit / 4)) return 0;
  return a.taken = a.given;
}

void world::read_one(std::uint64_t request) {
  const auto found = attempts_.find(request);
  if (found == attempts_.end()) return;
  attempt& a = found->second;
  const std::uint32_t replica = a.replica, taken = ++a.taken;
  a.reading = a.taken < std::min(a.given, a.wish.reads_at_most);
  if (a.reading) at(now_ + seconds(crowds_[a.wish.crowd].what.read_s), kind::read, replica, request);
  replicas_[replica]->read(request, taken, now_);
}

void world::over(std::uint64_t request, bool served, const error* why) {
  const auto found = attempts_.find(request);
  const attempt a = std::move(found->second);
  attempts_.erase(found);
  auto& tally = result_.crowds[a.wish.crowd];
  if (measuring()) {
    tally.served += served;
    tally.cancelled += !served && (why == nullptr || why->code == errc::cancelled);
    if (why != nullptr && why->code != errc::cancelled) ++tally.failed[static_cast<std::size_t>(why->code)];
    if (served && a.tokens > 1) tally.tpot.push_back(seconds_of((a.last - a.first) / (a.tokens - 1)));
  }
  go_on(a.wish, why != nullptr ? why->retry_after_ms : 0);
}

void world::go_on(const wish& w, std::uint32_t retry_after_ms) {
  if (now_ >= until_) return;
  const crowd& c = crowds_[w.crowd].what;
  if (retry_after_ms > 0 && w.tries < c.tries) {
    waiting_.emplace(order_, w);
    at(now_ + std::chrono::milliseconds(retry_after_ms), kind::again, w.client, order_);
  } else if (w.client != nobody) {
    at(now_ + seconds(c.think.draw(clients_[w.client].chance)), kind::client, w.client);
  }
}

void world::handle(const occasion& e) {
  switch (e.what) {
  case kind::arrival:
    arrive(e.who, e.a);
    break;
  case kind::phase:
    change_phase(e.who);
    break;
  case kind::client:
    if (now_ < until_) {
      auto& c = clients_[e.who];
      wish w = make_wish(crowds_[c.crowd], c.crowd, c.chance);
      w.client = e.who;
      submit(w);
    }
    break;
  case kind::again: {
    const auto node = waiting_.extract(e.a);
    if (now_ < until_) submit(node.mapped());
    break;
  }
  case kind::alarm:
    replicas_[e.who]->ring(e.a, e.b, now_);
    break;
  case kind::step:
    replicas_[e.who]->end_step(now_);
    break;
  case kind::cancel:
    if (attempts_.contains(e.a)) replicas_[e.who]->cancel(e.a, now_);
    break;
  case kind::read:
    read_one(e.a);
    break;
  }
}

void world::end_window() {
  double least = 1e300, most = 0;
  for (auto& c : crowds_) {
    least = std::min(least, c.in_window);
    most = std::max(most, std::exchange(c.in_window, 0));
  }
  const auto length = seconds(plan_.what.fair_window_s);
  const bool first = window_end_ == from_; // what came before it is no window
  if (!first) unfair_ = std::max(unfair_, (most - least) / std::max(1.0, most + least));
  window_end_ = window_end_ + length >= until_ ? time_point::max() : window_end_ + length;
}

load_result world::run() {
  const auto begin = std::chrono::steady_clock::now();
  const time_point patience = until_ + std::chrono::hours(2);
  while (!events_.empty()) {
    const occasion e = events_.top();
    if (e.at >= patience || (e.at >= until_ && (!plan_.check || attempts_.empty()))) break;
    events_.pop();
    now_ = e.at;
    while (now_ >= window_end_) end_window();
    if (now_ >= from_ && at_start_.empty())
      for (const auto& r : replicas_) at_start_.push_back(r->scheduler().stats());
    ++handled_;
    handle(e);
  }
  auto result = sum_up();
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

load_result world::sum_up() {
  result_.seconds = std::chrono::duration<double>(until_ - from_).count();
  result_.requests = requests_;
  result_.events = handled_;
  result_.hash = hash_;
  at_start_.resize(replicas_.size());
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    const auto now = replicas_[i]->scheduler().stats();
    const auto& then = at_start_[i];
    const auto& m = replicas_[i]->meters();
    result_.events += replicas_[i]->delivered();
    result_.steps += m.steps;
    result_.batch_fill += m.fill;
    result_.kv_use += m.kv_seconds;
    result_.busy += m.busy_seconds / result_.seconds / static_cast<double>(replicas_.size());
    result_.preemptions += now.preemptions - then.preemptions;
    result_.seats_yielded += now.seats_yielded - then.seats_yielded;
    result_.displaced += now.displaced - then.displaced;
    result_.prefix_found += now.prefix_found_tokens - then.prefix_found_tokens;
  }
  result_.batch_fill /= std::max<double>(1, static_cast<double>(result_.steps));
  result_.kv_use /= result_.seconds * static_cast<double>(replicas_.size());
  if (plan_.check) sum_up_watches();
  return std::move(result_);
}

void world::sum_up_watches() {
  std::map<std::uint32_t, load_watch::waits> all;
  std::uint64_t checks = 0;
  for (std::size_t i = 0; i < watches_.size(); ++i) {
    watches_[i]->ended(replicas_[i]->scheduler());
    checks += watches_[i]->checks();
    for (const auto& text : watches_[i]->wrong()) result_.wrong.push_back(text);
    for (const auto& [priority, w] : watches_[i]->by_priority()) all[priority].join(w);
  }
  if (!attempts_.empty())
    result_.wrong.push_back(std::to_string(attempts_.size()) + " clients wait for ever");
  for (const auto& [priority, w] : all) result_.notes.push_back(w.text(priority));
  if (plan_.what.fair_window_s > 0) {
    char text[120];
    std::snprintf(
        text, sizeof text, "tenants were served alike within %.1f %% in every window of %g s", 100 * unfair_,
        plan_.what.fair_window_s);
    (unfair_ <= 0.1 ? result_.notes : result_.wrong).emplace_back(text);
  }
  result_.notes.push_back(std::to_string(checks) + " checks");
}

} // namespace

load_result run_load(const load_plan& plan, double load, double rate) {
  return world(plan, load, rate).run();
}

double measure_capacity(const load_plan& plan) {
  load_plan full = plan;
  full.replicas = 1;
  full.check = false;
  auto& w = full.what;
  w.unit = workload::axis::clients;
  w.seconds = 120;
  std::erase_if(w.crowds, [](const crowd& c) { return c.fixed; });
  double all = 0;
  for (const crowd& c : w.crowds) all += c.load;
  const double clients = 4.0 * plan.settings.options.max_batch;
  for (crowd& c : w.crowds) {
    c.arrives = crowd::arrival::closed;
    c.load /= all;
    c.tries = nobody;
    c.priority_from = c.priority_to = 5;
  }
  full.settings.options.max_queue = 2 * static_cast<std::uint32_t>(clients);
  const auto r = world(full, clients, 0).run();
  return static_cast<double>(r.all().served) / r.seconds;
}

} // namespace troupe::sim
