// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file, believed in nothing.
#include "models/safetensors_file.hpp"

#include "models/json_document.hpp"
#include "runtime/base/checked.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace troupe::models {

namespace json = boost::json;

namespace {

struct type_row {
  std::string_view name;
  std::uint32_t bytes;
};

/// In the order of safetensors_type.
constexpr std::array<type_row, 16> type_rows{
    {{"BOOL", 1},
     {"U8", 1},
     {"I8", 1},
     {"F8_E4M3", 1},
     {"F8_E5M2", 1},
     {"F8_E8M0", 1},
     {"U16", 2},
     {"I16", 2},
     {"F16", 2},
     {"BF16", 2},
     {"U32", 4},
     {"I32", 4},
     {"F32", 4},
     {"U64", 8},
     {"I64", 8},
     {"F64", 8}}};

constexpr std::size_t max_safetensors_rank = 8;
constexpr std::size_t max_tensor_name = 512;

std::optional<safetensors_type> find_type(std::string_view name) {
  for (std::size_t i = 0; i < type_rows.size(); ++i)
    if (type_rows[i].name == name) return static_cast<safetensors_type>(i);
  return std::nullopt;
}

/// A whole number that is not negative, or nothing.
std::optional<std::uint64_t> whole_number(const json::value& value) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<std::uint64_t>(value.get_int64());
  return std::nullopt;
}

bool is_plain_name(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

} // namespace

/// Fills a `safetensors_file` from its bytes. One use.
class safetensors_parser {
 public:
  static result<void> fill(safetensors_file& file) {
    safetensors_parser parser(file);
    const auto header = parser.read_header();
    if (!header) return header.error();
    for (const auto& [key, value] : *header) {
      if (key == "__metadata__") continue; // free text
      if (auto read = parser.read_entry(key, value); !read) return read;
    }
    if (auto covered = parser.check_cover(); !covered) return covered;
    std::sort(file.entries_.begin(), file.entries_.end(), [](const auto& a, const auto& b) {
      return a.name < b.name;
    });
    return {};
  }

 private:
  explicit safetensors_parser(safetensors_file& file) : file_(file) {}

  error fail(const std::string& message, errc code = errc::bad_file) const {
    return {code, file_.name_ + ": " + message, {}, 0};
  }

  result<json::object> read_header() {
    const auto bytes = file_.bytes_;
    std::uint64_t length = 0;
    if (bytes.size() < sizeof length)
      return fail("is no safetensors file: it has only " + std::to_string(bytes.size()) + " bytes");
    std::memcpy(&length, bytes.data(), sizeof length);
    if (length > max_safetensors_header)
      return fail(
          "states a header of " + std::to_string(length) + " bytes; at most " +
          std::to_string(max_safetensors_header) + " are allowed (is it a safetensors file?)");
    if (length > bytes.size() - sizeof length)
      return fail(
          "states a header of " + std::to_string(length) + " bytes, but has only " +
          std::to_string(bytes.size() - sizeof length) + " after its length");
    data_ = bytes.subspan(sizeof length + length);
    const auto text = bytes.subspan(sizeof length, length);
    return parse_json_object({reinterpret_cast<const char*>(text.data()), text.size()}, file_.name_);
  }

  result<void> read_entry(std::string_view name, const json::value& value) {
    if (name.empty() || name.size() > max_tensor_name || !is_plain_name(name))
      return fail(
          "a tensor's name must be 1.." + std::to_string(max_tensor_name) +
          " printable ASCII characters without spaces");
    where_ = "tensor '" + std::string(name) + "'";
    const json::object* fields = value.if_object();
    if (fields == nullptr) return fail(where_ + " is described by no JSON object");
    for (const auto& [key, ignored] : *fields)
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        return fail(where_ + ": field '" + for_message(key) + "' is unknown");
    safetensors_entry entry{};
    entry.name = name;
    if (auto read = read_type(*fields, entry); !read) return read;
    if (auto read = read_shape(*fields, entry); !read) return read;
    if (auto read = read_extent(*fields, entry); !read) return read;
    file_.entries_.push_back(std::move(entry));
    return {};
  }

  result<void> read_type(const json::object& fields, safetensors_entry& entry) {
    const json::value* dtype = fields.if_contains("dtype");
    if (dtype == nullptr || !dtype->is_string()) return fail(where_ + " has no string 'dtype'");
    const std::string_view name(dtype->get_string());
    const auto type = find_type(name);
    if (!type)
      return fail(where_ + " has dtype '" + for_message(name) + "', which is not known", errc::unsupported);
    entry.type = *type;
    return {};
  }

