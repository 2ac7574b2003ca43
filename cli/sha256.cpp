// SPDX-License-Identifier: Apache-2.0
// SHA-256 by libcrypto.
#include "cli/sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace troupe::cli {

namespace {

class sha256 {
 public:
  sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1)
      throw failure(errc::internal, "SHA-256 is not available in this libcrypto");
  }
  void add(const void* bytes, std::size_t count) { EVP_DigestUpdate(context_.get(), bytes, count); }
  std::string text() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned length = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &length);
    std::string out;
    constexpr char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < length; ++i) {
      out += digits[digest[i] >> 4];
      out += digits[digest[i] & 15];
    }
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

} // namespace

std::string sha256_of_bytes(std::string_view bytes) {
  sha256 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.text();
}

result<std::string> sha256_of_file(const std::filesystem::path& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return error{errc::io, path.string() + ": " + std::strerror(errno), {}, 0};
  sha256 hash;
  std::vector<unsigned char> block(1U << 20);
  while (const std::size_t count = std::fread(block.data(), 1, block.size(), file.get()))
    hash.add(block.data(), count);
  if (std::ferror(file.get()) != 0)
    return error{errc::io, path.string() + ": " + std::strerror(errno), {}, 0};
  return hash.text();
}

} // namespace troupe::cli
