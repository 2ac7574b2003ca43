// SPDX-License-Identifier: Apache-2.0
#include "models/tensor_source.hpp"

namespace troupe::models {

std::uint64_t loaded_bytes(const model_tensor& tensor) noexcept {
  const ggml_type_info& info = type_info(tensor.type);
  return tensor.elements / info.block_elements * info.block_bytes;
}

model_tensor
rows_of(const model_tensor& tensor, std::uint64_t matrix, std::uint64_t first, std::uint64_t count) noexcept {
  const std::uint64_t row_bytes = tensor.data.size() / (tensor.elements / tensor.ne[0]);
  model_tensor rows = tensor;
  rows.rank = 2;
  rows.ne = {tensor.ne[0], count, 1, 1};
  rows.elements = tensor.ne[0] * count;
  const std::uint64_t skipped = matrix * tensor.ne[1] + first;
  rows.data = tensor.data.subspan(skipped * row_bytes, count * row_bytes);
  rows.first_row = tensor.first_row + skipped;
  return rows;
}

std::string describe(const model_tensor& tensor) {
  std::string text(type_info(tensor.type).name);
  for (std::uint32_t d = 0; d < tensor.rank; ++d)
    text += (d == 0 ? " [" : ", ") + std::to_string(tensor.ne[d]);
  return text + "]";
}

error tensor_source::missing(std::string_view name) const {
  return fail("tensor '" + std::string(name) + "' is missing");
}

result<const model_tensor*> tensor_source::tensor(std::string_view name) const {
  if (const model_tensor* found = find_tensor(name)) return found;
  return missing(name);
}

error tensor_source::fail(std::string message, errc code) const {
  return {code, name() + ": " + std::move(message), {}, 0};
}

std::uint64_t tensor_source::file_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& file : contents()) bytes += file.size();
  return bytes;
}

} // namespace troupe::models
