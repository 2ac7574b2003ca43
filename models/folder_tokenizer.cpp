// SPDX-License-Identifier: Apache-2.0
#include "models/folder_tokenizer.hpp"

namespace troupe::models {

result<folder_text> make_tokenizer_from_folder(const std::string& folder) {
  return error{
      errc::unsupported,
      folder + ": text needs the folder's tokenizer.json, which cannot be read yet; its logits can be "
               "evaluated (troupe eval logits), and a GGUF file of the model serves text",
      {},
      0};
}

} // namespace troupe::models
