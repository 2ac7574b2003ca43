// SPDX-License-Identifier: Apache-2.0
// Opening GGUF files and the typed view of their metadata.
#include "models/gguf_file.hpp"

#include "models/gguf_parser.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>

namespace troupe::models {

namespace {

template<class T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

template<class T>
std::span<const std::byte> element(const gguf_value& value, std::uint64_t index) {
  return value.bytes.subspan(index * sizeof(T), sizeof(T));
}

/// Calls `visit` with element `index` as it is stored; strings never come here.
template<class Visitor>
auto visit_number(const gguf_value& value, std::uint64_t index, Visitor visit) {
  switch (value.type) {
  case gguf_value_type::u8:
    return visit(load<std::uint8_t>(element<std::uint8_t>(value, index)));
  case gguf_value_type::i8:
    return visit(load<std::int8_t>(element<std::int8_t>(value, index)));
  case gguf_value_type::u16:
    return visit(load<std::uint16_t>(element<std::uint16_t>(value, index)));
  case gguf_value_type::i16:
    return visit(load<std::int16_t>(element<std::int16_t>(value, index)));
  case gguf_value_type::u32:
    return visit(load<std::uint32_t>(element<std::uint32_t>(value, index)));
  case gguf_value_type::i32:
    return visit(load<std::int32_t>(element<std::int32_t>(value, index)));
  case gguf_value_type::u64:
    return visit(load<std::uint64_t>(element<std::uint64_t>(value, index)));
  case gguf_value_type::i64:
    return visit(load<std::int64_t>(element<std::int64_t>(value, index)));
  case gguf_value_type::f32:
    return visit(load<float>(element<float>(value, index)));
  case gguf_value_type::f64:
    return visit(load<double>(element<double>(value, index)));
  default:
    return visit(load<std::uint8_t>(element<std::uint8_t>(value, index)) != 0);
  }
}

template<class T>
constexpr std::string_view wanted_name() {
  if constexpr (std::is_same_v<T, bool>)
    return "a bool";
  else if constexpr (std::is_same_v<T, std::string_view>)
    return "a string";
  else if constexpr (std::is_floating_point_v<T>)
    return "a float";
  else
    return "an integer";
}

/// Whether a stored type can serve a T at all; its value may still not fit.
template<class T>
bool serves(gguf_value_type type) {
  switch (type) {
  case gguf_value_type::boolean:
    return std::is_same_v<T, bool>;
  case gguf_value_type::string:
    return std::is_same_v<T, std::string_view>;
  case gguf_value_type::f32:
  case gguf_value_type::f64:
    return std::is_floating_point_v<T>;
  case gguf_value_type::array:
    return false;
  default:
    return std::is_integral_v<T> && !std::is_same_v<T, bool>;
  }
}

/// A stored number as T, or nothing when it does not fit; `serves` has matched the kinds.
template<class T, class Stored>
std::optional<T> convert(Stored stored) {
  if constexpr (std::is_same_v<T, bool> != std::is_same_v<Stored, bool>)
    return std::nullopt;
  else if constexpr (std::is_same_v<T, bool>)
    return stored;
  else if constexpr (std::is_floating_point_v<T> != std::is_floating_point_v<Stored>)
    return std::nullopt;
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(stored);
  else if (!std::in_range<T>(stored))
    return std::nullopt;
  else
    return static_cast<T>(stored);
}

std::string number_text(const gguf_value& value, std::uint64_t index) {
  return visit_number(value, index, [](auto number) -> std::string {
    if constexpr (std::is_same_v<decltype(number), bool>)
      return number ? "true" : "false";
    else if constexpr (std::is_floating_point_v<decltype(number)>) {
      std::array<char, 32> text{}; // the shortest that reads back the same
      return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
    } else
      return std::to_string(number);
  });
}

/// Printable form of untrusted text between quotes, cut at the character that reaches beyond `longest` bytes.
std::string escaped(std::string_view text, std::size_t longest) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  std::size_t end = std::min(text.size(), longest);
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  for (const char c : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      out += "\\n";
    else if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (byte < 0x20 || byte == 0x7f)
      out += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    else
      out += c;
  }
  if (text.size() > end) out += "... (" + std::to_string(text.size()) + " bytes)";
  return out;
}

std::string_view characters(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr std::uint64_t most_parts = 99999; // five digits

/// How the name of part `index` of `count` ends. Source: llama.cpp, llama_split_path.
std::string part_suffix(std::uint64_t index, std::uint64_t count) {
  std::array<char, 64> text{};
  std::snprintf(
      text.data(), text.size(), "-%05u-of-%05u.gguf", static_cast<unsigned>(index + 1),
      static_cast<unsigned>(count));
  return text.data();
}

/// Takes the first string off the encoded elements of an array.
std::string_view take_string(std::span<const std::byte>& bytes) {
  const auto length = load<std::uint64_t>(bytes);
  const auto text = characters(bytes.subspan(sizeof length, length));
  bytes = bytes.subspan(sizeof length + length);
  return text;
}

} // namespace

std::string_view value_type_name(gguf_value_type type) noexcept {
  static constexpr std::string_view names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                               "bool", "string", "array", "u64", "i64", "f64"};
  return names[static_cast<std::uint32_t>(type)];
}