  result<void> read_shape(const json::object& fields, safetensors_entry& entry) {
    const json::value* shape = fields.if_contains("shape");
    if (shape == nullptr || !shape->is_array()) return fail(where_ + " has no array 'shape'");
    if (shape->get_array().size() > max_safetensors_rank)
      return fail(
          where_ + " has " + std::to_string(shape->get_array().size()) + " dimensions; at most " +
          std::to_string(max_safetensors_rank) + " are supported");
    entry.elements = 1;
    for (const json::value& extent : shape->get_array()) {
      const auto number = whole_number(extent);
      if (!number) return fail(where_ + ": its shape holds what is no whole number of 0 or more");
      const auto product = checked_mul(entry.elements, *number);
      if (!product) return fail(where_ + ": its shape is of 2^64 elements or more");
      entry.shape.push_back(*number);
      entry.elements = *product;
    }
    return {};
  }

  result<void> read_extent(const json::object& fields, safetensors_entry& entry) {
    const json::value* offsets = fields.if_contains("data_offsets");
    const json::array* pair = offsets == nullptr ? nullptr : offsets->if_array();
    const auto begin = pair != nullptr && pair->size() == 2 ? whole_number((*pair)[0]) : std::nullopt;
    const auto end = pair != nullptr && pair->size() == 2 ? whole_number((*pair)[1]) : std::nullopt;
    if (!begin || !end) return fail(where_ + ": 'data_offsets' must be two whole numbers of 0 or more");
    if (*begin > *end || *end > data_.size())
      return fail(
          where_ + ": bytes " + std::to_string(*begin) + ".." + std::to_string(*end) +
          " are not in the file's " + std::to_string(data_.size()) + " bytes of data");
    const auto needed = checked_mul(entry.elements, std::uint64_t{element_bytes(entry.type)});
    if (!needed || *needed != *end - *begin)
      return fail(
          where_ + " is " + describe(entry) + ", but has " + std::to_string(*end - *begin) + " bytes");
    entry.data = data_.subspan(*begin, *end - *begin);
    return {};
  }

  /// In the order of the data each tensor must begin where the one before it ends.
  result<void> check_cover() const {
    std::vector<const safetensors_entry*> order;
    order.reserve(file_.entries_.size());
    for (const safetensors_entry& entry : file_.entries_) order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
      return a->data.data() != b->data.data() ? a->data.data() < b->data.data()
                                              : a->data.size() < b->data.size();
    });
    const std::byte* end = data_.data();
    for (const safetensors_entry* entry : order) {
      if (entry->data.data() < end)
        return fail("tensor '" + entry->name + "' overlaps the one before it in the file");
      if (entry->data.data() > end)
        return fail("the bytes in front of tensor '" + entry->name + "' belong to no tensor");
      end = entry->data.data() + entry->data.size();
    }
    if (end != data_.data() + data_.size())
      return fail(
          "the last " + std::to_string(data_.data() + data_.size() - end) + " bytes belong to no tensor");
    return {};
  }

  safetensors_file& file_;
  std::span<const std::byte> data_;
  std::string where_;
};

std::string_view type_name(safetensors_type type) noexcept {
  return type_rows[static_cast<std::size_t>(type)].name;
}

std::uint32_t element_bytes(safetensors_type type) noexcept {
  return type_rows[static_cast<std::size_t>(type)].bytes;
}

result<safetensors_file> safetensors_file::open(const std::string& path) {
  auto mapped = mapped_file::open(path);
  if (!mapped) return mapped.error();
  auto file = parse(mapped->bytes(), path);
  if (file) file->mapping_ = std::move(*mapped);
  return file;
}

result<safetensors_file> safetensors_file::parse(std::span<const std::byte> bytes, std::string name) {
  safetensors_file file;
  file.bytes_ = bytes;
  file.name_ = std::move(name);
  if (auto done = safetensors_parser::fill(file); !done) return done.error();
  return file;
}

const safetensors_entry* safetensors_file::find(std::string_view name) const noexcept {
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const safetensors_entry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found == entries_.end() || found->name != name ? nullptr : &*found;
}

std::string describe(const safetensors_entry& entry) {
  std::string text(type_name(entry.type));
  text += " [";
  for (std::size_t d = 0; d < entry.shape.size(); ++d)
    text += (d == 0 ? "" : ", ") + std::to_string(entry.shape[d]);
  return text + "]";
}

} // namespace troupe::models
