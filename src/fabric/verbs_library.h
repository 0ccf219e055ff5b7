// Finding and opening the shared object that serves verbs://, so that nobody without the hardware needs rdma-core. Owns
// the one handle of it that this process has. The table of transports calls it, and so does the doctor through the
// table.
#pragma once

#include "fabric/transport/transport.h"

#include <string>
#include <vector>

namespace fm::fabric {

/// Where libfarmem-verbs.so is looked for, in this order: FARMEM_VERBS_LIBRARY alone, if it is set; otherwise beside
/// whatever contains this code (libfarmem.so or the program), above it (a build tree), in the lib folder beside its bin,
/// and where the dynamic linker looks.
std::vector<std::string> verbs_library_paths();

/// Opens it, once. Throws fm::error (unsupported) naming what is missing, and the package to install.
const transport& open_verbs(std::string_view url);

}  // namespace fm::fabric
