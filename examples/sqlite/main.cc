// sqlite: a database in memory that is larger than the memory. SQLite is Debian's, unchanged; its heap and its pages lie in an
// fm::paged range (far_sqlite.h), of which only a part is local. A table of books with an index is built, asked and changed, and
// every answer is compared with what it has to be.
//
// Exit codes: 0 all well, 1 something failed or an answer was wrong, 2 a mistake in the arguments, 130 interrupted.
#include <farmem/paged/paged.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "../../bench/support/zipf.h"
#include "../support/machine.h"
#include "books.h"
#include "connection.h"
#include "far_sqlite.h"

namespace {

using namespace fm::example;
using fm::literals::operator""_MiB;

struct arguments {
  machine_options machine;
  std::uint64_t rows = 400'000, queries = 200'000, seed = 1;
  double skew = 0.8;
  bool check = false;
};

void declare_flags(CLI::App& app, arguments& a) {
  app.add_option("--rows", a.rows, "books in the table")->check(CLI::Range(100, 1 << 30))->capture_default_str();
  app.add_option("--queries", a.queries, "queries and changes, after the table is built")->capture_default_str();
  app.add_option("--skew", a.skew, "Zipf exponent of the books' popularity")
      ->check(CLI::Range(0.0, 5.0))
      ->capture_default_str();
  app.add_option("--seed", a.seed, "of the books and queries")->capture_default_str();
  app.add_flag(
      "--check", a.check,
      "send everything to the agents, and have SQLite check all of the database on its way back; compare every row; "
      "verify the range");
  declare(app, a.machine, "database");
}

double seconds_since(fm::time_point t) { return std::chrono::duration<double>(fm::clock::now() - t).count(); }

struct tally {
  std::uint64_t by_id = 0, by_author = 0, changes = 0, rollbacks = 0, wrong = 0;
  double seconds = 0;
};

class library {
 public:
  explicit library(const arguments& a) : a_(a), expected_(a.rows, a.seed) {
    db_.run("PRAGMA temp_store=MEMORY");
    db_.run(
        "CREATE TABLE book(id INTEGER PRIMARY KEY, author INTEGER NOT NULL, year INTEGER NOT NULL, text TEXT NOT "
        "NULL)");
  }

  /// False when it was interrupted.
  bool build() {
    const fm::time_point begin = fm::clock::now();
    statement insert(db_, "INSERT INTO book VALUES(?, ?, ?, ?)");
    book b;
    for (std::uint64_t row = 0; row < expected_.rows(); ++row) {
      if (row % 1000 == 0) db_.run(row == 0 ? "BEGIN" : "COMMIT; BEGIN");
      expected_.make(row, b);
      insert.bind(0, std::int64_t(row)).bind(1, b.author).bind(2, b.year).bind(3, b.text).execute();
      expected_.insert(row, b);
      if (stop_requested) return false;
    }
    db_.run("COMMIT");
    fmt::print("{} rows in {:.1f} s\n", expected_.rows(), seconds_since(begin));
    std::fflush(stdout);
    const fm::time_point sorting = fm::clock::now();
    db_.run("CREATE INDEX book_of_author ON book(author, year)");
    fmt::print("an index of them in {:.1f} s; database {}\n", seconds_since(sorting), mib(bytes()));
    std::fflush(stdout);
    return !stop_requested;
  }

  tally ask() {
    tally t;
    statement by_id(db_, "SELECT author, year, text FROM book WHERE id = ?");
    statement by_author(db_, "SELECT count(*), sum(year), sum(length(text)) FROM book WHERE author = ?");
    statement change(db_, "UPDATE book SET year = ? WHERE id = ?");
    fm::bench::random_source random(a_.seed);
    const fm::bench::zipf_keys popular(expected_.rows(), a_.skew);
    book b;
    const fm::time_point begin = fm::clock::now();
    for (std::uint64_t i = 0; i < a_.queries && !stop_requested; ++i) {
      const std::uint64_t row = popular(random), kind = random.below(20);
      if (kind < 13) {
        expected_.make(row, b);
        by_id.bind(0, std::int64_t(row));
        const bool right = by_id.step() && by_id.number(0) == b.author && by_id.number(1) == expected_.year(row) &&
                           by_id.text(2) == b.text && !by_id.step();
        t.wrong += !right;
        ++t.by_id;
      } else if (kind < 16) {
        const std::uint32_t author = expected_.author(row);
        by_author.bind(0, author);
        t.wrong += !by_author.step() || !(sums_of(by_author) == expected_.of_author(author)) || by_author.step();
        ++t.by_author;
      } else {
        const bool rolls_back = kind == 19;
        const auto year = std::uint32_t(1 + random.below(2025));
        if (rolls_back) db_.run("BEGIN");
        change.bind(0, year).bind(1, std::int64_t(row)).execute();
        t.wrong += sqlite3_changes(db_.get()) != 1;
        if (rolls_back)
          db_.run("ROLLBACK"), ++t.rollbacks;
        else
          expected_.change_year(row, year), ++t.changes;
      }
    }
    t.seconds = seconds_since(begin);
    return t;
  }

