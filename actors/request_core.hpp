// SPDX-License-Identifier: Apache-2.0
// One request from the door to its one terminal event: deadline, cancel, stop strings, text, a slow reader.
#pragma once

#include "actors/messages.hpp"
#include "actors/token_text.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace troupe::actors {

/// A request lives no longer than this after its birth, when it has a deadline at all.
inline constexpr std::chrono::milliseconds longest_deadline = std::chrono::hours(24);

/// Everything a request actor is told at birth.
struct request_options {
  request_id id;
  std::uint32_t priority = 5;
  std::uint32_t prompt_tokens = 0; ///< exact, or estimated from the bytes, for the door
  std::uint32_t max_tokens = no_limit;
  std::uint32_t min_tokens = 0;
  std::vector<std::int32_t> stop_ids;
  bool ignore_eos = false;
  bool logprobs = false;
  std::uint32_t top_logprobs = 0;
  bool echo = false;                ///< the prompt's tokens come first
  bool score_prompt = false;        ///< with their log probabilities
  std::vector<std::int32_t> banned; ///< ids that are never drawn
  kernels::sampling_params sampling;
  std::uint32_t credit = 256; ///< unread token events before the request pauses; at least 1
  duration deadline{};        ///< from birth, at most longest_deadline; zero = none
  /// A paused request ends when its client reads nothing for this long.
  duration slow_consumer = std::chrono::seconds(30);
  std::string tenant;
  /// See admission_request::group. What a choice gives waits for the other choices: the patience with its
  /// reader begins with the first `events_read`.
  std::uint64_t group = 0;
  std::string model;
  std::string system_fingerprint;
};

/// Tokens of the prompt: counted when it is ids, else estimated from its bytes, four to a token, as English
/// has.
std::uint32_t estimated_tokens(const prompt& what) noexcept;

/// The options of a public request. `seed` is used when the request brings none. Ranges were checked before.
request_options
make_request_options(request_id id, const request& what, std::uint64_t seed, std::uint32_t default_credit);

/// An event for the client, in order.
struct emit_event {
  stream_event event;
};
/// The terminal event is out: the actor may go.
struct retire {};

using request_effect = std::variant<
    admission_request, enqueue, readmission, cancel, finish, stream_paused, stream_resumed, tokenize_prompt,
    emit_event, set_alarm, retire>;
using request_effects = std::vector<request_effect>;

/// Pure: no clock, no Asio, no thread. Emits at most one accepted_event, when its first row is computed, then
/// token events (that of the prompt first when it is echoed), then exactly one done_event or failed_event,
/// then `retire`; whatever arrives after that is a no-op. Messages may arrive in any order across senders and
/// classes; per (sender, class) they are in order.
///
/// It keeps what it was told, and after a crash of the scheduler hands itself in anew with it: the client
/// sees a pause. What is under way then is drawn again, which gives the same.
class request_core {
 public:
  /// `text` must not be null.
  request_core(request_options options, std::unique_ptr<token_text> text);

  /// The first call: knocks at the scheduler's door.
  void begin(time_point now, request_effects& out);

  void on(admitted&&, time_point now, request_effects& out);
  void on(refused&& m, time_point now, request_effects& out);
  void on(started&&, time_point now, request_effects& out);
  void on(token_ready&& m, time_point now, request_effects& out);
  void on(prompt_scored&& m, time_point now, request_effects& out);
  void on(sequence_finished&& m, time_point now, request_effects& out);
  void on(prompt_ready&& m, time_point now, request_effects& out);
  void on(prompt_failed&& m, time_point now, request_effects& out);
  void on(client_cancel&& m, time_point now, request_effects& out);
  void on(events_read&& m, time_point now, request_effects& out);
  void on(scheduler_renewed&& m, time_point now, request_effects& out);
  void on(alarm_rang&&, time_point now, request_effects& out);

  request_id id() const noexcept { return options_.id; }
  bool over() const noexcept { return phase_ == phase::over; }
  std::uint64_t unread() const noexcept { return events_given_ - events_taken_; } ///< token events
  bool paused() const noexcept { return paused_; }

 private:
  enum class phase : std::uint8_t {
    outside,    ///< knocked, no answer yet: nothing may be sent to the scheduler about this request
    tokenising, ///< admitted, prompt not there
    handed_in,  ///< `enqueue` sent
    ending,     ///< `cancel` or `finish` sent; waits for `sequence_finished`
    over,
  };

  bool of_this_generation(request_id id) const noexcept { return id == options_.id; }
  void knock(request_effects& out);
  enqueue wish() const;
  void come_back(const scheduler_renewed& m, request_effects& out);
  void ensure_accepted(request_effects& out);
  void emit_token(token_ready&& m, request_effects& out);
  void echo(std::vector<prompt_score> scores, request_effects& out);
  bool has_all_of(const sequence_finished& end) const noexcept;
  void account_unread(time_point now, request_effects& out);
  void end_early(error why, request_effects& out);
  void conclude(request_effects& out);
  void fail(error why, request_effects& out);
  void close(stream_event last, request_effects& out);
  void update_alarm(request_effects& out);

  request_options options_;
  std::unique_ptr<token_text> text_;
  token_list prompt_;
  std::vector<std::int32_t> drawn_; ///< ids of the `token_ready` handled
  time_point knocked_at_{}, last_token_{};
  phase phase_ = phase::outside;
  bool accepted_ = false; ///< accepted_event is out
  bool stopped_ = false;  ///< a stop string matched: later tokens are not the client's
  bool paused_ = false;
  bool readable_ = true; ///< what it gives reaches the client: a choice's events wait for the others' prompts
  std::uint64_t seq_ = 0;          ///< of the next event
  std::uint64_t events_given_ = 0; ///< token events that spent credit
  std::uint64_t events_taken_ = 0; ///< of them, by the client
  std::uint32_t tokens_given_ = 0; ///< of `drawn_`, handed to the client
  std::uint32_t scores_seen_ = 0;  ///< of the prompt, in `prompt_scored` handled
  std::size_t echoed_ = 0;         ///< tokens of the prompt, handed to the client
  std::optional<error> early_end_; ///< why we asked for the end, or want to once admitted
  std::optional<sequence_finished> finished_;
  time_point deadline_ = time_point::max();
  time_point slow_at_ = time_point::max(); ///< end of patience with a paused reader that reads nothing
  time_point alarm_ = time_point::max();
};

} // namespace troupe::actors
