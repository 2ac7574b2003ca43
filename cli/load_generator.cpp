// SPDX-License-Identifier: Apache-2.0
// One coroutine per request in flight, all on one thread.
#include "cli/load_generator.hpp"

#include "cli/awaited_values.hpp"
#include "cli/client_stream.hpp"
#include "cli/http_response_reader.hpp"
#include "runtime/base/error.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json.hpp>

#include <array>
#include <ctime>
#include <memory>
#include <optional>
#include <random>

namespace troupe::cli {

namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using tcp = asio::ip::tcp;
using clock = std::chrono::steady_clock;

double seconds(clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr std::size_t refusal_limit = 4096;

// The message of an error body, or the body's beginning when it has another form.
std::string reason_in(const std::string& body) {
  if (body.empty()) return {};
  boost::system::error_code failed;
  const json::value parsed = json::parse(body, failed);
  if (!failed)
    if (const json::value* message = parsed.find_pointer("/error/message", failed);
        message != nullptr && message->is_string())
      return ": " + std::string(message->get_string());
  return ": " + body.substr(0, 200);
}

// What the events of one answer tell, as they come.
class answer_meter {
 public:
  explicit answer_meter(clock::time_point due) : due_(due) {}

  void event(std::string_view data, clock::time_point now, load_sample& sample) {
    if (data == "[DONE]") {
      ended_ = true;
      return;
    }
    boost::system::error_code failed;
    const json::value parsed = json::parse(data, failed);
    const json::object* object = failed ? nullptr : parsed.if_object();
    if (object == nullptr) {
      sample.problem = "an event that is not a JSON object";
      return;
    }
    if (const json::value* bad = object->if_contains("error"); bad != nullptr && !bad->is_null()) {
      sample.problem = "error event: " + json::serialize(*bad);
      return;
    }
    if (const json::value* usage = object->if_contains("usage"); usage != nullptr && usage->is_object()) {
      reported_ = number(usage->get_object(), "completion_tokens");
      sample.prompt_tokens = number(usage->get_object(), "prompt_tokens");
    }
    if (has_token(*object)) arrived(now, sample);
  }

  void finish(clock::time_point now, load_sample& sample) {
    sample.whole = seconds(now - due_);
    sample.tokens = reported_ > 0 ? reported_ : chunks_;
    if (sample.tokens > 1 && chunks_ > 1) sample.per_token = seconds(last_ - first_) / (sample.tokens - 1);
    if (!ended_ && sample.problem.empty()) sample.problem = "the answer was cut";
  }

 private:
  static std::uint32_t number(const json::object& object, std::string_view key) {
    const json::value* value = object.if_contains(key);
    boost::system::error_code failed;
    const auto n = value == nullptr ? 0 : value->to_number<std::uint32_t>(failed);
    return failed ? 0 : n;
  }
  static bool has_text(const json::object& object, std::string_view key) {
    const json::value* value = object.if_contains(key);
    return value != nullptr && value->is_string() && !value->get_string().empty();
  }
  // Text of a completion, or of a chat's delta.
  static bool has_token(const json::object& object) {
    const json::value* choices = object.if_contains("choices");
    if (choices == nullptr || !choices->is_array()) return false;
    for (const json::value& choice : choices->get_array()) {
      if (!choice.is_object()) continue;
      if (has_text(choice.get_object(), "text")) return true;
      const json::value* delta = choice.get_object().if_contains("delta");
      if (delta != nullptr && delta->is_object() && has_text(delta->get_object(), "content")) return true;
    }
    return false;
  }
  void arrived(clock::time_point now, load_sample& sample) {
    if (chunks_++ == 0) {
      first_ = now;
      sample.first = seconds(now - due_);
    } else {
      sample.longest_gap = std::max(sample.longest_gap, seconds(now - last_));
    }
    last_ = now;
  }

  clock::time_point due_, first_, last_;
  std::uint32_t chunks_ = 0, reported_ = 0;
  bool ended_ = false;
};

class generator {
 public:
  explicit generator(const load_options& options) : options_(options), random_(options.seed) {
    if (options_.tls) tls_.emplace(client_tls(options_.unchecked));
  }

  load_result run() {
    resolve();
    if (options_.model.empty()) options_.model = first_model();
    result_.samples.resize(options_.requests);
    lay_out();
    const double cpu = cpu_seconds();
    began_ = clock::now();
    if (options_.rate > 0) {
      start(open_loop());
    } else {
      for (std::uint32_t i = 0; i < std::min(options_.clients, options_.requests); ++i) start(closed_loop());
    }
    io_.restart();
    io_.run();
    if (broken_) std::rethrow_exception(broken_);
    result_.model = options_.model;
    result_.wall_s = seconds(clock::now() - began_);
    result_.cpu_s = cpu_seconds() - cpu;
    return std::move(result_);
  }

 private:
  struct plan {
    std::string body;
    double due = 0; // seconds after the start, open loop only
  };

  void start(asio::awaitable<void> work) {
    asio::co_spawn(io_, std::move(work), [this](std::exception_ptr failed) {
      if (failed && !broken_) broken_ = failed;
    });
  }

  void resolve() {
    tcp::resolver resolver(io_);
    boost::system::error_code failed;
    const auto found = resolver.resolve(options_.host, options_.port, failed);
    if (failed || found.empty()) throw failure(errc::io, host() + ": " + failed.message());
    // The first address that answers; the server is there for the whole run.
    for (const auto& entry : found) {
      tcp::socket probe(io_);
      probe.connect(entry.endpoint(), failed);
      if (!failed) {
        endpoint_ = entry.endpoint();
        return;
      }
    }
    throw failure(errc::io, host() + ": no server answers there (" + failed.message() + ")");
  }

  /// The first model that the server lists. Throws `failure` when it lists none.
  std::string first_model() {
    http_response_reader reader;
    std::string body;
    boost::system::error_code failed;
    start(list_models(reader, body, failed));
    io_.run();
    if (broken_) std::rethrow_exception(broken_);
    if (failed) throw failure(errc::io, host() + ": " + failed.message());
    const json::value parsed = json::parse(body, failed);
    if (reader.status() == 200 && !failed)
      if (const json::value* id = parsed.find_pointer("/data/0/id", failed); id != nullptr && id->is_string())
        return std::string(id->get_string());
    if (reader.status() == 401 || reader.status() == 403)
      throw failure(
          errc::io, "the server wants to know who asks (status " + std::to_string(reader.status()) +
                        "): give its key with --header \"Authorization: Bearer KEY\"");
    throw failure(errc::io, "the server does not list its models at /v1/models; name one with --model");
  }

// g++ 12 takes the frame's own allocation, once it is inlined, for another one's.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
  /// `failed`: why it could not be asked.
  asio::awaitable<void>
  list_models(http_response_reader& reader, std::string& body, boost::system::error_code& failed) {
    client_stream stream(io_.get_executor(), tls());
    failed = co_await stream.connect(endpoint_, options_.host);
    if (failed) co_return;
    const std::string request = "GET " + options_.prefix + "/v1/models HTTP/1.1\r\nHost: " + host() +
                                headers() + "\r\nConnection: close\r\n\r\n";
    auto [ended, count] = co_await stream.write(asio::buffer(request));
    std::array<char, 4096> block{};
    while (!ended && !reader.complete()) {
      std::tie(ended, count) = co_await stream.read_some(asio::buffer(block));
      if (!reader.feed({block.data(), count}, body)) break;
    }
  }
#pragma GCC diagnostic pop

  asio::ssl::context* tls() {
    return tls_ ? &*tls_ : nullptr;
  }

  /// The further lines of a request's head, each with the end of the line before it.
  std::string headers() const {
    std::string lines;
    for (const std::string& line : options_.headers) lines += "\r\n" + line;
    return lines;
  }

  std::string host() const {
    const bool ipv6 = options_.host.find(':') != std::string::npos;
    return (ipv6 ? '[' + options_.host + ']' : options_.host) + ':' + options_.port;
  }

  // All bodies before the first request, so that the measured time has none of this work.
  void lay_out() {
    std::uniform_int_distribution<std::uint32_t> length(options_.words_least, options_.words_most);
    std::exponential_distribution<double> pause(options_.rate > 0 ? options_.rate : 1);
    std::size_t at = 0;
    double due = 0;
    for (std::uint32_t i = 0; i < options_.requests; ++i) {
      std::string prompt;
      for (std::uint32_t n = length(random_); n > 0; --n) {
        (prompt += prompt.empty() ? "" : " ") += options_.words[at];
        at = (at + 1) % options_.words.size();
      }
      // One more word, so that prompts differ when the text has been used up once.
      at = (at + 1) % options_.words.size();
      json::object body{
          {"model", options_.model},
          {"max_tokens", options_.max_tokens},
          {"temperature", options_.temperature},
          {"stream", true},
          {"stream_options", {{"include_usage", true}}}};
      if (options_.ignore_eos) body["ignore_eos"] = true;
      if (options_.chat)
        body["messages"] = json::array{json::object{{"role", "user"}, {"content", prompt}}};
      else
        body["prompt"] = prompt;
      for (const auto& [key, value] : options_.extra) body[key] = json::parse(value);
      plans_.push_back({json::serialize(body), due});
      due += pause(random_);
    }
  }

  asio::awaitable<void> closed_loop() {
    while (next_ < options_.requests) {
      const std::uint32_t index = next_++;
      const auto due = clock::now();
      co_await one(index, due);
    }
  }

  // Requests leave when they are due, however many are still running; waiting counts as latency.
  asio::awaitable<void> open_loop() {
    asio::steady_timer timer(io_);
    while (next_ < options_.requests) {
      const std::uint32_t index = next_++;
      const auto due = began_ + std::chrono::duration_cast<clock::duration>(
                                    std::chrono::duration<double>(plans_[index].due));
      timer.expires_at(due);
      const auto [code] = co_await timer.async_wait(values);
      if (code) co_return;
      start(one(index, due));
    }
  }

  asio::awaitable<void> one(std::uint32_t index, clock::time_point due) {
    load_sample& sample = result_.samples[index];
    const auto socket = std::make_shared<client_stream>(io_.get_executor(), tls());
    asio::steady_timer limit(io_, options_.timeout);
    bool timed_out = false;
    limit.async_wait([weak = std::weak_ptr(socket), &timed_out](boost::system::error_code code) {
      const auto open = weak.lock(); // it outlives neither the socket nor, on one thread, `timed_out`
      if (!open || code) return;
      timed_out = true;
      open->close();
    });
    answer_meter meter(due);
    std::string refusal;
    co_await exchange(*socket, plans_[index].body, meter, sample, refusal);
    meter.finish(clock::now(), sample);
    if (sample.status != 0 && sample.status != 200)
      sample.problem = "status " + std::to_string(sample.status) + reason_in(refusal);
    if (timed_out)
      sample.problem =
          "no end after " + std::to_string(std::chrono::seconds(options_.timeout).count()) + " s";
  }

  asio::awaitable<void> exchange(
      client_stream& socket, const std::string& body, answer_meter& meter, load_sample& sample,
      std::string& refusal) {
    if (const auto code = co_await socket.connect(endpoint_, options_.host); code) {
      sample.problem = code.message();
      co_return;
    }
    const std::string request =
        "POST " + options_.prefix + (options_.chat ? "/v1/chat/completions" : "/v1/completions") +
        " HTTP/1.1\r\nHost: " + host() + headers() +
        "\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nConnection: close\r\n"
        "Content-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    const auto [written, sent] = co_await socket.write(asio::buffer(request));
    // A server may refuse before it has read everything: its answer is still worth reading.
    (void)sent;
    if (written && written != asio::error::broken_pipe && written != asio::error::connection_reset) {
      sample.problem = written.message();
      co_return;
    }
    http_response_reader reader;
    event_splitter splitter;
    std::string content;
    std::vector<std::string> events;
    std::vector<char> block(64U << 10);
    while (!reader.complete()) {
      const auto [code, count] = co_await socket.read_some(asio::buffer(block));
      const auto now = clock::now();
      content.clear();
      if (!reader.feed({block.data(), count}, content)) {
        sample.problem = "the answer is not HTTP";
        break;
      }
      sample.status = reader.status();
      if (sample.status == 200)
        splitter.feed(content, events);
      else if (refusal.size() < refusal_limit)
        refusal.append(content);
      for (const std::string& event : events) meter.event(event, now, sample);
      events.clear();
      if (!code) continue;
      if (!reader.end_of_stream())
        sample.problem = code == asio::error::eof || code == asio::ssl::error::stream_truncated
                             ? "the connection was cut"
                             : code.message();
      break;
    }
  }

  load_options options_;
  std::mt19937_64 random_;
  asio::io_context io_{1};
  std::optional<asio::ssl::context> tls_;
  tcp::endpoint endpoint_;
  std::vector<plan> plans_;
  std::uint32_t next_ = 0;
  clock::time_point began_;
  load_result result_;
  std::exception_ptr broken_;
};

} // namespace

load_result run_load(const load_options& options) {
  return generator(options).run();
}

} // namespace troupe::cli