  /// All rows, without the index.
  bool scan() {
    const fm::time_point begin = fm::clock::now();
    statement all(db_, "SELECT count(*), sum(year), sum(length(text)) FROM book NOT INDEXED");
    const bool right = all.step() && sums_of(all) == expected_.of_all();
    fmt::print("sums over the whole table in {:.1f} s: {}\n", seconds_since(begin), right ? "right" : "WRONG");
    return right;
  }

  bool check() {
    const std::string said = db_.text("PRAGMA integrity_check");
    fmt::print("check: SQLite says of its database: {}\n", said);
    statement all(db_, "SELECT id, author, year, text FROM book ORDER BY id");
    std::uint64_t row = 0, wrong = 0;
    for (book b; all.step(); ++row) {
      expected_.make(row, b);
      wrong += !(std::uint64_t(all.number(0)) == row && all.number(1) == b.author &&
                 all.number(2) == expected_.year(row) && all.text(3) == b.text);
    }
    const bool right = row == expected_.rows() && wrong == 0;
    fmt::print("check: {} of {} rows read: {}\n", row, expected_.rows(),
               right ? "all right" : fmt::format("{} WRONG", wrong));
    return said == "ok" && right;
  }

  [[nodiscard]] std::uint64_t bytes() {
    return std::stoull(db_.text("PRAGMA page_count")) * std::stoull(db_.text("PRAGMA page_size"));
  }

 private:
  static expected_books::sums sums_of(const statement& s) {
    return {std::uint64_t(s.number(0)), std::uint64_t(s.number(1)), std::uint64_t(s.number(2))};
  }

  const arguments& a_;
  expected_books expected_;
  connection db_;
};

void summarize(const fm::paged& far, const tally& t, std::uint64_t database, const memory_plan& p,
               const memory_limit& limit, const agent_processes& agents) {
  const fm::paged_stats st = far.stats();
  const std::uint64_t all = t.by_id + t.by_author + t.changes + t.rollbacks;
  fmt::print("\nsummary\n");
  fmt::print("  queries              {:>10}   ({} of a book, {} of an author; {} changes, {} rolled back): {}\n", all,
             t.by_id, t.by_author, t.changes, t.rollbacks,
             t.wrong == 0 ? "all right" : fmt::format("{} WRONG", t.wrong));
  fmt::print("  a second             {:>10.0f}\n", double(all) / t.seconds);
  fmt::print("  database             {:>10}\n", mib(database));
  print_local_memory(p, limit, database, "database");
  fmt::print("  remote at the end    {:>10}   in {} regions of the agents\n",
             mib(database > st.local_used_bytes ? database - st.local_used_bytes : 0), st.regions);
  print_processes(agents);
  fmt::print("the paged range\n{}", st.text());
  std::fflush(stdout);
}

bool check(const fm::paged& far, library& books) {
  const std::string before = far.verify();
  far.evict_all();
  const bool right = books.check();
  const std::string after = far.verify();
  fmt::print("verify: pages here, home copies and agents' books: {}\n",
             before.empty() && after.empty() ? "no fault" : before + after);
  return right && before.empty() && after.empty();
}

int run(arguments& a) {
  const std::uint64_t estimate = a.rows * expected_books::bytes_per_row;
  constexpr std::uint64_t notes_per_page = 40;  // of 8 bytes: SQLite's and the range's, which stay local
  const memory_plan p = make_plan(a.machine, estimate, estimate / 4096 * notes_per_page, 2);
  a.machine.agents.owner = "sqlite";
  a.machine.agents.memory_bytes = p.agent_bytes;
  const agent_processes agents(a.machine.agents);  // before the limit: they stand for other machines
  const memory_limit limit("sqlite", p.local_bytes);
  print_machine("database", estimate, p, limit, agents);

  // While an index is built, its sorted entries are in the heap, besides.
  const fm::paged far({.capacity = estimate + estimate / 2 + 16_MiB,
                       .local = p.cache_bytes,
                       .agents = agents.urls(),
                       .name = "sqlite"});
  const far_sqlite sqlite(*far.resource());
  fmt::print("SQLite {}, its heap and its pages in {} of far memory\n", sqlite3_libversion(), mib(far.size()));
  library books(a);
  if (!books.build()) return 130;
  const tally t = books.ask();
  if (stop_requested) return 130;
  const bool right = books.scan();
  summarize(far, t, books.bytes(), p, limit, agents);
  return (!a.check || check(far, books)) && right && t.wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  arguments a;
  CLI::App app("Runs an unchanged SQLite, with a database in memory that is larger than the memory.", "sqlite");
  declare_flags(app, a);
  return fm::example::run_program(app, argc, argv, [&] { return run(a); });
}
