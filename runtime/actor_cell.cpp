// SPDX-License-Identifier: Apache-2.0
#include "runtime/actor.hpp"
#include "runtime/base/log.hpp"
#include "runtime/supervisor.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/require.hpp>

namespace troupe::runtime {

namespace asio = boost::asio;

namespace {

// Slots of every system of the process; never freed, so that stale references stay readable.
struct slot_table {
  std::mutex mutex;
  actor_slot* free = nullptr;
};
slot_table& slots() {
  static auto* const table = new slot_table;
  return *table;
}

actor_slot* take_slot() {
  const std::lock_guard lock(slots().mutex);
  if (slots().free != nullptr) return std::exchange(slots().free, slots().free->next_free);
  return new actor_slot;
}

void return_slot(actor_slot* slot) noexcept {
  const auto generation = slot->word.load(std::memory_order_relaxed) >> 32;
  slot->word.store((generation + 1) << 32, std::memory_order_release);
  slot->cell = nullptr;
  const std::lock_guard lock(slots().mutex);
  slot->next_free = std::exchange(slots().free, slot);
}

constexpr std::uint64_t pin_mask = 0xffffffff;

} // namespace

pinned_cell::pinned_cell(const actor_address& address) noexcept {
  if (address.slot == nullptr) return;
  std::uint64_t word = address.slot->word.load(std::memory_order_relaxed);
  do {
    if (word >> 32 != address.generation || (word & pin_mask) == 0) return;
  } while (!address.slot->word.compare_exchange_weak(
      word, word + 1, std::memory_order_acquire, std::memory_order_relaxed));
  slot_ = address.slot;
}

pinned_cell::~pinned_cell() {
  if (slot_ == nullptr) return;
  if ((slot_->word.fetch_sub(1, std::memory_order_acq_rel) & pin_mask) == 1) delete slot_->cell;
}

// What is posted: one turn of an actor. Holds a pin, so that a context destroyed with the task unrun frees it
// properly.
struct drain_task {
  pinned_cell cell;
  void operator()() { cell->drain(); }
};

actor_cell::actor_cell(
    std::shared_ptr<system_core> system, const asio::any_io_executor& executor, const protocol_info& info,
    mailbox_core& box, spawn_options&& options) :
    system_(std::move(system)),
    // Required once, here: a converted executor of some kinds (strands) does not fit the small buffer and
    // would allocate on every post.
    executor_(std::make_unique<asio::any_io_executor>(asio::prefer(
        asio::require(executor, asio::execution::blocking.never), asio::execution::relationship.fork))),
    info_(info), box_(box), options_(std::move(options)), ring_(options_.trace_records) {
  if (options_.name.empty()) options_.name = info.name;
  options_.drain_budget = std::max(options_.drain_budget, 1U);
  {
    const std::lock_guard lock(system_->mutex);
    id_ = system_->next_id++;
  }
  address_.slot = take_slot(); // last: nothing below may throw
  address_.generation = static_cast<std::uint32_t>(address_.slot->word.load(std::memory_order_relaxed) >> 32);
}

actor_cell::~actor_cell() {
  return_slot(address_.slot);
}

void actor_cell::activate() noexcept {
  turn_now_ = system_->clock.now();
  mark(trace_event::spawned);
  [[maybe_unused]] const bool first =
      box_.signal(); // scheduled, so that a send before `post` does not run it
  address_.slot->cell = this;
  address_.slot->word.store(std::uint64_t{address_.generation} << 32 | 1, std::memory_order_release);
  system_->enter(*this);
}

void actor_cell::attach(std::unique_ptr<supervisor_link> link) noexcept {
  link_ = std::move(link);
}

void actor_cell::wake() noexcept {
  if (box_.signal())
    post();
  else
    system_->post_owed();
}

void actor_cell::post() noexcept {
  if (try_post()) return system_->post_owed(); // where there was memory for this one
  log().error("actor {}: no memory to post its turn; it is tried again", options_.name);
  system_->owe(*this);
}

bool actor_cell::try_post() noexcept try {
  pinned_cell pin(address_);
  if (pin) executor_->execute(drain_task{std::move(pin)});
  return true;
} catch (...) { // no memory for the task
  return false;
}

void actor_cell::tell_command(std::uint32_t bits) noexcept {
  commands_.fetch_or(bits, std::memory_order_seq_cst);
  wake();
}

void actor_cell::fire(mailbox_node* node) noexcept {
  const envelope sent{id_, 0, system_->clock.now().time_since_epoch().count()};
  if (enqueue_prepared(node, sent)) wake();
}

void actor_cell::bury(std::uint16_t type, std::uint64_t request, dead_reason reason) noexcept {
  const auto& message = info_.messages[type];
  const bool first =
      system_->dead.add({system_->clock.now(), info_.name, message.name, message.kind, reason, request});
  if (first && reason == dead_reason::full && message.kind == message_class::control)
    log().error(
        "actor {}: no room for the control message {} (request {}); further ones to a {} are only counted",
        options_.name, message.name, request, info_.name);
}

void actor_cell::mark(trace_event event) noexcept {
  ring_.write({turn_now_.time_since_epoch().count(), 0, 0, 0, 0, event, message_class::control, 0});
}

void actor_cell::drain() noexcept {
  if (phase_ == phase::stopped) return; // abandoned while the task was queued
  box_.begin_run();
  bool more = false;
  for (std::uint32_t handled = 0;; ++handled) {
    std::uint32_t commands = commands_.load(std::memory_order_seq_cst);
    if (commands != 0) commands = commands_.exchange(0, std::memory_order_seq_cst);
    if (!obey(commands)) return; // stopped: stays `running`, nobody posts again
    if (phase_ == phase::suspended) break;
    if (handled == options_.drain_budget) {
      more = true;
      break;
    }
    mailbox_node* const node = take();
    if (node == nullptr) break;
    handle(node);
  }
  // After end_run another thread may be running this actor: only atomics from there on.
  if (box_.end_run(more, phase_ == phase::suspended))
    post();
  else if (commands_.load(std::memory_order_seq_cst) != 0)
    wake();
  system_->post_owed(); // this turn may have freed what another's lacked
}

bool actor_cell::obey(std::uint32_t commands) noexcept {
  if (phase_ == phase::starting && (commands & stop) == 0) {
    phase_ = phase::running;
    begin();
  }
  if (stop_requested_) commands |= stop;
  if ((commands & stop) != 0) {
    finish(exit_reason::stopped, {});
    return false;
  }
  if (phase_ == phase::stopped) return false; // crashed without a supervisor
  if ((commands & suspend) != 0) phase_ = phase::suspended;
  if ((commands & restart) != 0) {
    cancel_all_timers();
    turn_now_ = system_->clock.now();
    mark(trace_event::restarted);
    phase_ = phase::running;
    bool in_place = false;
    run_guarded([&] { in_place = behaviour() != nullptr && behaviour()->restart_in_place(); }, nullptr);
    if (!in_place && phase_ == phase::running) run_guarded([&] { make_behaviour(); }, nullptr);
    if (phase_ == phase::running) begin();
    if (phase_ == phase::running && link_) link_->restarted(*this);
    if (phase_ == phase::stopped) return false;
  }
  suspended_.store(phase_ == phase::suspended, std::memory_order_relaxed);
  return true;
}

void actor_cell::begin() noexcept {
  turn_now_ = system_->clock.now();
  run_guarded([&] { behaviour()->on_start(); }, nullptr);
}

template<class Act>
void actor_cell::run_guarded(Act&& act, mailbox_node* node) noexcept {
  try {
    act();
  } catch (const std::exception& e) {
    crash(node, e.what());
  } catch (...) {
    crash(node, "exception of unknown type");
  }
}

void actor_cell::handle(mailbox_node* node) noexcept {
  if (node->timer != 0 && !claim_timer(node->timer)) { // cancelled while it was on its way
    give_back(node);
    return;
  }
  turn_now_ = system_->clock.now();
  const auto& message = info_.messages[node->type];
  current_ = node;
  current_request_.store(node->request, std::memory_order_relaxed);
  current_since_.store(turn_now_.time_since_epoch().count(), std::memory_order_relaxed);
  current_message_.store(message.id, std::memory_order_release);
  ring_.write(
      {turn_now_.time_since_epoch().count(), node->request, node->sent.sequence, node->sent.sender,
       message.id, trace_event::received, message.kind, 0});

  run_guarded([&] { invoke(node); }, node);

  current_message_.store(0, std::memory_order_relaxed);
  current_ = nullptr;
  const auto limit = system_->options.stall_limit;
  if (limit.count() > 0) {
    const auto took = system_->clock.now() - turn_now_;
    if (took > limit)
      log().warn(
          "actor {}: handler of {} took {} ms (request {})", options_.name, message.name,
          std::chrono::duration_cast<std::chrono::milliseconds>(took).count(), node->request);
  }
  give_back(node);
}

void actor_cell::crash(mailbox_node* node, const char* what) noexcept {
  crash_report report;
  try {
    report.actor = options_.name;
    report.actor_id = id_;
    report.message = node != nullptr ? info_.messages[node->type].name : "on_start";
    report.what = what;
    report.when = turn_now_;
    if (node != nullptr) report.request = node->request;
    if (report.request != 0) report.requests.push_back(report.request);
    if (behaviour() != nullptr) behaviour()->requests_in_hand(report.requests);
    std::sort(report.requests.begin(), report.requests.end());
    report.requests.erase(std::unique(report.requests.begin(), report.requests.end()), report.requests.end());
    log().error("actor {} crashed handling {}: {}", report.actor, report.message, report.what);
  } catch (...) {
    // The report stays as complete as memory and the actor's own hook allowed.
  }
  if (node != nullptr) {
    bury(node->type, node->request, dead_reason::crashed);
    ring_.write(
        {turn_now_.time_since_epoch().count(), node->request, node->sent.sequence, node->sent.sender,
         info_.messages[node->type].id, trace_event::crashed, node->kind, 0});
  }
  if (link_ && link_->crashed(*this, report))
    phase_ = phase::suspended; // until the supervisor decides
  else
    finish(exit_reason::crashed, std::move(report));
}

void actor_cell::finish(exit_reason reason, crash_report&& report) noexcept {
  if (phase_ == phase::stopped) return;
  if (reason == exit_reason::stopped && behaviour() != nullptr && phase_ != phase::starting)
    behaviour()->on_stop();
  phase_ = phase::stopped;
  system_->forget_owed(*this);
  cancel_all_timers();
  close_mailbox();
  drop_behaviour();
  mark(trace_event::stopped);
  if (link_) link_->gone(*this);
  if (options_.on_exit) options_.on_exit(exit_report{reason, std::move(report)});
  system_->leave(*this);
  // One step: the next generation, so that references are stale from here on, and without the live actor's
  // own pin. The caller holds another, so the cell outlives this call.
  address_.slot->word.fetch_add((std::uint64_t{1} << 32) - 1, std::memory_order_acq_rel);
}

void actor_cell::abandon() noexcept {
  const pinned_cell self(address_);
  finish(exit_reason::stopped, {});
}

std::uint64_t actor_cell::start_timer(duration after, mailbox_node* node, std::uint64_t serial) {
  try {
    timers_.push_back({serial, {}, node}); // before the start: the message may arrive at once
    timers_.back().handle = system_->timers.start(after, [to = address_, node] {
      if (const pinned_cell cell(to); cell) cell->fire(node);
    });
  } catch (...) {
    if (!timers_.empty() && timers_.back().serial == serial) timers_.pop_back();
    give_back(node);
    throw;
  }
  return serial;
}

bool actor_cell::cancel_timer(std::uint64_t serial) noexcept {
  const auto found =
      std::find_if(timers_.begin(), timers_.end(), [&](const auto& t) { return t.serial == serial; });
  if (found == timers_.end()) return false;
  // When it cannot be cancelled its message is on its way, and will be dropped as unknown on arrival.
  if (system_->timers.cancel(found->handle)) give_back(found->node);
  timers_.erase(found);
  return true;
}

bool actor_cell::claim_timer(std::uint64_t serial) noexcept {
  const auto found =
      std::find_if(timers_.begin(), timers_.end(), [&](const auto& t) { return t.serial == serial; });
  if (found == timers_.end()) return false;
  timers_.erase(found);
  return true;
}

void actor_cell::cancel_all_timers() noexcept {
  while (!timers_.empty()) cancel_timer(timers_.back().serial);
}

actor_status actor_cell::status() const {
  actor_status s;
  s.name = options_.name;
  s.id = id_;
  s.depth = box_.depth();
  const auto run = box_.current_run_state();
  s.state = suspended_.load(std::memory_order_relaxed)  ? "suspended"
            : run == mailbox_core::run_state::idle      ? "idle"
            : run == mailbox_core::run_state::scheduled ? "scheduled"
                                                        : "running";
  if (const auto message = current_message_.load(std::memory_order_acquire); message != 0) {
    s.message = message_name(message);
    s.request = current_request_.load(std::memory_order_relaxed);
    s.busy =
        system_->clock.now().time_since_epoch() - duration(current_since_.load(std::memory_order_relaxed));
  }
  return s;
}

void actor_services::note(std::string_view label, std::uint64_t request) noexcept {
  cell_->trace(
      {now().time_since_epoch().count(), request, 0, 0, message_id(label), trace_event::note,
       message_class::control, 0});
}

} // namespace troupe::runtime
