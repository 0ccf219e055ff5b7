// The two passes over the files; see build.h.
#include "build.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
#include <thread>

#include "../support/distinct_counter.h"
#include "../support/machine.h"

namespace fm::example {

namespace {

using namespace std::chrono_literals;

double seconds_since(time_point begin) { return std::chrono::duration<double>(clock::now() - begin).count(); }

/// malloc's own of each block, and what rounding up costs.
constexpr std::uint64_t allocation_overhead = 32;
/// Of a thread that reads: its stack, and its arena of malloc.
constexpr std::uint64_t thread_bytes = 1u << 20;

struct totals {
  std::atomic<std::uint64_t> files{0}, bytes{0}, postings{0};
};

/// One line that says how far it is: rewritten in place on a terminal, a line of its own every ten seconds elsewhere.
class progress_line {
 public:
  explicit progress_line(const char* what) : what_(what), terminal_(::isatty(STDERR_FILENO) == 1) {}
  [[nodiscard]] std::chrono::milliseconds interval() const { return terminal_ ? 200ms : 10s; }
  void show(const totals& t, std::uint64_t files, double seconds, bool last) const {
    const double mb = double(t.bytes.load()) / 1e6;
    const std::string line = fmt::format(
        "{:<9} {:>6} of {} files, {:6.1f} MB, {:5.2f} M postings, {:6.1f} MB/s, {:5.1f} s", what_, t.files.load(),
        files, mb, double(t.postings.load()) / 1e6, seconds > 0 ? mb / seconds : 0.0, seconds);
    fmt::print(stderr, "{}{}{}", terminal_ ? "\r" : "", line, terminal_ && !last ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  const char* what_;
  bool terminal_;
};

/// A piece of a file with its words.
struct file_piece {
  const std::string& path;
  const word_counts& words;
  bool first, last;
};

/// Counts the words of each text file, in pieces, on `threads` threads. `use(thread, piece)` gets them in order and returns
/// the number of postings. With `one_large` no two files of several pieces are in work at once: a thread that meets a
/// second one goes on with others, and comes back to it.
double each_file(const char* what, const std::string& root, const std::vector<std::string>& paths, unsigned threads,
                 bool one_large, const memory_watch& watch, totals& sum,
                 const std::function<std::uint64_t(unsigned, const file_piece&)>& use) {
  const time_point begin = clock::now();
  std::atomic<std::size_t> next{0};
  std::mutex lock, large;
  std::vector<std::size_t> deferred;  // under `lock`: large files that were met while another one was in work
  std::condition_variable changed;
  unsigned running = threads;
  std::exception_ptr failure;

  const auto work = [&](unsigned number) {
    try {
      word_counts words;
      text_file text;
      const auto read = [&](std::size_t i) {
        for (bool first = true, last = false; !last && !stop_requested.load(std::memory_order_relaxed); first = false) {
          watch.check();
          const std::string_view piece = text.next();
          last = piece.size() < piece_bytes;
          words.count(piece, last);
          const std::uint64_t postings = use(number, {paths[i], words, first, last});
          sum.bytes.fetch_add(piece.size(), std::memory_order_relaxed);
          sum.postings.fetch_add(postings, std::memory_order_relaxed);
        }
        sum.files.fetch_add(1, std::memory_order_relaxed);
      };
      for (std::size_t i; !stop_requested.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < paths.size();) {
        if (!text.open(root + '/' + paths[i])) continue;
        std::unique_lock alone(large, std::defer_lock);
        if (text.is_large() && one_large && !alone.try_lock()) {
          const std::lock_guard hold(lock);
          deferred.push_back(i);
          continue;
        }
        read(i);
      }
      for (;;) {
        const std::lock_guard alone(large);
        std::unique_lock hold(lock);
        if (deferred.empty() || failure || stop_requested.load(std::memory_order_relaxed)) break;
        const std::size_t i = deferred.back();
        deferred.pop_back();
        hold.unlock();
        if (text.open(root + '/' + paths[i])) read(i);
      }
    } catch (...) {
      next = paths.size();  // the others end too
      const std::lock_guard hold(lock);
      if (!failure) failure = std::current_exception();
    }
    const std::lock_guard hold(lock);
    --running;
    changed.notify_all();
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < threads; ++i) pool.emplace_back(work, i);
  const progress_line line(what);
  {
    std::unique_lock hold(lock);
    while (!changed.wait_for(hold, line.interval(), [&] { return running == 0; }))
      line.show(sum, paths.size(), seconds_since(begin), false);
  }
  for (auto& t : pool) t.join();
  line.show(sum, paths.size(), seconds_since(begin), true);
  if (failure) std::rethrow_exception(failure);
  return seconds_since(begin);
}

}  // namespace

std::vector<std::string> list_files(const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (!fs::is_directory(root, ec)) throw error(errc::not_found, "no directory " + root);
  std::vector<std::string> paths;
  for (fs::recursive_directory_iterator it(root, fs::directory_options::skip_permission_denied, ec), end;
       !ec && it != end; it.increment(ec)) {
    std::error_code failed;
    if (it->symlink_status(failed).type() == fs::file_type::regular)
      paths.push_back(it->path().lexically_relative(root).string());
  }
  if (ec) throw error(errc::not_found, root + ": " + ec.message());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::uint64_t local_bytes_of(const std::vector<std::string>& paths, unsigned threads) {
  std::uint64_t bytes = paths.capacity() * sizeof(std::string);
  for (const std::string& p : paths) bytes += p.capacity() + allocation_overhead;
  return bytes + threads * (word_counts::bytes_max + 2 * piece_bytes + thread_bytes);
}

std::uint64_t survey::index_bytes() const noexcept {
  return terms * bytes_per_term + postings * bytes_per_posting + files * bytes_per_file;
}
std::uint64_t survey::index_objects() const noexcept { return terms * 4 + postings / 16 + files * 2; }

survey survey_files(const std::string& root, const std::vector<std::string>& paths, unsigned threads,
                    const memory_watch& watch) {
  struct counters {
    distinct_counter all, of_file;  ///< `of_file`: of one that has several pieces
  };
  std::vector<counters> distinct(threads);
  totals sum;
  survey s;
  s.seconds = each_file("survey", root, paths, threads, false, watch, sum, [&](unsigned thread, const file_piece& p) {
    counters& c = distinct[thread];
    for (const auto& e : p.words.entries()) c.all.add(e.hash);
    if (p.first && p.last) return std::uint64_t(p.words.entries().size());
    if (p.first) c.of_file = {};
    for (const auto& e : p.words.entries()) c.of_file.add(e.hash);
    return p.last ? std::uint64_t(c.of_file.estimate()) : 0;
  });
  for (unsigned i = 1; i < threads; ++i) distinct[0].all.merge(distinct[i].all);
  s.files = sum.files;
  s.bytes = sum.bytes;
  s.postings = sum.postings;
  s.terms = std::uint64_t(distinct[0].all.estimate());
  return s;
}

double index_files(inverted_index& index, const std::string& root, const std::vector<std::string>& paths,
                   unsigned threads, const memory_watch& watch) {
  totals sum;
  std::vector<std::uint32_t> number(threads);  // of the file that the thread adds
  return each_file("indexing", root, paths, threads, true, watch, sum, [&](unsigned thread, const file_piece& p) {
    if (p.first) number[thread] = index.add_file(p.path);
    return index.add_words(number[thread], p.words, !(p.first && p.last));
  });
}

}  // namespace fm::example
