// SPDX-License-Identifier: Apache-2.0
// Folders of models that read images, too: their text half is a model of its own.
#pragma once

#include "runtime/base/error.hpp"

#include <boost/json/object.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace troupe::models {

class tensor_source;

/// config.json as the text half alone would have it: `text_config`, with what the outer object says for the
/// whole model (class, storage type, quantisation, tied head, token ids). Nothing when the class in
/// `architectures` is none that holds a text half. Errors: unsupported for an outer key that is not known;
/// bad_file.
result<std::optional<boost::json::object>>
text_half(const boost::json::object& config, const std::string& name);

/// "self_attn" and the like keep their names inside; "model.norm.weight" is another in the whole model, in
/// one of two ways: as published ("language_model.model.norm.weight") or as transformers 5 holds it
/// ("model.language_model.norm.weight").
class text_half_names {
 public:
  explicit text_half_names(const tensor_source& source);

  /// The name in the source of a tensor of the text half.
  std::string whole(const std::string& name) const;
  /// Whether a tensor belongs to the half that reads images.
  static bool is_vision(std::string_view name) noexcept;

 private:
  bool published_;
};

} // namespace troupe::models
