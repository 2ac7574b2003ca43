// SPDX-License-Identifier: Apache-2.0
// The only file that includes CLI11.
#include "cli/arguments.hpp"

#include "config/loader.hpp"
#include "config/nearest.hpp"
#include "config/property.hpp"
#include "runtime/base/error.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <list>

namespace troupe::cli {

namespace {

std::string range(const std::string& least, const std::string& most) {
  return least + " to " + most;
}

template<class Number>
std::string number_text(Number value) {
  std::array<char, 40> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

// CLI11 takes a word in square brackets for a list and splits it. Marked, it is a word like any other.
constexpr char bracket_mark = '\x01';

std::string marked(const std::string& word) {
  return word.starts_with('[') && word.ends_with(']') ? bracket_mark + word : word;
}

void unmark(std::string& word) {
  if (word.size() > 1 && word[0] == bracket_mark && word[1] == '[') word.erase(0, 1);
}

/// CLI11 shows behind a flag's negation the value that it stands for.
class help_formatter final : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string names = CLI::Formatter::make_option_name(option, is_positional);
    constexpr std::string_view value = "{false}";
    if (const auto at = names.find(value); at != std::string::npos) names.erase(at, value.size());
    return names;
  }
};

} // namespace

struct arguments::state {
  // Setting flags are kept as text and read by the property table, whose messages are the same as for the
  // file.
  struct setting_flag {
    const config::property* row;
    std::string text;
    bool on = false;
    CLI::Option* option;
  };

  std::string command;
  CLI::App app;
  config::settings* settings = nullptr;
  std::list<setting_flag> flags;    // stable addresses: CLI11 keeps them
  std::vector<CLI::Option*> hidden; // but from --help-all
  std::vector<std::string*> texts;
  std::vector<std::vector<std::string>*> lists;
  std::string config_path;
  std::vector<std::string> assignments;
  bool dump = false;

  // Read as text, because CLI11 takes "-1" for a large unsigned number and "1e999" for infinity.
  template<class Number, class Into>
  void number(
      const std::string& names, Into& into, Number least, Number most, const std::string& help,
      const std::string& standard) {
    const std::string allowed = range(number_text(least), number_text(most));
    app.add_option_function<std::string>(
           names,
           [&into, least, most, allowed, names](std::string text) {
             unmark(text);
             Number value{};
             const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
             if (code != std::errc{} || end != text.data() + text.size() ||
                 !(value >= least && value <= most))
               throw CLI::ValidationError(
                   names.substr(names.find("--")), "cannot be \"" + text + "\"; it takes " + allowed);
             into = value;
           },
           help + " (" + allowed + standard + ')')
        ->type_name("N");
  }

  template<class Number>
  void number(const std::string& names, Number& into, Number least, Number most, const std::string& help) {
    number(names, into, least, most, help, ", default " + number_text(into));
  }

  void unmark_all() {
    for (std::string* text : texts) unmark(*text);
    for (std::vector<std::string>* list : lists) std::for_each(list->begin(), list->end(), unmark);
    for (setting_flag& flag : flags) unmark(flag.text);
    std::for_each(assignments.begin(), assignments.end(), unmark);
    unmark(config_path);
  }

  std::string nearest_flag(const std::string& wrong) const {
    config::nearest_name near(wrong.substr(std::min(wrong.size(), wrong.find_first_not_of('-'))));
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) near.consider(name);
    return near.best().empty() ? std::string() : "--" + near.best();
  }

  // CLI11 counts: "--model: 1 required TEXT missing".
  std::string wrong_count(const CLI::ArgumentMismatch& bad) const {
    const std::string text = bad.what(), name = text.substr(0, text.find(':'));
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) return text;
    if (text.find("missing") == std::string::npos) return name + " is given more than once";
    return name + " needs a value: " + option->get_description();
  }

  void apply_settings() {
    if (!config_path.empty()) config::apply_file(*settings, config_path).value();
    for (const std::string& assignment : assignments) config::apply_assignment(*settings, assignment).value();
    for (const setting_flag& flag : flags) {
      if (flag.option->count() == 0) continue;
      const bool is_switch = std::holds_alternative<bool& (*)(config::settings&)>(flag.row->field);
      const auto done =
          is_switch ? flag.row->set_switch(*settings, flag.on) : flag.row->set_text(*settings, flag.text);
      if (!done)
        throw failure(
            {errc::bad_config, std::string(flag.row->flag) + ' ' + done.error().message, done.error().param,
             0});
    }
    config::check_together(*settings).value();
  }
};

arguments::arguments(std::string command, const std::string& purpose) : state_(std::make_unique<state>()) {
  state_->app.formatter(std::make_shared<help_formatter>());
  state_->app.description(purpose);
  state_->app.name("troupe " + command);
  state_->command = std::move(command);
  state_->app.allow_windows_style_options(false);
}

arguments::~arguments() = default;

void arguments::positional(
    const std::string& name, std::string& into, const std::string& help, bool required) {
  state_->texts.push_back(&into);
  state_->app.add_option(name, into, help)->required(required)->type_name("");
}

void arguments::positional(
    const std::string& name, std::vector<std::string>& into, const std::string& help, bool required) {
  state_->lists.push_back(&into);
  state_->app.add_option(name, into, help)->required(required)->type_name("");
}

