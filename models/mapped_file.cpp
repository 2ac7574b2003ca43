// SPDX-License-Identifier: Apache-2.0
// Opening and mapping of model files.
#include "models/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace troupe::models {

namespace {

struct descriptor {
  int number;
  ~descriptor() {
    if (number >= 0) ::close(number);
  }
};

error refused(const std::string& path, const char* what, int number) {
  const errc code = number == ENOENT || number == ENOTDIR ? errc::not_found
                    : number == ENOMEM                    ? errc::no_memory
                                                          : errc::io;
  return {code, path + ": cannot " + what + ": " + std::generic_category().message(number), {}, 0};
}

} // namespace

mapped_file::~mapped_file() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

result<mapped_file> mapped_file::open(const std::string& path) {
  // Without O_NONBLOCK the open of a FIFO would wait for a writer.
  const descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) return refused(path, "open", errno);
  struct stat status {};
  if (::fstat(file.number, &status) != 0) return refused(path, "stat", errno);
  if (!S_ISREG(status.st_mode)) return error{errc::bad_file, path + ": is not a regular file", {}, 0};
  if (status.st_size <= 0) return error{errc::bad_file, path + ": the file is empty", {}, 0};
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (address == MAP_FAILED) return refused(path, "map", errno);
  mapped_file mapped;
  mapped.bytes_ = {static_cast<const std::byte*>(address), size};
  return mapped;
}

} // namespace troupe::models
