// SPDX-License-Identifier: Apache-2.0
#include "runtime/spill_file.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace troupe::runtime {
namespace {

// Short enough for a std::string to hold them without memory, of which there may be none.
error broken(bool writing) noexcept {
  return {errc::io, writing ? "write failed" : "read failed", {}, 0};
}

} // namespace

spill_file::~spill_file() {
  if (fd_ >= 0) ::close(fd_);
}

result<spill_file> spill_file::open(const std::string& folder) {
  std::string name = folder + "/troupe-park-XXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return error{errc::io, folder + ": " + std::strerror(errno), {}, 0};
  spill_file file(fd);
  if (::unlink(name.c_str()) != 0) return error{errc::io, name + ": " + std::strerror(errno), {}, 0};
  return file;
}

result<void> spill_file::write(std::uint64_t offset, std::span<const std::byte> from) const noexcept {
  while (!from.empty()) {
    const auto n = ::pwrite(fd_, from.data(), from.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return broken(true);
    from = from.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

result<void> spill_file::read(std::uint64_t offset, std::span<std::byte> into) const noexcept {
  while (!into.empty()) {
    const auto n = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return broken(false); // 0: the file ends before
    into = into.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

} // namespace troupe::runtime