result<gguf_file> gguf_file::open(const std::string& path) {
  const auto open_one = [](const std::string& part) -> result<gguf_file> {
    auto mapped = mapped_file::open(part);
    if (!mapped) return mapped.error();
    auto file = parse_one(mapped->bytes(), part);
    if (file) file->mappings_.push_back(std::move(*mapped));
    return file;
  };
  auto file = open_one(path);
  if (!file) return file;
  if (auto fine = file->check_first(); !fine) return fine.error();
  const std::uint64_t count = file->split_.count;
  if (count > 1 && !path.ends_with(part_suffix(0, count)))
    return file->fail(
        "is the first of " + std::to_string(count) + " parts of a split model; its name must end in '" +
        part_suffix(0, count) + "', so that the others are found");
  const std::string stem = path.substr(0, path.size() - std::min(path.size(), part_suffix(0, count).size()));
  for (std::uint64_t i = 1; i < count; ++i) {
    auto part = open_one(stem + part_suffix(i, count));
    if (!part && part.error().code == errc::not_found)
      return file->fail(
          "part " + std::to_string(i + 1) + " of " + std::to_string(count) +
              " is missing: " + part.error().message,
          errc::not_found);
    if (!part) return part.error();
    if (auto added = file->add_part(std::move(*part)); !added) return added.error();
  }
  if (auto done = file->finish_parts(); !done) return done.error();
  return file;
}

result<gguf_file> gguf_file::parse(std::span<const std::byte> bytes, std::string name) {
  const gguf_part whole{bytes, std::move(name)};
  return parse(std::span(&whole, 1));
}

result<gguf_file> gguf_file::parse(std::span<const gguf_part> parts) {
  auto file = parse_one(parts[0].bytes, parts[0].name);
  if (!file) return file;
  if (auto fine = file->check_first(); !fine) return fine.error();
  for (const gguf_part& next : parts.subspan(1)) {
    auto part = parse_one(next.bytes, next.name);
    if (!part) return part;
    if (auto added = file->add_part(std::move(*part)); !added) return added.error();
  }
  if (auto done = file->finish_parts(); !done) return done.error();
  return file;
}

result<gguf_file> gguf_file::parse_one(std::span<const std::byte> bytes, std::string name) {
  gguf_file file;
  file.contents_ = {bytes};
  file.name_ = std::move(name);
  if (auto done = gguf_parser::fill(file); !done) return done.error();
  return file;
}