void arguments::option(const std::string& names, std::string& into, const std::string& help) {
  state_->texts.push_back(&into);
  state_->app.add_option(names, into, help)->type_name("TEXT");
}

void arguments::option(const std::string& names, std::vector<std::string>& into, const std::string& help) {
  state_->lists.push_back(&into);
  state_->app.add_option(names, into, help)->type_name("TEXT")->allow_extra_args(false);
}

void arguments::option(
    const std::string& names, std::uint64_t& into, std::uint64_t least, std::uint64_t most,
    const std::string& help) {
  state_->number(names, into, least, most, help);
}

void arguments::option(
    const std::string& names, std::uint32_t& into, std::uint32_t least, std::uint32_t most,
    const std::string& help) {
  state_->number(names, into, least, most, help);
}

void arguments::option(
    const std::string& names, std::optional<std::uint64_t>& into, std::uint64_t least, std::uint64_t most,
    const std::string& help) {
  state_->number(names, into, least, most, help, "");
}

void arguments::option(
    const std::string& names, double& into, double least, double most, const std::string& help) {
  state_->number(names, into, least, most, help);
}

void arguments::option(
    const std::string& names, float& into, float least, float most, const std::string& help) {
  state_->number(names, into, least, most, help);
}

void arguments::flag(const std::string& names, bool& into, const std::string& help) {
  state_->app.add_flag(names, into, help);
}

void arguments::required(const std::string& names) {
  state_->app.get_option(names)->required();
}

void arguments::exclusive(std::initializer_list<const char*> names) {
  for (const char* one : names)
    for (const char* other : names)
      if (one != other) state_->app.get_option(one)->excludes(state_->app.get_option(other));
}

bool arguments::given(const std::string& names) const {
  return state_->app.get_option(names)->count() > 0;
}

void arguments::settings(
    config::settings& into, std::span<const std::string_view> groups,
    std::span<const std::string_view> shown) {
  state_->settings = &into;
  for (const config::property& row : config::properties()) {
    const std::string_view group = row.name.substr(0, row.name.find('.'));
    if (row.flag.empty() || std::find(groups.begin(), groups.end(), group) == groups.end()) continue;
    state::setting_flag& flag = state_->flags.emplace_back(state::setting_flag{&row, {}, false, nullptr});
    std::string help(row.help);
    if (const std::string allowed = row.allowed(); !allowed.empty()) {
      const bool plain = row.unit.empty() || row.unit == "bytes"; // sizes carry their unit
      help += " (" + allowed + (plain ? "" : ' ' + std::string(row.unit)) + ')';
    }
    std::string names(row.flag);
    if (row.name == "model.path") names = "-m," + names;
    if (std::holds_alternative<bool& (*)(config::settings&)>(row.field)) {
      if (row.toml(into) == "true") names += ",!--no-" + std::string(row.flag.substr(2));
      flag.option = state_->app.add_flag(names, flag.on, help);
    } else
      flag.option =
          state_->app.add_option(names, flag.text, help + "; default " + row.toml(into))->type_name("");
    if (!shown.empty() && std::find(shown.begin(), shown.end(), row.name) == shown.end()) {
      flag.option->group(""); // which --help leaves out
      state_->hidden.push_back(flag.option);
    }
  }
  if (!state_->hidden.empty())
    state_->app.set_help_all_flag(
        "--help-all", "Print this help message with the settings of a server and exit");
  state_->app.add_option("--config", state_->config_path, "TOML file with settings (docs/config.md)")
      ->type_name("FILE");
  state_->app.add_option("--set", state_->assignments, "any setting as TABLE.KEY=VALUE, may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  state_->app.add_flag("--dump-config", state_->dump, "print the settings in force as TOML and stop");
}

bool arguments::parse(const std::vector<std::string>& words) {
  std::vector<std::string> reversed; // as CLI11 wants a vector
  std::transform(words.rbegin(), words.rend(), std::back_inserter(reversed), marked);
  try {
    state_->app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::fputs(state_->app.help().c_str(), stdout);
    return false;
  } catch (const CLI::CallForAllHelp&) {
    for (CLI::Option* option : state_->hidden) option->group("Further settings");
    std::fputs(state_->app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> extra = state_->app.remaining();
    std::string first = extra.empty() ? "" : extra.front().substr(0, extra.front().find('='));
    unmark(first);
    const std::string near = first.starts_with('-') ? state_->nearest_flag(first) : "";
    throw failure(
        errc::bad_config,
        "does not take \"" + first + '"' +
            (near.empty() ? "; see troupe " + state_->command + " --help" : "; did you mean " + near + '?'));
  } catch (const CLI::ArgumentMismatch& bad) {
    throw failure(errc::bad_config, state_->wrong_count(bad) + "; see troupe " + state_->command + " --help");
  } catch (const CLI::ParseError& bad) {
    throw failure(errc::bad_config, std::string(bad.what()) + "; see troupe " + state_->command + " --help");
  }
  state_->unmark_all();
  if (state_->settings == nullptr) return true;
  state_->apply_settings();
  if (!state_->dump) return true;
  std::fputs(config::dump(*state_->settings).c_str(), stdout);
  return false;
}

} // namespace troupe::cli
