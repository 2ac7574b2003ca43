// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/bounded_file.hpp"

#include "runtime/base/byte_text.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace troupe {

result<std::string> read_bounded_stream(std::FILE* file, const std::string& name, std::uint64_t most) {
  std::string text;
  std::vector<char> block(1U << 16);
  while (const std::size_t count = std::fread(block.data(), 1, block.size(), file)) {
    if (count > most - text.size())
      return error{errc::bad_file, name + ": longer than " + human_bytes(most) + ", more is not read", {}, 0};
    text.append(block.data(), count);
  }
  if (std::ferror(file) != 0) return error{errc::io, name + ": " + std::strerror(errno), {}, 0};
  return text;
}

result<std::string> read_bounded_file(const std::string& path, std::uint64_t most) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (file) return read_bounded_stream(file.get(), path, most);
  const errc code = errno == ENOENT || errno == ENOTDIR ? errc::not_found : errc::io;
  return error{code, path + ": " + std::strerror(errno), {}, 0};
}

} // namespace troupe