result<void> gguf_file::check_first() const {
  if (split_.count <= 1) return {};
  if (split_.count > most_parts)
    return fail(
        "key 'split.count' is " + std::to_string(split_.count) + "; at most " + std::to_string(most_parts) +
        " parts can be numbered");
  if (split_.index != 0)
    return fail(
        "is part " + std::to_string(split_.index + 1) + " of " + std::to_string(split_.count) +
        " of a split model: open its first part, whose name ends in '" + part_suffix(0, split_.count) + "'");
  return {};
}

result<void> gguf_file::add_part(gguf_file part) {
  if (part.split_.count != split_.count)
    return part.fail(
        "belongs to a model of " + std::to_string(part.split_.count) + " parts, but '" + name_ +
        "' to one of " + std::to_string(split_.count));
  if (part.split_.index != parts_)
    return part.fail(
        "is part " + std::to_string(part.split_.index + 1) + " of " + std::to_string(split_.count) +
        " where part " + std::to_string(parts_ + 1) + " is expected");
  if (part.split_.tensors != split_.tensors)
    return part.fail("key 'split.tensors.count' differs from that of '" + name_ + "'");
  ++parts_;
  contents_.push_back(part.contents_.front());
  tensors_.insert(tensors_.end(), part.tensors_.begin(), part.tensors_.end());
  for (mapped_file& mapping : part.mappings_) mappings_.push_back(std::move(mapping));
  return {};
}

result<void> gguf_file::finish_parts() {
  if (parts_ != std::max<std::uint64_t>(split_.count, 1))
    return fail(
        "is one of " + std::to_string(split_.count) + " parts of a split model, of which " +
        std::to_string(parts_) + " are here");
  if (parts_ == 1) return {};
  if (split_.tensors && *split_.tensors != tensors_.size())
    return fail(
        "the " + std::to_string(parts_) + " parts hold " + std::to_string(tensors_.size()) +
        " tensors, key 'split.tensors.count' is " + std::to_string(*split_.tensors));
  return gguf_parser::index_tensors(*this);
}

const gguf_value* gguf_file::find_value(std::string_view key) const noexcept {
  const auto before = [this](std::uint32_t index, std::string_view wanted) {
    return values_[index].key < wanted;
  };
  const auto found = std::lower_bound(values_by_key_.begin(), values_by_key_.end(), key, before);
  return found == values_by_key_.end() || values_[*found].key != key ? nullptr : &values_[*found];
}

const gguf_tensor* gguf_file::find_tensor(std::string_view name) const noexcept {
  const auto before = [this](std::uint32_t index, std::string_view wanted) {
    return tensors_[index].name < wanted;
  };
  const auto found = std::lower_bound(tensors_by_name_.begin(), tensors_by_name_.end(), name, before);
  return found == tensors_by_name_.end() || tensors_[*found].name != name ? nullptr : &tensors_[*found];
}

template<class T>
result<T> gguf_file::read_scalar(const gguf_value& value) const {
  const std::string where = "key '" + std::string(value.key) + "'";
  if (value.is_array || !serves<T>(value.type))
    return fail(
        where + " is " + (value.is_array ? "an array of " : "of type ") +
        std::string(value_type_name(value.type)) + "; " + std::string(wanted_name<T>()) + " is needed");
  if constexpr (std::is_same_v<T, std::string_view>) {
    return characters(value.bytes);
  } else {
    const auto converted = visit_number(value, 0, [](auto stored) { return convert<T>(stored); });
    if (converted) return *converted;
    return fail(
        where + " is " + number_text(value, 0) + "; the allowed range is " +
        std::to_string(std::numeric_limits<T>::min()) + ".." + std::to_string(std::numeric_limits<T>::max()));
  }
}

