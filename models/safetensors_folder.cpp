// SPDX-License-Identifier: Apache-2.0
#include "models/safetensors_folder.hpp"

#include "kernels/half.hpp"
#include "models/float8.hpp"
#include "models/json_document.hpp"
#include "runtime/base/checked.hpp"

#include <boost/json/value.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

namespace troupe::models {

namespace json = boost::json;

namespace {

constexpr std::size_t max_shards = 4096;
constexpr std::size_t max_index_bytes = std::size_t{1} << 26;

std::optional<ggml_type> dense_type(safetensors_type type) {
  switch (type) {
  case safetensors_type::f32:
    return ggml_type::f32;
  case safetensors_type::f16:
    return ggml_type::f16;
  case safetensors_type::bf16:
    return ggml_type::bf16;
  default:
    return std::nullopt;
  }
}

bool is_float8(safetensors_type type) {
  return type == safetensors_type::f8_e4m3 || type == safetensors_type::f8_e5m2;
}

bool is_byte(safetensors_type type) {
  return type == safetensors_type::i8 || type == safetensors_type::u8;
}

bool is_narrow(safetensors_type type) {
  return is_float8(type) || is_byte(type);
}

template<class Byte>
float8_table byte_values() {
  float8_table values{};
  for (std::size_t code = 0; code < values.size(); ++code)
    values[code] = static_cast<float>(static_cast<Byte>(code));
  return values;
}

const float8_table& values_of(safetensors_type type) {
  static const float8_table int8 = byte_values<std::int8_t>(), uint8 = byte_values<std::uint8_t>();
  if (type == safetensors_type::i8) return int8;
  if (type == safetensors_type::u8) return uint8;
  return type == safetensors_type::f8_e4m3 ? float8_e4m3 : float8_e5m2;
}

void write_element(float value, ggml_type type, std::byte*& out) {
  if (type == ggml_type::f32) {
    std::memcpy(out, &value, sizeof value);
    out += sizeof value;
    return;
  }
  const std::uint16_t bits =
      type == ggml_type::f16 ? kernels::float_to_half(value) : kernels::float_to_bfloat(value);
  std::memcpy(out, &bits, sizeof bits);
  out += sizeof bits;
}

/// Which scale multiplies which element.
struct scale_grid {
  std::vector<float> scales;              ///< row-major
  std::vector<float> zeros;               ///< the code that means 0, one for each scale; empty: 0
  std::uint64_t rows = 1, columns = 1;    ///< elements that one scale covers
  std::uint64_t scales_per_row_block = 1; ///< columns of the grid
};

/// One byte per element, looked up and scaled.
class byte_codec final : public tensor_codec {
 public:
  byte_codec(const float8_table& values, scale_grid grid) : values_(values), grid_(std::move(grid)) {}

  void decode(const model_tensor& tensor, std::byte* out) const override {
    const std::uint64_t width = tensor.ne[0], rows = tensor.elements / width;
    for (std::uint64_t row = 0; row < rows; ++row) {
      const std::byte* codes = tensor.data.data() + row * width;
      const std::uint64_t first = (tensor.first_row + row) / grid_.rows * grid_.scales_per_row_block;
      for (std::uint64_t begin = 0; begin < width; begin += grid_.columns) {
        const std::uint64_t at = first + begin / grid_.columns;
        const float scale = grid_.scales[at], zero = grid_.zeros.empty() ? 0.0F : grid_.zeros[at];
        const std::uint64_t end = std::min(width, begin + grid_.columns);
        for (std::uint64_t i = begin; i < end; ++i)
          write_element((values_[static_cast<std::uint8_t>(codes[i])] - zero) * scale, tensor.type, out);
      }
    }
  }

