// Finding libfarmem-verbs.so, opening it once, and checking that it belongs to this version of farmem; see
// verbs_library.h. An object that was opened stays loaded, because sessions run its code. Any thread may call
// open_verbs.
#include "verbs_library.h"

#include "os/os.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <climits>
#include <cstdlib>
#include <mutex>

namespace fm::fabric {
namespace {

constexpr const char* file_name = "libfarmem-verbs.so";

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

/// The folder of the file that this code was loaded from.
std::string own_folder() {
  Dl_info info{};
  char real[PATH_MAX];
  if (::dladdr(reinterpret_cast<const void*>(&verbs_library_paths), &info) != 0 && info.dli_fname != nullptr &&
      info.dli_fname[0] != '\0' && ::realpath(info.dli_fname, real) != nullptr && std::string(real).find('/') == 0)
    return parent_of(real);
  return {};
}

std::string program_folder() {
  char real[PATH_MAX];
  return ::realpath("/proc/self/exe", real) != nullptr ? parent_of(real) : std::string();
}

bool exists(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0;
}

}  // namespace

std::vector<std::string> verbs_library_paths() {
  if (const char* given = std::getenv("FARMEM_VERBS_LIBRARY"); given != nullptr && *given != '\0') return {given};
  std::vector<std::string> paths;
  const auto add = [&](const std::string& folder) {
    const std::string path = folder + '/' + file_name;
    for (const auto& p : paths)
      if (p == path) return;
    paths.push_back(path);
  };
  for (const std::string& folder : {own_folder(), program_folder()}) {
    if (folder.empty()) continue;
    add(folder);
    add(parent_of(folder));             // build/test/test_x, build/libfarmem-verbs.so
    add(parent_of(parent_of(folder)));  // build/examples/index/index
    add(parent_of(folder) + "/lib");    // prefix/bin, prefix/lib
#ifdef FARMEM_LIBDIR
    add(parent_of(folder) + "/" FARMEM_LIBDIR);
#endif
  }
  paths.emplace_back(file_name);
  return paths;
}

std::mutex library_mutex;
const os::fork_guard library_at_fork = os::guard_at_fork<library_mutex>(os::fork_rank::leaves);

const transport& open_verbs(std::string_view url) {
  static const transport* found = nullptr;
  const std::lock_guard lock(library_mutex);
  if (found) return *found;
  void* library = nullptr;
  std::string why;
  for (const std::string& path : verbs_library_paths()) {
    const bool there = path.find('/') != std::string::npos && exists(path);
    if (path.find('/') != std::string::npos && !there && std::getenv("FARMEM_VERBS_LIBRARY") == nullptr) continue;
    library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library) break;
    const char* text = ::dlerror();
    if (why.empty() || there) why = text ? text : "unknown reason";
    if (there) break;  // this is the one; it says what it misses
  }
  if (!library) {
    const bool needs_rdma = why.find("libibverbs") != std::string::npos || why.find("librdmacm") != std::string::npos;
    throw error(errc::unsupported,
                fmt::format("{}: verbs:// needs {} ({})", url,
                            needs_rdma ? "rdma-core: install the packages libibverbs1, librdmacm1 and ibverbs-providers"
                                       : "libfarmem-verbs.so, which is built where the packages libibverbs-dev and "
                                         "librdmacm-dev are installed",
                            why));
  }
  const auto entry = reinterpret_cast<transport_entry>(::dlsym(library, "farmem_transport"));
  const transport* t = entry ? entry() : nullptr;
  if (!t || t->abi != transport_abi || std::string_view(t->scheme) != "verbs") {
    ::dlclose(library);
    throw error(errc::unsupported,
                fmt::format("{}: the {} that was found belongs to another version of farmem", url, file_name));
  }
  found = t;  // stays loaded: sessions run its code
  return *found;
}

}  // namespace fm::fabric