template<class T>
result<std::vector<T>> gguf_file::read_array(const gguf_value& value) const {
  const std::string where = "key '" + std::string(value.key) + "'";
  // An empty array carries no evidence of its type.
  if (!value.is_array || (!serves<T>(value.type) && value.count != 0))
    return fail(
        where + " is " + (value.is_array ? "an array of " : "of type ") +
        std::string(value_type_name(value.type)) + "; an array, each element " +
        std::string(wanted_name<T>()) + ", is needed");
  std::vector<T> elements;
  elements.reserve(value.count);
  if constexpr (std::is_same_v<T, std::string_view>) {
    for (auto bytes = value.bytes; !bytes.empty();) elements.push_back(take_string(bytes));
  } else {
    for (std::uint64_t i = 0; i < value.count; ++i) {
      const auto converted = visit_number(value, i, [](auto stored) { return convert<T>(stored); });
      if (!converted)
        return fail(
            where + ", element " + std::to_string(i) + " is " + number_text(value, i) +
            "; the allowed range is " + std::to_string(std::numeric_limits<T>::min()) + ".." +
            std::to_string(std::numeric_limits<T>::max()));
      elements.push_back(*converted);
    }
  }
  return elements;
}

template<class T>
result<T> gguf_file::get(std::string_view key) const {
  const gguf_value* value = find_value(key);
  if (value == nullptr)
    return fail("key '" + std::string(key) + "' is missing; " + std::string(wanted_name<T>()) + " is needed");
  return read_scalar<T>(*value);
}

template<class T>
result<std::optional<T>> gguf_file::find(std::string_view key) const {
  const gguf_value* value = find_value(key);
  if (value == nullptr) return std::optional<T>{};
  auto read = read_scalar<T>(*value);
  if (!read) return read.error();
  return std::optional<T>(*read);
}

template<class T>
result<std::vector<T>> gguf_file::get_array(std::string_view key) const {
  const gguf_value* value = find_value(key);
  if (value == nullptr) return fail("key '" + std::string(key) + "' is missing; an array is needed");
  return read_array<T>(*value);
}

template<class T>
result<std::optional<std::vector<T>>> gguf_file::find_array(std::string_view key) const {
  const gguf_value* value = find_value(key);
  if (value == nullptr) return std::optional<std::vector<T>>{};
  auto read = read_array<T>(*value);
  if (!read) return read.error();
  return std::optional<std::vector<T>>(std::move(*read));
}

#define TROUPE_GGUF_GETTERS(T)                                                                               \
  template result<T> gguf_file::get<T>(std::string_view) const;                                              \
  template result<std::optional<T>> gguf_file::find<T>(std::string_view) const;                              \
  template result<std::vector<T>> gguf_file::get_array<T>(std::string_view) const;                           \
  template result<std::optional<std::vector<T>>> gguf_file::find_array<T>(std::string_view) const;
TROUPE_GGUF_GETTERS(bool)
TROUPE_GGUF_GETTERS(std::int32_t)
TROUPE_GGUF_GETTERS(std::uint32_t)
TROUPE_GGUF_GETTERS(std::int64_t)
TROUPE_GGUF_GETTERS(std::uint64_t)
TROUPE_GGUF_GETTERS(float)
TROUPE_GGUF_GETTERS(double)
TROUPE_GGUF_GETTERS(std::string_view)
#undef TROUPE_GGUF_GETTERS

std::string describe(const gguf_value& value) {
  constexpr std::size_t longest_text = 80;
  constexpr std::uint64_t most_elements = 8;
  if (!value.is_array)
    return value.type == gguf_value_type::string
               ? "\"" + escaped(characters(value.bytes), longest_text) + "\""
               : number_text(value, 0);
  std::string text = "[";
  auto bytes = value.bytes;
  for (std::uint64_t i = 0; i < std::min(value.count, most_elements); ++i) {
    if (i != 0) text += ", ";
    text += value.type == gguf_value_type::string ? "\"" + escaped(take_string(bytes), longest_text) + "\""
                                                  : number_text(value, i);
  }
  if (value.count > most_elements) text += ", ... (" + std::to_string(value.count) + ")";
  return text + "]";
}

} // namespace troupe::models
