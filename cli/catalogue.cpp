// SPDX-License-Identifier: Apache-2.0
// Catalogue look-up and the model cache.
#include "cli/catalogue.hpp"

#include "config/nearest.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <cstdlib>

namespace troupe::cli {

namespace {

/// What `pull` needs of an entry and is not there, or nothing.
std::string_view lacking(const catalogue_model& model) {
  if (model.file.empty() || model.file.find('/') != std::string::npos) return "a file name without folders";
  if (model.bytes == 0) return "its size in bytes";
  if (model.sha256.size() != 64) return "its SHA-256";
  if (model.url.empty() && model.pip_package.empty()) return "a url or a pip package";
  if (!model.pip_package.empty() && (model.pip_version.empty() || model.pip_member.empty()))
    return "version and member of its pip package";
  return {};
}

const catalogue_model* find_entry(const std::vector<catalogue_model>& models, const std::string& name) {
  for (const catalogue_model& model : models)
    if (model.name == name) return &model;
  return nullptr;
}

std::string known_names(const std::vector<catalogue_model>& models) {
  std::string out;
  for (const catalogue_model& model : models) (out += out.empty() ? "" : ", ") += model.name;
  return out;
}

/// The entry whose cached file that is, or null.
const catalogue_model* entry_of_file(const std::string& path) {
  try {
    for (const catalogue_model& model : catalogue())
      if (model_cache() / model.file == path) return &model;
  } catch (const failure&) { // no cache, so none of its files
  }
  return nullptr;
}

std::string way_out(errc code, const std::string& path, bool inspecting) {
  if (code == errc::not_found)
    return "give the path of a GGUF file or a Hugging Face folder, or a name of troupe pull --list";
  if (const catalogue_model* model = entry_of_file(path))
    return "fetch it again with: troupe pull " + model->name;
  const std::string look = inspecting ? "" : ", or see what is in it with: troupe inspect";
  if (code == errc::unsupported) return "docs/architectures.md lists what can be run" + look;
  return "the file is damaged or no model that this build reads: get it again" + look;
}

bool looks_like_path(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".gguf");
}

} // namespace

std::vector<catalogue_model> read_catalogue(std::string_view text, const std::string& source) {
  toml::table document;
  try {
    document = toml::parse(text, source);
  } catch (const toml::parse_error& bad) {
    throw failure(
        errc::bad_file,
        source + ':' + std::to_string(bad.source().begin.line) + ": " + std::string(bad.description()));
  }
  std::vector<catalogue_model> models;
  for (const auto& [key, node] : document) {
    const auto text_at = [&entry = node](std::string_view path) {
      return entry.at_path(path).value<std::string>().value_or("");
    };
    const std::int64_t bytes = node.at_path("bytes").value<std::int64_t>().value_or(0);
    models.push_back(
        {.name = std::string(key.str()),
         .about = text_at("about"),
         .file = text_at("file"),
         .sha256 = text_at("sha256"),
         .licence = text_at("licence"),
         .url = text_at("url"),
         .bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)),
         .pip_package = text_at("pip.package"),
         .pip_version = text_at("pip.version"),
         .pip_member = text_at("pip.member")});
    if (const std::string_view lacks = lacking(models.back()); !lacks.empty())
      throw failure(errc::bad_file, source + ": " + models.back().name + " lacks " + std::string(lacks));
  }
  return models;
}

const std::vector<catalogue_model>& catalogue() {
  static const std::vector<catalogue_model> models = read_catalogue(catalogue_text(), "cli/catalogue.toml");
  return models;
}

const catalogue_model& catalogue_entry(const std::vector<catalogue_model>& models, const std::string& name) {
  if (const catalogue_model* model = find_entry(models, name)) return *model;
  throw failure(
      errc::bad_config, "no model named \"" + name + "\" in the catalogue; known: " + known_names(models));
}

const catalogue_model& catalogue_entry(const std::string& name) {
  return catalogue_entry(catalogue(), name);
}

std::filesystem::path model_cache() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/')
    return std::filesystem::path(cache) / "troupe" / "models";
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
    return std::filesystem::path(home) / ".cache" / "troupe" / "models";
  throw failure(errc::io, "no place for models: set HOME or XDG_CACHE_HOME to a folder");
}

std::string resolve_model(const std::string& path_or_name) {
  std::error_code ignored;
  if (looks_like_path(path_or_name) || std::filesystem::exists(path_or_name, ignored)) return path_or_name;
  const catalogue_model* model = find_entry(catalogue(), path_or_name);
  if (model == nullptr)
    throw failure(
        errc::bad_config, "no file and no catalogue model is called \"" + path_or_name +
                              "\"; give the path of a GGUF file or a Hugging Face folder, or one of: " +
                              known_names(catalogue()));
  const std::filesystem::path file = model_cache() / model->file;
  if (!std::filesystem::exists(file, ignored))
    throw failure(
        errc::not_found,
        "the model " + model->name + " is not on this machine; fetch it with: troupe pull " + model->name);
  return file.string();
}

error with_way_out(error why, const std::string& path, bool inspecting) {
  const bool of_file =
      why.code == errc::not_found || why.code == errc::bad_file || why.code == errc::unsupported;
  if (of_file && why.message.starts_with(path)) why.message += "; " + way_out(why.code, path, inspecting);
  // What a forecast refuses names its setting and says what to do; this is what could not be had all the
  // same.
  if (why.code == errc::no_memory && why.param.empty() && !why.message.ends_with("--threads"))
    why.message +=
        "; use a smaller model, lower kv-memory or max-batch, or allow more memory (ulimit -d, ulimit -v)";
  return why;
}

} // namespace troupe::cli