 private:
  const float8_table& values_;
  scale_grid grid_;
};

float dense_element(const safetensors_entry& entry, std::uint64_t index) {
  if (entry.type == safetensors_type::f32) {
    float value;
    std::memcpy(&value, entry.data.data() + index * sizeof value, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, entry.data.data() + index * sizeof bits, sizeof bits);
  return entry.type == safetensors_type::f16 ? kernels::half_to_float(bits) : kernels::bfloat_to_float(bits);
}

/// How the scales lie over a matrix [n, k], or nothing when their shape fits none of the known ways.
std::optional<scale_grid>
lay_scales(const safetensors_entry& scale, std::uint64_t n, std::uint64_t k, const folder_format& format) {
  scale_grid grid;
  const std::uint64_t block_rows = div_up(n, format.block_rows),
                      block_columns = div_up(k, format.block_columns);
  const bool blocks = scale.shape == std::vector{block_rows, block_columns};
  const bool row_wise = scale.elements == n && !scale.shape.empty() && scale.shape[0] == n;
  if (scale.elements == 1) {
    grid.rows = n;
    grid.columns = k;
  } else if (row_wise) {
    grid.columns = k;
  } else if (blocks) {
    grid.rows = format.block_rows;
    grid.columns = format.block_columns;
    grid.scales_per_row_block = block_columns;
  } else {
    return std::nullopt;
  }
  grid.scales.resize(scale.elements);
  for (std::uint64_t i = 0; i < scale.elements; ++i) grid.scales[i] = dense_element(scale, i);
  return grid;
}

/// A file beside the index: no folder, no way out of it.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos && name.ends_with(".safetensors");
}

using weight_map = std::map<std::string, std::string, std::less<>>; ///< tensor -> file

error file_error(const std::string& path, const std::string& message, errc code = errc::bad_file) {
  return {code, path + ": " + message, {}, 0};
}

result<weight_map> read_index(const std::string& path) {
  const auto document = read_json_object(path, max_index_bytes);
  if (!document) return document.error();
  const json::value* map = document->if_contains("weight_map");
  if (map == nullptr || !map->is_object()) return file_error(path, "has no object 'weight_map'");
  weight_map files;
  for (const auto& [tensor, file] : map->get_object()) {
    const std::string shown = "tensor '" + for_message(tensor) + "'";
    if (!file.is_string()) return file_error(path, shown + ": its file must be a string");
    if (!is_plain_file_name(std::string_view(file.get_string())))
      return file_error(
          path, shown + ": '" + for_message(file.get_string()) +
                    "' is not the name of a .safetensors file in the same folder");
    files.emplace(tensor, file.get_string());
  }
  if (files.empty()) return file_error(path, "lists no tensors");
  return files;
}

/// Every tensor of the shard must be the index's, and in that shard.
result<void> check_shard(
    const safetensors_file& shard, const std::string& file_name, const weight_map& index,
    std::size_t& matched) {
  for (const safetensors_entry& entry : shard.entries()) {
    const auto listed = index.find(entry.name);
    if (listed == index.end())
      return file_error(shard.name(), "tensor '" + entry.name + "' is not in the index");
    if (listed->second != file_name)
      return file_error(
          shard.name(),
          "tensor '" + entry.name + "' belongs in " + for_message(listed->second) + " by the index");
    ++matched;
  }
  return {};
}

/// A download that stopped half-way lacks several.
result<void>
check_present(const std::string& folder, const std::string& index_path, const std::set<std::string>& names) {
  std::string first;
  std::size_t missing = 0;
  for (const std::string& name : names) {
    std::error_code ignored;
    if (std::filesystem::exists(folder + '/' + name, ignored)) continue;
    if (missing++ == 0) first = name;
  }
  if (missing == 0) return {};
  return file_error(
      index_path,
      "lists " + std::to_string(names.size()) + " files, of which " + std::to_string(missing) +
          (missing == 1 ? " is" : " are") + " not there: " + for_message(first) +
          (missing > 1 ? ", ..." : ""),
      errc::not_found);
}

result<std::vector<safetensors_file>> open_shards(const std::string& folder, const std::string& index_path) {
  const auto index = read_index(index_path);
  if (!index) return index.error();
  std::set<std::string> names;
  for (const auto& [tensor, file] : *index) names.insert(file);
  if (names.size() > max_shards)
    return file_error(
        index_path,
        "lists " + std::to_string(names.size()) + " files; at most " + std::to_string(max_shards) +
            " are read",
        errc::unsupported);
  if (auto there = check_present(folder, index_path, names); !there) return there.error();
  std::vector<safetensors_file> files;
  std::size_t matched = 0;
  for (const std::string& name : names) {
    auto shard = safetensors_file::open(folder + '/' + name);
    if (!shard) return shard.error();
    if (auto fits = check_shard(*shard, name, *index, matched); !fits) return fits.error();
    files.push_back(std::move(*shard));
  }
  if (matched == index->size()) return files;
  for (const auto& [tensor, file] : *index) {
    const auto has = [&](const safetensors_file& shard) { return shard.find(tensor) != nullptr; };
    if (std::none_of(files.begin(), files.end(), has))
      return file_error(
          index_path,
          "lists tensor '" + for_message(tensor) + "' in " + for_message(file) + ", which does not hold it");
  }
  return files;
}

constexpr const char* scale_suffixes[] = {"_scale_inv", "_scale"};
constexpr std::string_view zero_suffix = "_zero_point";

} // namespace

result<safetensors_folder> safetensors_folder::open(const std::string& folder, const folder_format& format) {
  const std::string single = folder + "/model.safetensors", index = single + ".index.json";
  std::error_code ignored;
  std::vector<safetensors_file> files;
  if (std::filesystem::exists(single, ignored)) {
    auto file = safetensors_file::open(single);
    if (!file) return file.error();
    files.push_back(std::move(*file));
  } else if (std::filesystem::exists(index, ignored)) {
    auto shards = open_shards(folder, index);
    if (!shards) return shards.error();
    files = std::move(*shards);
  } else {
    return file_error(
        folder, "has neither model.safetensors nor model.safetensors.index.json: weights are read from these",
        errc::not_found);
  }
  return join(std::move(files), folder, format);
}

result<safetensors_folder>
safetensors_folder::join(std::vector<safetensors_file> files, std::string name, const folder_format& format) {
  safetensors_folder folder;
  folder.files_ = std::move(files);
  folder.name_ = std::move(name);
  if (auto indexed = folder.index_entries(); !indexed) return indexed.error();
  for (const safetensors_entry* entry : folder.entries_)
    if (auto added = folder.add(*entry, format); !added) return added.error();
  return folder;
}

result<void> safetensors_folder::index_entries() {
  for (const safetensors_file& file : files_)
    for (const safetensors_entry& entry : file.entries()) {
      entries_.push_back(&entry);
      has_narrow_ = has_narrow_ || is_narrow(entry.type);
    }
  std::sort(entries_.begin(), entries_.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  const auto twice = std::adjacent_find(
      entries_.begin(), entries_.end(), [](const auto* a, const auto* b) { return a->name == b->name; });
  if (twice != entries_.end()) return fail("tensor '" + (*twice)->name + "' is in two files");
  return {};
}

result<void> safetensors_folder::add(const safetensors_entry& entry, const folder_format& format) {
  if (is_scale(entry.name)) return {};
  const auto dense = dense_type(entry.type);
  // U8 without scales is what others pack their own formats into.
  const bool coded = is_narrow(entry.type) && entry.shape.size() == 2 &&
                     (entry.type != safetensors_type::u8 || scale_of(entry.name) != nullptr);
  const bool readable =
      entry.elements > 0 && !entry.shape.empty() && entry.shape.size() <= 4 && (dense || coded);
  if (!readable) {
    unreadable_.push_back(&entry);
    return {};
  }
  model_tensor tensor;
  tensor.name = entry.name;
  tensor.type = dense.value_or(format.widened);
  tensor.rank = static_cast<std::uint32_t>(entry.shape.size());
  std::copy(entry.shape.rbegin(), entry.shape.rend(), tensor.ne.begin());
  tensor.elements = entry.elements;
  tensor.data = entry.data;
  if (!dense)
    if (auto added = add_codec(entry, format, tensor); !added) return added;
  tensors_.push_back(tensor);
  return {};
}

result<void> safetensors_folder::add_codec(
    const safetensors_entry& entry, const folder_format& format, model_tensor& tensor) {
  const safetensors_entry* const scale = scale_of(entry.name);
  const std::uint64_t n = entry.shape[0], k = entry.shape[1];
  scale_grid grid{{1.0F}, {}, n, k, 1};
  if (scale != nullptr) {
    auto laid = dense_type(scale->type) ? lay_scales(*scale, n, k, format) : std::nullopt;
    if (!laid)
      return fail(
          "tensor '" + scale->name + "' is " + describe(*scale) + "; scales for " + describe(entry) +
              " are one, one per row, or one per block of " + std::to_string(format.block_rows) + " x " +
              std::to_string(format.block_columns) + ", as F32, F16 or BF16",
          errc::unsupported);
    for (const float x : laid->scales)
      if (!std::isfinite(x)) return fail("tensor '" + scale->name + "' holds NaN or Inf");
    grid = std::move(*laid);
    if (auto added = add_zeros(entry, grid.scales.size(), grid.zeros); !added) return added;
  } else if (format.quantised || entry.type == safetensors_type::i8) {
    return fail(
        "tensor '" + entry.name + "' is " + describe(entry) + " without scales ('" + entry.name +
        "_scale_inv' or '" + entry.name + "_scale')");
  }
  codecs_.push_back(std::make_unique<const byte_codec>(values_of(entry.type), std::move(grid)));
  tensor.codec = codecs_.back().get();
  return {};
}

/// The codes that mean 0, where a tensor of them stands beside 8-bit integers.
result<void> safetensors_folder::add_zeros(
    const safetensors_entry& entry, std::size_t count, std::vector<float>& zeros) const {
  const safetensors_entry* const found = find_entry(entry.name + std::string(zero_suffix));
  if (found == nullptr) return {};
  if (!is_byte(entry.type) || !is_byte(found->type) || found->elements != count)
    return fail(
        "tensor '" + found->name + "' is " + describe(*found) + "; zero points of " + describe(entry) +
            " are I8 or U8, one for each of the " + std::to_string(count) + " scales",
        errc::unsupported);
  const float8_table& values = values_of(found->type);
  zeros.resize(count);
  for (std::size_t i = 0; i < count; ++i) zeros[i] = values[static_cast<std::uint8_t>(found->data[i])];
  return {};
}

const safetensors_entry* safetensors_folder::scale_of(const std::string& weight) const noexcept {
  const safetensors_entry* scale = nullptr;
  for (const char* suffix : scale_suffixes)
    if (scale == nullptr) scale = find_entry(weight + suffix);
  return scale;
}

/// Whether the tensor only scales or shifts another one, or activations, in a folder of 8-bit weights.
bool safetensors_folder::is_scale(std::string_view name) const noexcept {
  for (const char* suffix : scale_suffixes) {
    if (!name.ends_with(suffix)) continue;
    const auto* weight = find_entry(name.substr(0, name.size() - std::strlen(suffix)));
    if (weight != nullptr && is_narrow(weight->type)) return true;
  }
  if (name.ends_with(zero_suffix)) {
    const auto* weight = find_entry(name.substr(0, name.size() - zero_suffix.size()));
    if (weight != nullptr && is_byte(weight->type)) return true;
  }
  const std::string_view last = name.substr(name.rfind('.') + 1); // the whole name when there is no dot
  return has_narrow_ &&
         (last == "input_scale" || last == "activation_scale" || last == "k_scale" || last == "v_scale");
}

const safetensors_entry* safetensors_folder::find_entry(std::string_view name) const noexcept {
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const safetensors_entry* entry, std::string_view wanted) { return entry->name < wanted; });
  return found == entries_.end() || (*found)->name != name ? nullptr : *found;
}

