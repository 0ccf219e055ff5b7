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

/// Counts the words of each text file on `threads` threads, and hands them to `use(thread, path, words)`.
double each_file(const char* what, const std::string& root, const std::vector<std::string>& paths, unsigned threads,
                 totals& sum, const std::function<void(unsigned, const std::string&, const word_counts&)>& use) {
  const time_point begin = clock::now();
  std::atomic<std::size_t> next{0};
  std::mutex lock;
  std::condition_variable changed;
  unsigned running = threads;
  std::exception_ptr failure;

  const auto work = [&](unsigned number) {
    try {
      word_counts words;
      std::string text;
      for (std::size_t i; !stop_requested.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < paths.size();) {
        if (!read_text(root + '/' + paths[i], text)) continue;
        const std::size_t bytes = text.size();
        words.count(text);
        use(number, paths[i], words);
        sum.files.fetch_add(1, std::memory_order_relaxed);
        sum.bytes.fetch_add(bytes, std::memory_order_relaxed);
        sum.postings.fetch_add(words.entries().size(), std::memory_order_relaxed);
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

std::uint64_t survey::index_bytes() const noexcept {
  return terms * bytes_per_term + postings * bytes_per_posting + files * bytes_per_file;
}
std::uint64_t survey::index_objects() const noexcept { return terms * 4 + postings / 16 + files * 2; }

survey survey_files(const std::string& root, const std::vector<std::string>& paths, unsigned threads) {
  std::vector<distinct_counter> distinct(threads);
  totals sum;
  survey s;
  s.seconds = each_file("survey", root, paths, threads, sum,
                        [&](unsigned thread, const std::string&, const word_counts& words) {
                          for (const auto& e : words.entries()) distinct[thread].add(e.hash);
                        });
  for (unsigned i = 1; i < threads; ++i) distinct[0].merge(distinct[i]);
  s.files = sum.files;
  s.bytes = sum.bytes;
  s.postings = sum.postings;
  s.terms = std::uint64_t(distinct[0].estimate());
  return s;
}

double index_files(inverted_index& index, const std::string& root, const std::vector<std::string>& paths,
                   unsigned threads) {
  totals sum;
  return each_file("indexing", root, paths, threads, sum,
                   [&](unsigned, const std::string& path, const word_counts& words) { index.add(path, words); });
}

}  // namespace fm::example
