// As much of SQLite's interface as the example uses, with errors as exceptions and closing by scope.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace fm::example {

class connection {
 public:
  /// Opens a database in memory. Throws fm::error(refused) with SQLite's message, as everything here does.
  connection();
  ~connection();
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  /// Statements without results.
  void run(const std::string& sql);
  /// The first column of the first row.
  std::string text(const std::string& sql);
  [[nodiscard]] sqlite3* get() const noexcept { return db_; }

 private:
  sqlite3* db_ = nullptr;
};

/// A prepared statement. Bound and read by column numbers, the first is 0 for both.
class statement {
 public:
  statement(connection& c, const std::string& sql);
  ~statement();
  statement(const statement&) = delete;
  statement& operator=(const statement&) = delete;

  statement& bind(int n, std::int64_t v);
  /// `v` must stay as it is until the statement is executed.
  statement& bind(int n, std::string_view v);
  /// True when there is a row to be read; false at the end, and then it can be bound and executed again.
  bool step();
  /// Executes a statement without rows.
  void execute();
  [[nodiscard]] std::int64_t number(int n) const { return sqlite3_column_int64(statement_, n); }
  /// Valid until the next step.
  [[nodiscard]] std::string_view text(int n) const;

 private:
  sqlite3_stmt* statement_ = nullptr;
};

}  // namespace fm::example
