// SPDX-License-Identifier: Apache-2.0
// Reading a model's settings from GGUF metadata or config.json, under the names that each has for them.
#pragma once

#include "runtime/base/error.hpp"

#include <boost/json/object.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe::models {

class gguf_file;

/// A setting's two names: in GGUF metadata, behind "ARCH.", and in config.json, where dots lead into objects
/// ("rope_scaling.factor"). Empty: that kind of file cannot state it.
struct config_key {
  std::string gguf;
  std::string hf;
};

/// One value as the file has it. `monostate` is JSON's null.
using config_value = std::variant<
    std::monostate, bool, std::int64_t, double, std::string, std::vector<double>, std::vector<std::string>,
    std::vector<std::int64_t>>;

/// Where settings stand. Thread: any reader.
class config_source {
 public:
  virtual ~config_source() = default;
  /// Nothing when the key is absent. A value that is none of config_value's kinds (an object, a mixed list)
  /// comes as null with `odd` set.
  virtual std::optional<config_value> find(std::string_view name, bool& odd) const = 0;
  virtual bool is_object(std::string_view name) const = 0;
  /// Every name that a reader should have asked for; of objects their members.
  virtual std::vector<std::string> names() const = 0;
  /// "llama.block_count" for "block_count": the name as the file's author knows it.
  virtual std::string shown(std::string_view name) const = 0;
};

std::unique_ptr<const config_source> make_gguf_source(const gguf_file& file, std::string prefix);
/// `config` outlives the source.
std::unique_ptr<const config_source> make_json_source(const boost::json::object& config);

/// Typed, bounded access that remembers the first thing that was wrong, so that a description of an
/// architecture reads as a list of settings: after an error every call gives a value within its range, and
/// `outcome` tells the error. It also remembers which keys were asked for: one that nobody asked for may
/// change the numbers, and is refused. One use, one thread.
class config_reader {
 public:
  config_reader(std::unique_ptr<const config_source> source, std::string file_name, bool is_gguf);

  bool is_gguf() const noexcept { return is_gguf_; }

  bool has(const config_key& key);    ///< there, and not null
  bool states(const config_key& key); ///< there, perhaps null
  bool is_object(const config_key& key) const;
  bool is_text(const config_key& key);

  std::uint32_t number(const config_key& key, std::uint32_t low, std::uint32_t high); ///< must be there
  std::uint32_t
  number_or(const config_key& key, std::uint32_t fallback, std::uint32_t low, std::uint32_t high);
  float real(const config_key& key, float low, float high); ///< must be there
  float real_or(const config_key& key, float fallback, float low, float high);
  bool flag_or(const config_key& key, bool fallback);
  std::string text_or(const config_key& key, std::string fallback);

  /// Lists; empty when the key is absent. At most `longest` elements.
  std::vector<std::uint32_t>
  numbers(const config_key& key, std::size_t longest, std::uint32_t low, std::uint32_t high);
  std::vector<float> reals(const config_key& key, std::size_t longest, float low, float high);
  std::vector<std::string> texts(const config_key& key, std::size_t longest);

  /// The key is known and changes no number here.
  void ignore(const config_key& key);
  void ignore_members(const config_key& key); ///< of an object
  /// Refuses the file by this key: "key 'x' `why`". Code unsupported unless given.
  void refuse(const config_key& key, const std::string& why, errc code = errc::unsupported);
  /// Refuses it for a reason of its own.
  void fail(const std::string& why, errc code = errc::unsupported);
  /// Refuses keys that nobody asked for, but those that say nothing: null, false, "", 0 and empty lists.
  void refuse_unread();

  bool failed() const noexcept { return error_.has_value(); }
  result<void> outcome() const;

 private:
  const std::string& name_of(const config_key& key) const noexcept { return is_gguf_ ? key.gguf : key.hf; }
  std::optional<config_value> find(const config_key& key);
  template<class T>
  std::optional<T> get(const config_key& key, const char* wanted);
  void must_have(const config_key& key, const char* wanted);
  template<class T>
  T in_range(const config_key& key, T value, T low, T high);

  bool is_ignored(std::string_view name) const;

  std::unique_ptr<const config_source> source_;
  std::string file_name_;
  bool is_gguf_;
  std::set<std::string, std::less<>> read_;
  std::vector<std::string> ignored_objects_; // "name."
  std::optional<error> error_;
};

} // namespace troupe::models
