// SPDX-License-Identifier: Apache-2.0
// What stands behind a reference: the slot that makes stale references harmless, and the cell that runs one
// actor.
#pragma once

#include "runtime/clock.hpp"
#include "runtime/dead_letters.hpp"
#include "runtime/mailbox.hpp"
#include "runtime/timers.hpp"
#include "runtime/trace_ring.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::runtime {

class actor_cell;
class actor_services;
struct system_core;
class supervisor_link;

/// Names an actor's place. Slots are recycled but never freed while the process lives, so a reference may be
/// used at any time, even after its system is gone; the generation tells whether its actor still is.
struct actor_slot {
  std::atomic<std::uint64_t> word{
      0};                     // generation in the upper half, pins in the lower; a live actor pins itself
  actor_cell* cell = nullptr; // valid while pinned
  actor_slot* next_free = nullptr;
};

struct actor_address {
  actor_slot* slot = nullptr;
  std::uint32_t generation = 0;
  friend bool operator==(const actor_address&, const actor_address&) = default;
};

/// Keeps a cell's memory alive for the moment of a send or a run. Empty when the address is stale.
class pinned_cell {
 public:
  pinned_cell() noexcept = default;
  explicit pinned_cell(const actor_address& address) noexcept;
  pinned_cell(pinned_cell&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  pinned_cell& operator=(pinned_cell&&) = delete;
  ~pinned_cell();

  explicit operator bool() const noexcept { return slot_ != nullptr; }
  actor_cell* operator->() const noexcept { return slot_->cell; }
  actor_cell& operator*() const noexcept { return *slot_->cell; }

 private:
  actor_slot* slot_ = nullptr;
};

struct message_info {
  std::string_view name;
  std::uint32_t id = 0;
  message_class kind = message_class::control;
};
struct protocol_info {
  std::string_view name;
  std::span<const message_info> messages;
};

enum class exit_reason : std::uint8_t { stopped, crashed };

/// What is known about a crash.
struct crash_report {
  std::string actor; // instance name
  std::uint32_t actor_id = 0;
  std::string message; // type of the message in hand, "on_start" when there was none
  std::string what;
  std::uint64_t request = 0;           // that the message in hand is about, 0 = none
  std::vector<std::uint64_t> requests; // ids in hand: the message's, then what the actor named
  time_point when{};
};

struct exit_report {
  exit_reason reason = exit_reason::stopped;
  crash_report crash; // filled when reason is crashed
};

/// A live actor as the shutdown report and the admin pages show it.
struct actor_status {
  std::string name;
  std::uint32_t id = 0;
  std::string_view state;  // idle, scheduled, running or suspended
  std::uint32_t depth = 0; // messages waiting
  std::string message;     // in hand, empty when none
  std::uint64_t request = 0;
  duration busy{}; // since the message was taken
};

/// How one actor is run.
struct spawn_options {
  std::string name; // of the instance, "request/17"; empty = the protocol's
  mailbox_limits mailbox;
  std::uint32_t drain_budget = 64;                           // messages per turn, then others get the thread
  std::uint32_t trace_records = trace_ring::default_records; // 32 bytes each
  unique_function<void(const exit_report&)> on_exit; // last act of the actor, on its executor; must not throw
};

/// Runs one actor: takes messages from the mailbox one at a time, on the actor's executor, never twice at
/// once. The typed part (mailbox, behaviour) is in detail::typed_cell.
class actor_cell {
 public:
  enum command : std::uint32_t { stop = 1, suspend = 2, restart = 4 };

  actor_cell(
      std::shared_ptr<system_core> system, const boost::asio::any_io_executor& executor,
      const protocol_info& info, mailbox_core& box, spawn_options&& options);
  virtual ~actor_cell();
  actor_cell(const actor_cell&) = delete;
  actor_cell& operator=(const actor_cell&) = delete;

  // Thread: any.
  const actor_address& address() const noexcept { return address_; }
  std::uint32_t id() const noexcept { return id_; }
  const std::string& name() const noexcept { return options_.name; }
  const protocol_info& info() const noexcept { return info_; }
  system_core& system() const noexcept { return *system_; }
  mailbox_core& box() noexcept { return box_; }
  trace_ring& ring() noexcept { return ring_; }
  actor_status status() const;
  /// Asks for a stop, a suspension or a restart; taken before the next message.
  void tell_command(std::uint32_t bits) noexcept;
  /// After mail or a command: posts the drain task unless one is already on its way.
  void wake() noexcept;
  /// Records a message that was refused or lost. Control that was refused as full is a fault of whoever sized
  /// the mailbox: the first of a protocol is logged.
  void bury(std::uint16_t type, std::uint64_t request, dead_reason reason) noexcept;
  /// Sends a node set aside by `after`; closed mailboxes swallow it.
  void fire(mailbox_node* node) noexcept;