const model_tensor* safetensors_folder::find_tensor(std::string_view name) const noexcept {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const model_tensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

error safetensors_folder::missing(std::string_view name) const {
  const safetensors_entry* entry = find_entry(name);
  if (entry == nullptr) return tensor_source::missing(name);
  if (entry->type == safetensors_type::u8)
    return fail(
        "tensor '" + std::string(name) + "' is " + describe(*entry) +
            ": bytes without scales, as programs of their own formats pack quantised weights (bitsandbytes, "
            "MXFP4, ...), which are not read; use a folder of the model in F32, F16, BF16, FP8 or INT8, or a "
            "GGUF file",
        errc::unsupported);
  return fail(
      "tensor '" + std::string(name) + "' is " + describe(*entry) +
          "; F32, F16, BF16, or a matrix of F8_E4M3, F8_E5M2, I8 or U8 with scales, is needed",
      errc::unsupported);
}

std::vector<std::string_view> safetensors_folder::unreadable() const {
  std::vector<std::string_view> names;
  for (const safetensors_entry* entry : unreadable_) names.push_back(entry->name);
  return names;
}

std::vector<std::span<const std::byte>> safetensors_folder::contents() const {
  std::vector<std::span<const std::byte>> all;
  for (const safetensors_file& file : files_) all.push_back(file.bytes());
  return all;
}

} // namespace troupe::models
