// SQLite, as Debian ships it, with its memory in a paged range: what sqlite3_config offers to every program, and nothing else.
// Its heap (SQLITE_CONFIG_MALLOC) and the contents of its pages (SQLITE_CONFIG_PCACHE2, page_cache.h) come from a
// std::pmr::memory_resource; so a ":memory:" database is as large as the range, whatever the machine has.
#pragma once

#include <memory_resource>

namespace fm::example {

/// SQLite's configuration is the process's: one of these at a time, made before any other use of SQLite, and destroyed after the
/// last connection is closed.
class far_sqlite {
 public:
  /// Throws fm::error(refused) when SQLite does not take it.
  explicit far_sqlite(std::pmr::memory_resource& memory);
  ~far_sqlite();
  far_sqlite(const far_sqlite&) = delete;
  far_sqlite& operator=(const far_sqlite&) = delete;
};

}  // namespace fm::example