  // Thread: the actor's run only.
  time_point now() const noexcept { return turn_now_; }
  mailbox_node* current() const noexcept { return current_; }
  std::uint32_t next_sequence() noexcept { return ++sequence_; }
  void trace(const trace_record& record) noexcept { ring_.write(record); }
  std::uint64_t start_timer(duration after, mailbox_node* node, std::uint64_t serial);
  bool cancel_timer(std::uint64_t serial) noexcept;
  std::uint64_t next_timer_serial() noexcept { return ++timer_serial_; }
  void request_stop() noexcept { stop_requested_ = true; }

  /// Set before the first message; null for actors that are not restarted.
  void attach(std::unique_ptr<supervisor_link> link) noexcept;
  supervisor_link* link() noexcept { return link_.get(); }
  /// Makes the address live; the actor does not run before `post`. Once.
  void activate() noexcept;
  /// Posts the drain task; the run state must be `scheduled`, and stays so until the task runs: where there
  /// is no memory for it the system tries again.
  void post() noexcept;
  bool try_post() noexcept; // also true for an actor that has ended: it needs no turn
  /// Ends an actor whose executor no longer runs. Only ~actor_system calls it.
  void abandon() noexcept;

  // List of live cells, guarded by the system.
  actor_cell* newer = nullptr;
  actor_cell* older = nullptr;
  // List of cells whose turn is owed, guarded by the system.
  actor_cell* next_owed = nullptr;
  std::optional<pinned_cell> owed_pin;

 protected:
  virtual mailbox_node* take() noexcept = 0;
  virtual void invoke(mailbox_node* node) = 0; // may throw
  virtual void give_back(mailbox_node* node) noexcept = 0;
  virtual bool enqueue_prepared(mailbox_node* node, const envelope& sent) noexcept = 0;
  virtual void close_mailbox() noexcept = 0; // buries what is left
  virtual void make_behaviour() = 0;         // may throw; replaces the old one
  virtual void drop_behaviour() noexcept = 0;
  virtual actor_services* behaviour() noexcept = 0;

 private:
  friend class pinned_cell;
  friend struct drain_task;
  enum class phase : std::uint8_t { starting, running, suspended, stopped };
  struct pending_timer {
    std::uint64_t serial;
    timer_handle handle;
    mailbox_node* node;
  };

  void drain() noexcept;
  bool obey(std::uint32_t commands) noexcept; // false: stopped
  void handle(mailbox_node* node) noexcept;
  void begin() noexcept; // first turn, and again after a restart
  template<class Act>
  void run_guarded(Act&& act, mailbox_node* node) noexcept; // an exception is a crash
  void crash(mailbox_node* node, const char* what) noexcept;
  void finish(exit_reason reason, crash_report&& report) noexcept;
  void cancel_all_timers() noexcept;
  bool claim_timer(std::uint64_t serial) noexcept;
  void mark(trace_event event) noexcept;

  std::shared_ptr<system_core> system_;
  std::unique_ptr<boost::asio::any_io_executor>
      executor_; // blocking.never, relationship.fork: ready to execute
  const protocol_info& info_;
  mailbox_core& box_;
  spawn_options options_;
  std::uint32_t id_;
  actor_address address_;
  trace_ring ring_;
  std::unique_ptr<supervisor_link> link_;

  std::atomic<std::uint32_t> commands_{0};
  std::atomic<bool> suspended_{false}; // mirrors phase_ for status()
  std::atomic<std::uint32_t> current_message_{0};
  std::atomic<std::uint64_t> current_request_{0};
  std::atomic<std::int64_t> current_since_{0};

  // The actor's run only.
  phase phase_ = phase::starting;
  bool stop_requested_ = false;
  time_point turn_now_{};
  mailbox_node* current_ = nullptr;
  std::uint32_t sequence_ = 0;
  std::uint64_t timer_serial_ = 0;
  std::vector<pending_timer> timers_; // a handful per actor: searched linearly
};

} // namespace troupe::runtime
