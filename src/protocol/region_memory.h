// How the pages of a region that others may map come into being, and on whose account. Without shm:// a region is the
// agent's own memory (os::memory_file::unshared).
// A page of a memory file is charged to whoever touches it first; if none is left, the toucher is killed. So the agent
// allocates all of them when it makes the region, where a shortage is an answer. An owner that has the region mapped
// takes the page faults when the region is opened, ahead of the threads that will fill it (session::touch_ahead).
// Called by the agent's region_pool.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>

#include "os/os.h"
#include <cerrno>
#include <cstring>
#include <string>

namespace fm::protocol {

/// A file for a region that others may map. This process allocates every page of it, huge ones if they are wanted and the
/// kernel has any for it. Throws fm::error (out_of_memory) naming the size. O(pages).
inline os::memory_file make_region(std::uint64_t bytes, os::written_by who, bool huge) {
  os::memory_file f("farmem-region", bytes, who);
  if (huge &&
      f.bytes() >= os::huge_page_bytes) {  // which the kernel gives to whoever maps the file, but not to fallocate
    os::reservation::prefer_huge_pages(f.base(), f.bytes());
    os::map_pages(f.base(), f.bytes());
  }
  int rc = 0;
  do rc = ::fallocate(f.fd(), 0, 0, static_cast<off_t>(f.bytes()));
  while (rc != 0 && errno == EINTR);
  if (rc != 0)
    throw error(errc::out_of_memory, "a region of " + std::to_string(f.bytes()) + " bytes: " + std::strerror(errno));
  return f;
}

}  // namespace fm::protocol
