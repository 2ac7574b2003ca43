// SPDX-License-Identifier: Apache-2.0
// `troupe serve`: an engine and its doors, until a signal drains them.
#include "cli/arguments.hpp"
#include "cli/catalogue.hpp"
#include "cli/command.hpp"
#include "cli/engine_settings.hpp"
#include "cli/text.hpp"
#include "config/property.hpp"
#include "runtime/base/log.hpp"
#include "server/server.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace troupe::cli {

namespace {

namespace asio = boost::asio;

// The engine leaves its last task to the executor: it must run before the executor goes.
struct last_tasks {
  asio::io_context& io;
  ~last_tasks() {
    io.restart();
    io.poll();
  }
};

// One descriptor per connection, and some for files, the ports and what is being refused.
void fit_connections(config::settings& all) {
  constexpr rlim_t others = 64;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const rlim_t wanted = all.server.max_connections + others;
  if (files.rlim_cur < wanted) {
    rlimit raised{std::min(wanted, files.rlim_max), files.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) files = raised;
  }
  if (files.rlim_cur >= wanted) return;
  all.server.max_connections =
      files.rlim_cur > others ? static_cast<std::uint32_t>(files.rlim_cur - others) : 1;
  std::fprintf(
      stderr, "server.max_connections lowered to %u: this process may open %llu files (ulimit -n)\n",
      all.server.max_connections, static_cast<unsigned long long>(files.rlim_cur));
}

// From the file and the command line, checked. Nothing when the words asked for help or the like.
std::optional<config::settings> read_settings(const std::vector<std::string>& words) {
  config::settings all;
  arguments options("serve", "Serves a model: HTTP and WebSocket on one port, raw TCP on another.");
  constexpr std::string_view groups[] = {"model", "engine", "server", "log"};
  options.settings(all, groups);
  if (!options.parse(words)) return std::nullopt;
  fit_connections(all);
  return all;
}

std::string joined(const std::vector<std::string_view>& names) {
  std::string out;
  for (const std::string_view name : names) (out += out.empty() ? "" : ", ") += name;
  return out;
}

// Everything runs on the one thread of `io`.
class serving {
 public:
  serving(std::vector<std::string> words, const config::settings& all, engine_options options) :
      words_(std::move(words)), settings_(all), limit_(all.server.drain_timeout_ms),
      model_path_(options.model_path), engine_(io_.get_executor(), std::move(options)),
      server_(engine_, server::make_server_options(all)), signals_(io_, SIGTERM, SIGINT),
      reloads_(io_, SIGHUP) {}

  int run() {
    server_.listen().value(); // first, so that a port in use is known before the model is loaded
    wait_for_signal();
    wait_for_reload();
    engine_.async_start([this](result<void> started) { on_started(std::move(started)); });
    io_.run();
    if (start_failure_) throw failure(*start_failure_);
    return status_;
  }

 private:
  void on_started(result<void> started) {
    if (!started) {
      if (!draining_) start_failure_ = with_way_out(started.error(), model_path_);
      io_.stop();
      return;
    }
    if (draining_) return;
    server_.engine_ready();
    const model_info& model = engine_.model();
    std::printf(
        "model     %s (%s), %u layers, context %u\n", one_line(model.name).c_str(),
        one_line(model.path).c_str(), model.layers, model.context);
    std::printf("kernels   %s\n", model.kernels.c_str());
    std::printf("memory    %s\n", describe(engine_.memory()).c_str());
    for (const std::string& address : server_.addresses()) std::printf("listening %s\n", address.c_str());
    std::puts("ready     Ctrl-C or SIGTERM drains and ends");
    std::fflush(stdout);
  }

  void wait_for_signal() {
    signals_.async_wait([this](boost::system::error_code code, int number) {
      if (!code) on_signal(number);
    });
  }

  void wait_for_reload() {
    reloads_.async_wait([this](boost::system::error_code code, int) {
      if (code) return;
      reload();
      wait_for_reload();
    });
  }

  // All or nothing: what is wrong with the new settings is told, with its place, and the old ones stay.
  void reload() {
    try {
      const auto wanted = read_settings(words_);
      if (!wanted) return;
      auto [in_force, taken, for_restart] = config::reload(settings_, *wanted);
      config::check_together(in_force).value();
      engine_options options;
      copy_engine_settings(in_force, options);
      engine_.reconfigure(options).value();
      server_.reconfigure(server::make_server_options(in_force));
      limit_ = std::chrono::milliseconds(in_force.server.drain_timeout_ms);
      apply_log_level(in_force);
      settings_ = in_force;
      if (!for_restart.empty()) log().warn("SIGHUP: needs a restart: {}", joined(for_restart));
      log().info("SIGHUP: {}", taken.empty() ? "no live setting changed" : "now in force: " + joined(taken));
    } catch (const std::exception& wrong) {
      log().error("SIGHUP: nothing was changed: {}", one_line(wrong.what()));
    }
  }

  void on_signal(int number) {
    if (cutting_) return io_.stop(); // asked three times
    if (draining_) {                 // asked twice: every client still hears how its request ended
      cutting_ = true;
      std::fputs("cutting what still runs; again to end at once\n", stderr);
      wait_for_signal();
      engine_.async_shutdown(std::chrono::milliseconds(0), [](const result<void>&) {});
      server_.shorten_drain(std::chrono::milliseconds(0));
      return;
    }
    draining_ = true;
    std::fprintf(
        stderr, "%s: draining, at most %lld s; again to cut\n", number == SIGTERM ? "SIGTERM" : "interrupt",
        static_cast<long long>(limit_.count() / 1000));
    wait_for_signal();
    waiting_for_ = 2;
    engine_.async_shutdown(limit_, [this](result<void> done) {
      if (!done) {
        std::fprintf(stderr, "troupe serve: %s\n", one_line(done.error().message).c_str());
        status_ = 1;
      }
      part_ended();
    });
    server_.async_drain(limit_, [this] { part_ended(); });
  }

  void part_ended() {
    if (--waiting_for_ == 0) io_.stop();
  }

  asio::io_context io_{1};
  last_tasks last_{io_};           // after the engine
  std::vector<std::string> words_; // of the command line, for a reload
  config::settings settings_;      // in force
  std::chrono::milliseconds limit_;
  std::string model_path_;
  engine engine_;
  server::server server_;
  asio::signal_set signals_, reloads_;
  std::optional<error> start_failure_;
  bool draining_ = false, cutting_ = false;
  int waiting_for_ = 0;
  int status_ = 0;
};

} // namespace

int serve_command(const std::vector<std::string>& words) {
  const auto all = read_settings(words);
  if (!all) return 0;
  apply_log_level(*all);
  serving run(words, *all, make_engine_options(*all));
  return run.run();
}

} // namespace troupe::cli
