// SPDX-License-Identifier: Apache-2.0
// `troupe doctor`: what this machine is, which kernels it will run, what is wrong and how to mend it.
#include "cli/arguments.hpp"
#include "cli/catalogue.hpp"
#include "cli/child_process.hpp"
#include "cli/command.hpp"
#include "cli/machine.hpp"
#include "cli/sha256.hpp"
#include "cli/text.hpp"
#include "config/loader.hpp"
#include "kernels/kernel_table.hpp"
#include "runtime/base/byte_text.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace troupe::cli {

namespace {

struct problem {
  std::string what, mend;
  bool fatal; ///< the default model cannot run
};

std::string feature_line(const kernels::cpu_features& cpu) {
  const std::pair<bool, const char*> features[] = {
      {cpu.avx2, "avx2"},
      {cpu.fma, "fma"},
      {cpu.f16c, "f16c"},
      {cpu.avx512f, "avx512f"},
      {cpu.avx512bw, "avx512bw"},
      {cpu.avx512dq, "avx512dq"},
      {cpu.avx512vl, "avx512vl"},
      {cpu.avx512_vnni, "avx512_vnni"},
      {cpu.avx512_bf16, "avx512_bf16"},
      {cpu.amx_int8, "amx_int8"},
      {cpu.amx_bf16, "amx_bf16"}};
  std::string out;
  for (const auto& [present, name] : features)
    if (present) (out += out.empty() ? "" : " ") += name;
  return out.empty() ? "none of AVX2 and above" : out;
}

void look_at_processor(std::vector<problem>& problems) {
  const kernels::cpu_features& cpu = kernels::this_cpu();
  const machine_facts machine = read_machine();
  print_fact(
      "cpu", (cpu.model.empty() ? "unknown model" : cpu.model) + ", " + std::to_string(machine.processors) +
                 " processors");
  print_fact("features", feature_line(cpu));
  print_fact(
      "kernels", std::string(kernels::isa_name(kernels::kernels_for(kernels::best_isa()).level)) +
                     " (others: --isa NAME)");
  if (kernels::best_isa() == kernels::isa::ref)
    problems.push_back(
        {"no AVX2 with FMA and F16C: plain loops will be used, some ten times slower",
         "run on an x86-64-v3 machine; in a virtual machine pass the host's CPU through", false});
}

void look_at_memory(const catalogue_model& model, std::vector<problem>& problems) {
  const machine_facts machine = read_machine();
  std::string text =
      human_bytes(machine.memory_available) + " available of " + human_bytes(machine.memory_total);
  if (machine.memory_limit != 0)
    text += ", limited to " + human_bytes(machine.memory_limit) + " by its control group";
  if (machine.address_limit != 0)
    text += ", and to addresses of " + human_bytes(machine.address_limit) + " by ulimit -v";
  print_fact("memory", text);
  print_fact("files", std::to_string(machine.open_files) + " may be open at once");
  // The weights are held twice while they are packed; 256 MiB hold keys, values and buffers of a small
  // server.
  const std::uint64_t needed = 2 * model.bytes + (256U << 20);
  const std::uint64_t usable = machine.memory_available;
  if (usable < needed)
    problems.push_back(
        {human_bytes(usable) + " of memory for the default model, which wants " + human_bytes(needed),
         "stop other programs, raise the limit, or lower --kv-memory and --max-batch", usable < model.bytes});
  // The file, its weights twice, keys and values of one whole context, and what threads reserve.
  const std::uint64_t addresses = 3 * model.bytes + (336U << 20);
  if (machine.address_limit != 0 && machine.address_limit < addresses)
    problems.push_back(
        {"addresses of " + human_bytes(machine.address_limit) +
             " (ulimit -v) for the default model, which wants " + human_bytes(addresses),
         "ulimit -v unlimited, or LimitAS=infinity in the service unit", true});
  if (machine.open_files < 1100)
    problems.push_back(
        {"only " + std::to_string(machine.open_files) +
             " open files, fewer than server.max_connections wants",
         "ulimit -n 4096, or LimitNOFILE= in the service unit", false});
}

// By trying it: the permissions tell root nothing of a folder that takes no files.
bool takes_files(const std::filesystem::path& folder) {
  std::string name = (folder / ".troupe-doctor-XXXXXX").string();
  return mkdtemp(name.data()) != nullptr && rmdir(name.c_str()) == 0;
}

void look_at_model(const catalogue_model& model, std::vector<problem>& problems) {
  namespace fs = std::filesystem;
  const fs::path cache = model_cache(), file = cache / model.file;
  std::error_code code;
  print_fact("cache", cache.string());
  if (fs::exists(file, code)) {
    const auto hash = sha256_of_file(file);
    const bool intact = hash && *hash == model.sha256;
    print_fact("model", model.name + (intact ? ", intact" : ", damaged"));
    if (!intact) problems.push_back({file.string() + " is damaged", "troupe pull " + model.name, true});
    return;
  }
  print_fact("model", model.name + ", not fetched");
  problems.push_back({"the default model is not on this machine", "troupe pull " + model.name, true});
  fs::path parent = cache;
  while (!parent.empty() && !fs::exists(parent, code) && parent != parent.parent_path())
    parent = parent.parent_path();
  if (!takes_files(parent))
    problems.push_back(
        {parent.string() + " cannot be written", "set XDG_CACHE_HOME to a folder that can", true});
  const bool pip =
      has_program("python3") &&
      run_child({"python3", "-m", "pip", "--version"}, {}, std::chrono::seconds(1), [] {}).status == 0;
  if (!pip && !has_program("curl"))
    problems.push_back({"neither pip nor curl to fetch models with", "apt install python3-pip", true});
}

} // namespace

int doctor_command(const std::vector<std::string>& words) {
  bool reference = false;
  arguments options(
      "doctor", "Looks at this machine and says what is wrong and how to mend it; exit status 1 if "
                "the default model cannot run.");
  options.flag("--config-reference", reference, "print docs/config.md and stop");
  if (!options.parse(words)) return 0;
  if (reference) {
    std::fputs(config::reference_markdown().c_str(), stdout);
    return 0;
  }
  std::vector<problem> problems;
  const catalogue_model& model = catalogue_entry(config::settings{}.model.path);
  look_at_processor(problems);
  look_at_memory(model, problems);
  look_at_model(model, problems);
  bool fatal = false;
  for (const problem& each : problems) {
    std::printf(
        "%s %s\n%-10s %s\n", each.fatal ? "wrong:    " : "beware:   ", each.what.c_str(),
        "  mend:", each.mend.c_str());
    fatal = fatal || each.fatal;
  }
  if (problems.empty()) std::puts("nothing wrong");
  return fatal ? 1 : 0;
}

} // namespace troupe::cli
