// SPDX-License-Identifier: Apache-2.0
// Walking a GGUF file: header, metadata, tensor table, extents.
#include "models/gguf_parser.hpp"

#include "runtime/base/checked.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

static_assert(std::endian::native == std::endian::little, "GGUF numbers are read in place");

namespace troupe::models {

namespace {

constexpr std::uint64_t max_values = 1u << 16;  // the largest files known hold a few hundred
constexpr std::uint64_t max_tensors = 1u << 18; // likewise some ten thousand
constexpr std::uint64_t max_key_length = 65535; // docs/gguf.md
constexpr std::uint64_t max_tensor_name_length = 64;
constexpr std::uint32_t max_rank = 4;
constexpr std::uint32_t min_alignment = 8, max_alignment = 1u << 16;

// The smallest entries that can exist: they turn a count into a bound before anything is allocated for it.
constexpr std::uint64_t min_value_bytes = 8 + 1 + 4 + 1;          // key, type, one byte
constexpr std::uint64_t min_tensor_bytes = 8 + 1 + 4 + 8 + 4 + 8; // name, rank, one dimension, type, offset

/// Bytes of one element; 0 for a string.
std::uint64_t element_bytes(gguf_value_type type) {
  switch (type) {
  case gguf_value_type::u8:
  case gguf_value_type::i8:
  case gguf_value_type::boolean:
    return 1;
  case gguf_value_type::u16:
  case gguf_value_type::i16:
    return 2;
  case gguf_value_type::u32:
  case gguf_value_type::i32:
  case gguf_value_type::f32:
    return 4;
  case gguf_value_type::u64:
  case gguf_value_type::i64:
  case gguf_value_type::f64:
    return 8;
  case gguf_value_type::string:
    break;
  case gguf_value_type::array:
    break;
  }
  return 0;
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

/// Indices of `items` sorted by `name_of`, or the name that occurs twice.
template<class Item, class NameOf>
std::optional<std::string_view>
sort_by_name(const std::vector<Item>& items, NameOf name_of, std::vector<std::uint32_t>& order) {
  order.resize(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) {
    return name_of(items[left]) < name_of(items[right]);
  });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (name_of(items[order[i]]) == name_of(items[order[i - 1]])) return name_of(items[order[i]]);
  return std::nullopt;
}

} // namespace

result<void> gguf_parser::fill(gguf_file& file) {
  gguf_parser parser(file);
  using step = result<void> (gguf_parser::*)();
  for (const step next :
       {&gguf_parser::read_header, &gguf_parser::read_metadata, &gguf_parser::index_metadata,
        &gguf_parser::read_split, &gguf_parser::read_tensor_infos})
    if (auto done = (parser.*next)(); !done) return done.error();
  if (auto done = index_tensors(file); !done) return done.error();
  return parser.place_tensors();
}

error gguf_parser::truncated(const std::string& what, std::uint64_t needed) const {
  return file_.fail(
      where_ + ": " + what + " needs " + std::to_string(needed) + " bytes, but only " +
      std::to_string(left()) + " are left at offset " + std::to_string(position_) +
      ": the file is truncated or damaged");
}

template<class T>
result<T> gguf_parser::read(const char* what) {
  if (left() < sizeof(T)) return truncated(what, sizeof(T));
  T value;
  std::memcpy(&value, bytes_.data() + position_, sizeof value);
  position_ += sizeof value;
  return value;
}

result<std::string_view> gguf_parser::read_name(const char* what, std::uint64_t longest) {
  const auto length = read<std::uint64_t>(what);
  if (!length) return length.error();
  if (*length == 0 || *length > longest)
    return file_.fail(
        where_ + ": " + what + " has " + std::to_string(*length) + " characters; 1.." +
        std::to_string(longest) + " are allowed");
  if (*length > left()) return truncated(what, *length);
  const std::string_view name(reinterpret_cast<const char*>(bytes_.data() + position_), *length);
  if (!is_printable(name)) return file_.fail(where_ + ": " + what + " holds bytes outside printable ASCII");
  position_ += *length;
  return name;
}

result<void> gguf_parser::read_header() {
  where_ = "header";
  const auto magic = read<std::array<char, 4>>("the magic");
  if (!magic) return magic.error();
  if (std::string_view(magic->data(), 4) != "GGUF")
    return file_.fail("is not a GGUF file: it does not start with 'GGUF'");
  const auto version = read<std::uint32_t>("the version");
  if (!version) return version.error();
  if (*version != 0 && (*version & 0xffffu) == 0)
    return file_.fail("is a big-endian GGUF file; only little-endian files can be read", errc::unsupported);
  if (*version != 2 && *version != 3)
    return file_.fail(
        "has GGUF version " + std::to_string(*version) + "; versions 2 and 3 can be read", errc::unsupported);
  file_.version_ = *version;

  const auto tensors = read<std::uint64_t>("the tensor count");
  if (!tensors) return tensors.error();
  const auto values = read<std::uint64_t>("the metadata count");
  if (!values) return values.error();
  tensor_count_ = *tensors;
  value_count_ = *values;
  if (tensor_count_ > std::min(max_tensors, left() / min_tensor_bytes))
    return file_.fail(
        "header: claims " + std::to_string(tensor_count_) + " tensors; a file of " +
        std::to_string(bytes_.size()) + " bytes has room for " +
        std::to_string(std::min(max_tensors, left() / min_tensor_bytes)));
  if (value_count_ > std::min(max_values, left() / min_value_bytes))
    return file_.fail(
        "header: claims " + std::to_string(value_count_) + " metadata entries; a file of " +
        std::to_string(bytes_.size()) + " bytes has room for " +
        std::to_string(std::min(max_values, left() / min_value_bytes)));
  return {};
}

result<void> gguf_parser::read_metadata() {
  file_.values_.reserve(value_count_);
  for (std::uint64_t i = 0; i < value_count_; ++i) {
    where_ = "metadata entry " + std::to_string(i);
    gguf_value value{};
    const auto key = read_name("the key", max_key_length);
    if (!key) return key.error();
    value.key = *key;
    where_ = "key '" + std::string(*key) + "'";
    if (auto done = read_value(value); !done) return done.error();
    file_.values_.push_back(value);
  }
  return {};
}

result<void> gguf_parser::read_value(gguf_value& value) {
  auto type = read<std::uint32_t>("the type");
  if (!type) return type.error();
  value.count = 1;
  value.is_array = *type == static_cast<std::uint32_t>(gguf_value_type::array);
  if (value.is_array) {
    type = read<std::uint32_t>("the element type");
    if (!type) return type.error();
    const auto count = read<std::uint64_t>("the element count");
    if (!count) return count.error();
    value.count = *count;
    if (*type == static_cast<std::uint32_t>(gguf_value_type::array))
      return file_.fail(where_ + ": arrays of arrays are not supported", errc::unsupported);
  }
  if (*type > static_cast<std::uint32_t>(gguf_value_type::f64))
    return file_.fail(where_ + ": value type " + std::to_string(*type) + " is unknown; 0..12 are defined");
  value.type = static_cast<gguf_value_type>(*type);
  if (value.type == gguf_value_type::string) return read_strings(value);

  const auto size = checked_mul(value.count, element_bytes(value.type));
  if (!size || *size > left())
    return file_.fail(
        where_ + ": " + std::to_string(value.count) + " elements of " +
        std::to_string(element_bytes(value.type)) + " bytes do not fit the " + std::to_string(left()) +
        " bytes that are left: the file is truncated or damaged");
  value.bytes = bytes_.subspan(position_, *size);
  position_ += *size;
  if (value.type == gguf_value_type::boolean)
    for (const std::byte flag : value.bytes)
      if (flag > std::byte{1}) return file_.fail(where_ + ": a bool must be 0 or 1");
  return {};
}

result<void> gguf_parser::read_strings(gguf_value& value) {
  if (value.count > left() / sizeof(std::uint64_t))
    return file_.fail(
        where_ + ": " + std::to_string(value.count) + " strings do not fit the " + std::to_string(left()) +
        " bytes that are left: the file is truncated or damaged");
  const std::uint64_t start = position_;
  for (std::uint64_t i = 0; i < value.count; ++i) {
    const auto length = read<std::uint64_t>("a string");
    if (!length) return length.error();
    if (*length > left()) return truncated("a string", *length);
    position_ += *length;
  }
  value.bytes = bytes_.subspan(start, position_ - start);
  if (!value.is_array) value.bytes = value.bytes.subspan(sizeof(std::uint64_t));
  return {};
}

result<void> gguf_parser::index_metadata() {
  const auto twice = sort_by_name(
      file_.values_, [](const gguf_value& value) { return value.key; }, file_.values_by_key_);
  if (twice) return file_.fail("key '" + std::string(*twice) + "' occurs twice");

  if (const gguf_value* alignment = file_.find_value("general.alignment")) {
    if (alignment->type != gguf_value_type::u32 || alignment->is_array)
      return file_.fail("key 'general.alignment' must be a u32");
    std::memcpy(&file_.alignment_, alignment->bytes.data(), sizeof file_.alignment_);
    if (!std::has_single_bit(file_.alignment_) || file_.alignment_ < min_alignment ||
        file_.alignment_ > max_alignment)
      return file_.fail(
          "key 'general.alignment' is " + std::to_string(file_.alignment_) + "; powers of two in " +
          std::to_string(min_alignment) + ".." + std::to_string(max_alignment) + " are allowed");
  }
  return {};
}

/// Source: llama.cpp, tools/gguf-split. A merged file has a count of 0.
result<void> gguf_parser::read_split() {
  const auto count = file_.find<std::uint64_t>("split.count");
  if (!count) return count.error();
  if (count->value_or(1) <= 1) return {};
  const auto index = file_.get<std::uint64_t>("split.no");
  if (!index) return index.error();
  if (*index >= **count)
    return file_.fail(
        "key 'split.no' is " + std::to_string(*index) + "; a model of " + std::to_string(**count) +
        " parts numbers them from 0");
  const auto tensors = file_.find<std::uint64_t>("split.tensors.count");
  if (!tensors) return tensors.error();
  file_.split_ = {*index, **count, *tensors};
  return {};
}

result<void> gguf_parser::read_tensor_infos() {
  file_.tensors_.reserve(tensor_count_);
  offsets_.reserve(tensor_count_);
  for (std::uint64_t i = 0; i < tensor_count_; ++i) {
    where_ = "tensor " + std::to_string(i);
    gguf_tensor tensor{};
    std::uint64_t offset = 0;
    if (auto done = read_tensor_info(tensor, offset); !done) return done.error();
    file_.tensors_.push_back(tensor);
    offsets_.push_back(offset);
  }
  return {};
}

result<void> gguf_parser::read_tensor_info(gguf_tensor& tensor, std::uint64_t& offset) {
  const auto name = read_name("the name", max_tensor_name_length);
  if (!name) return name.error();
  tensor.name = *name;
  where_ = "tensor '" + std::string(*name) + "'";
  const auto rank = read<std::uint32_t>("the number of dimensions");
  if (!rank) return rank.error();
  if (*rank == 0 || *rank > max_rank)
    return file_.fail(where_ + ": has " + std::to_string(*rank) + " dimensions; 1..4 are allowed");
  tensor.rank = *rank;
  tensor.ne = {1, 1, 1, 1};
  tensor.elements = 1;
  for (std::uint32_t d = 0; d < *rank; ++d) {
    const auto extent = read<std::uint64_t>("a dimension");
    if (!extent) return extent.error();
    const auto product = checked_mul(tensor.elements, *extent);
    // The bound keeps every later product with a block size inside 64 bits.
    if (*extent == 0 || !product || *product >> 48 != 0)
      return file_.fail(
          where_ + ": dimension " + std::to_string(d) + " is " + std::to_string(*extent) +
          "; dimensions start at 1 and their product must stay below 2^48");
    tensor.ne[d] = *extent;
    tensor.elements = *product;
  }
  const auto type = read<std::uint32_t>("the type");
  if (!type) return type.error();
  const ggml_type_info* info = find_ggml_type(*type);
  if (const std::string_view old = withdrawn_type(*type); !old.empty())
    return file_.fail(
        where_ + ": type " + std::to_string(*type) + " (" + std::string(old) +
            ") was withdrawn from the format: quantise the model again, or take a file of another type",
        errc::unsupported);
  if (info == nullptr) return file_.fail(where_ + ": type " + std::to_string(*type) + " is unknown");
  tensor.type = info->type;
  if (tensor.ne[0] % info->block_elements != 0)
    return file_.fail(
        where_ + ": rows of " + std::to_string(tensor.ne[0]) + " elements cannot be cut into the " +
        std::to_string(info->block_elements) + "-element blocks of " + std::string(info->name));
  const auto start = read<std::uint64_t>("the offset");
  if (!start) return start.error();
  if (*start % file_.alignment_ != 0)
    return file_.fail(
        where_ + ": offset " + std::to_string(*start) + " is not a multiple of the alignment " +
        std::to_string(file_.alignment_));
  offset = *start;
  return {};
}

result<void> gguf_parser::index_tensors(gguf_file& file) {
  const auto twice = sort_by_name(
      file.tensors_, [](const gguf_tensor& tensor) { return tensor.name; }, file.tensors_by_name_);
  if (twice) return file.fail("tensor '" + std::string(*twice) + "' occurs twice");
  return {};
}

result<void> gguf_parser::place_tensors() {
  if (tensor_count_ == 0) return {};
  const std::uint64_t start = round_up<std::uint64_t>(position_, file_.alignment_);
  const std::uint64_t size = bytes_.size() > start ? bytes_.size() - start : 0;
  for (std::size_t i = 0; i < file_.tensors_.size(); ++i) {
    gguf_tensor& tensor = file_.tensors_[i];
    const ggml_type_info& info = type_info(tensor.type);
    const std::uint64_t needed = tensor.elements / info.block_elements * info.block_bytes;
    if (offsets_[i] > size || needed > size - offsets_[i])
      return file_.fail(
          "tensor '" + std::string(tensor.name) + "': needs " + std::to_string(needed) + " bytes at offset " +
          std::to_string(offsets_[i]) + " of the tensor data, which has " + std::to_string(size) +
          " bytes: the file is truncated or damaged");
    tensor.data = bytes_.subspan(start + offsets_[i], needed);
  }
  return refuse_overlaps();
}

result<void> gguf_parser::refuse_overlaps() const {
  const auto& tensors = file_.tensors_;
  std::vector<std::uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) {
    const std::byte *left_start = tensors[left].data.data(), *right_start = tensors[right].data.data();
    return left_start != right_start ? left_start < right_start : left < right;
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const gguf_tensor& before = tensors[order[i - 1]];
    const gguf_tensor& after = tensors[order[i]];
    if (before.data.data() + before.data.size() > after.data.data())
      return file_.fail(
          "tensors '" + std::string(before.name) + "' and '" + std::string(after.name) +
          "' overlap in the file");
  }
  return {};
}

} // namespace troupe::models
