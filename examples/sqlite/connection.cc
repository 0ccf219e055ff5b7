// See connection.h.
#include "connection.h"

#include <fmt/format.h>

#include <farmem/base/error.h>
#include <farmem/base/units.h>

namespace fm::example {

namespace {

void check(sqlite3* db, int code, const std::string& sql) {
  if (code != SQLITE_OK && code != SQLITE_ROW && code != SQLITE_DONE)
    throw error(errc::refused,
                fmt::format("SQLite: {}: {}", sql, db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code)));
}

}  // namespace

connection::connection() {
  const int code = sqlite3_open(":memory:", &db_);
  if (code == SQLITE_OK) return;
  sqlite3_close(db_);
  check(nullptr, code, "opening a database in memory");
}

connection::~connection() { sqlite3_close(db_); }

void connection::run(const std::string& sql) {
  check(db_, sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr), sql);
}

std::string connection::text(const std::string& sql) {
  statement s(*this, sql);
  return s.step() ? std::string(s.text(0)) : std::string();
}

statement::statement(connection& c, const std::string& sql) {
  check(c.get(), sqlite3_prepare_v2(c.get(), sql.c_str(), -1, &statement_, nullptr), sql);
}

statement::~statement() { sqlite3_finalize(statement_); }

statement& statement::bind(int n, std::int64_t v) {
  check(sqlite3_db_handle(statement_), sqlite3_bind_int64(statement_, n + 1, v), sqlite3_sql(statement_));
  return *this;
}

statement& statement::bind(int n, std::string_view v) {
  check(sqlite3_db_handle(statement_), sqlite3_bind_text(statement_, n + 1, v.data(), int(v.size()), SQLITE_STATIC),
        sqlite3_sql(statement_));
  return *this;
}

bool statement::step() {
  const int code = sqlite3_step(statement_);
  check(sqlite3_db_handle(statement_), code, sqlite3_sql(statement_));
  if (code == SQLITE_ROW) return true;
  sqlite3_reset(statement_);
  return false;
}

void statement::execute() {
  while (step()) {
  }
}

std::string_view statement::text(int n) const {
  const auto* const t = reinterpret_cast<const char*>(sqlite3_column_text(statement_, n));
  return t == nullptr ? std::string_view() : std::string_view(t, std::size_t(sqlite3_column_bytes(statement_, n)));
}

}  // namespace fm::example
