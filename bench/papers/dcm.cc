// dcm (IEEE Transactions on Computers): figures 11 and 13 to 16, on fm::paged. A program of two phases, as the paper's genome aligner:
// it loads its data in order, then reads them in random places. A line is 64 bytes and says which one it is.
#include <cmath>
#include <fstream>
#include <memory>
#include <span>
#include <sys/mman.h>
#include <thread>

#include "../support/limits.h"
#include "../support/zipf.h"
#include "papers.h"

namespace fm::bench {
namespace {

class two_phases {
 public:
  explicit two_phases(std::span<std::byte> range)
      : words_(reinterpret_cast<std::uint64_t*>(range.data())), lines_(range.size() / 64) {}

  void load() noexcept {
    for (std::uint64_t line = 0; line < lines_; ++line)
      for (std::uint64_t i = 0; i < 8; ++i) words_[line * 8 + i] = line * (i + 1);
  }
  // `look <threads> <reads> <seed>`: all threads together read so many lines, in random places.
  void look(std::size_t threads, std::size_t reads, std::uint64_t seed) {
    std::vector<std::uint64_t> wrong(threads);
    std::vector<std::thread> others;
    const auto work = [&](std::size_t t) {
      random_source random(seed * 64 + t);
      for (std::size_t n = reads / threads; n != 0; --n) {
        const std::uint64_t line = random.below(lines_);
        std::uint64_t sum = 0;
        for (std::uint64_t i = 0; i < 8; ++i) sum += words_[line * 8 + i];
        wrong[t] += sum != line * 36;
      }
    };
    for (std::size_t t = 1; t < threads; ++t) others.emplace_back(work, t);
    work(0);
    for (std::thread& o : others) o.join();
    for (const std::uint64_t w : wrong)
      if (w != 0) throw error(errc::corrupt, "memory that holds other bytes than were written");
  }
  // `both <reads> <seed>`, or `look` as above; the answer is ms.
  figures run(const std::vector<std::string>& words) {
    const auto number = [&](std::size_t i) { return std::stoull(words.at(i)); };
    const std::uint64_t begin = now_ns();
    if (words.at(0) == "both") {
      load();
      look(1, number(1), number(2));
    } else {
      look(number(1), number(2), number(3));
    }
    return {{"ms", double(now_ns() - begin) * 1e-6}};
  }

 private:
  std::uint64_t* words_;
  std::uint64_t lines_;
};

struct range_setting {
  double local = 0.25;
  std::uint64_t block = 64 << 10;
  bool elastic = true;
};

std::string percent(double share) { return std::to_string(std::lround(share * 100)) + "%"; }

class dcm_figures {
 public:
  dcm_figures(program& p, const std::string& binary)
      : p_(p),
        bytes_(p.sized<std::uint64_t>(64 << 20, 16 << 20)),
        reads_(p.sized<std::size_t>(30'000, 1'000)),
        agent_(p, binary, "shm://", std::to_string((8 * bytes_ >> 20) + 256) + "MiB") {}

  // Figures 11 and 13: elastic blocks against each size, with as little local memory as the paper has.
  void phases() {
    for (const std::uint64_t block : {4u << 10, 8u << 10, 16u << 10, 32u << 10, 64u << 10}) {
      const row_spec spec{"dcm_13",
                          {{"transport", "shm"},
                           {"local", "25%"},
                           {"of", std::to_string(bytes_ >> 20) + " MiB"},
                           {"fixed", std::to_string(block >> 10) + " KiB"}},
                          "ms",
                          {goal_kind::ratio_at_most, 1.05},
                          "blocks of one size"};
      if (!p_.wants(spec.name)) return;
      worker ours = far({}), peer = far({.block = block, .elastic = false});
      p_.compare(
          spec, [&] { return both(ours); }, [&] { return both(peer); }, 3);
      ours.finish();
      peer.finish();
    }
  }
  // Figure 14: of the pages that came along with others, those that were used.
  void accuracy() {
    for (const double local : {0.75, 0.5}) {
      const row_spec spec{
          "dcm_14", {{"transport", "shm"}, {"local", percent(local)}}, "share", {goal_kind::value_at_least, 0.93}, {}};
      if (!p_.wants(spec.name)) return;
      worker ours = far({.local = local});
      p_.measure(
          spec,
          [&] {
            both(ours);
            return turn{last_.at("accuracy"), {}, 0};
          },
          3);
      ours.finish();
    }
  }
  // Figure 15: of the pages in local memory, those in blocks of each size, after both phases.
  void block_sizes() {
    if (!p_.wants("dcm_15")) return;
    for (const double local : {0.75, 0.5, 0.25}) {
      worker ours = far({.local = local});
      both(ours);
      double all = 0;
      for (std::size_t i = 0; i < paged_stats::orders; ++i) all += pages_in(i);
      for (std::size_t i = 0; i < paged_stats::orders; ++i) {
        if (pages_in(i) == 0) continue;
        p_.measure({"dcm_15",
                    {{"transport", "shm"}, {"local", percent(local)}, {"block", std::to_string(4 << i) + " KiB"}},
                    "of the pages",
                    {},
                    {}},
                   pages_in(i) / all);
      }
      ours.finish();
    }
  }
  // Figure 16: the time of the same reads by two threads and by one, and what the kernel's swap makes of a second one.
  void threads() {
    const row_spec spec{"dcm_16",
                        {{"transport", "shm"}, {"local", "25%"}, {"threads", "2"}},
                        "ms",
                        {goal_kind::ratio_at_most, 1},
                        "one thread"};
    if (p_.wants(spec.name)) {
      worker ours = far({});
      ours.ask("both 1 1");
      p_.compare(
          spec, [&] { return look(ours, 2); }, [&] { return look(ours, 1); }, 5);
      ours.finish();
    }
    row_spec swap = spec;
    swap.name = "dcm_16_swap";
    swap.wanted = {};
    if (!p_.wants(swap.name)) return;
    try {
      const ram_swap disk(3 * bytes_, 0);
      const memory_cgroup limit("papers", bytes_ / 4 + own_bytes);
      worker plain("dcm_plain", {std::to_string(bytes_)}, -2, limit.procs());
      plain.ask("both 1 1");
      p_.compare(
          swap, [&] { return look(plain, 2); }, [&] { return look(plain, 1); }, 5);
    } catch (const error& e) {
      p_.left_out(swap, e.what());
    }
  }

 private:
  static constexpr std::uint64_t own_bytes = 12 << 20;  ///< of the worker's program, libraries and tables

  worker far(const range_setting& s) {
    return worker("dcm_paged",
                  {std::to_string(bytes_), std::to_string(std::uint64_t(double(bytes_) * s.local)),
                   std::to_string(s.block), s.elastic ? "1" : "0", agent_.url()},
                  -2);
  }
  turn both(worker& w) {
    last_ = w.ask("both " + std::to_string(reads_) + " " + std::to_string(++seed_));
    return {last_.at("ms"), {}, 0};
  }
  [[nodiscard]] double pages_in(std::size_t order) const { return last_.at("pages_" + std::to_string(order)); }
  turn look(worker& w, std::size_t threads) {
    last_ = w.ask("look " + std::to_string(threads) + " " + std::to_string(reads_) + " " + std::to_string(++seed_));
    return {last_.at("ms"), {}, 0};
  }

  program& p_;
  std::uint64_t bytes_;
  std::size_t reads_;
  counted_agent agent_;
  figures last_;
  int seed_ = 0;
};

}  // namespace

int dcm_paged_main(const std::vector<std::string>& args) {
  const std::uint64_t bytes = std::stoull(args.at(0));
  paged_options o{.capacity = bytes, .local = std::stoull(args.at(1)), .agents = {args.at(4)}};
  o.block = std::stoull(args.at(2));
  o.elastic = args.at(3) == "1";
  if (o.block == 4096) o.read_ahead = 0;
  const paged far(o);
  two_phases work({static_cast<std::byte*>(far.resource()->allocate(bytes - 4096, 4096)), bytes - 4096});
  return serve_commands({}, [&](const std::vector<std::string>& words) {
    figures f = work.run(words);
    const paged_stats s = far.stats(true);
    f["accuracy"] = s.prefetch_accuracy();
    for (std::size_t i = 0; i < paged_stats::orders; ++i)
      f["pages_" + std::to_string(i)] = double(s.resident_blocks[i] << i);
    return f;
  });
}

int dcm_plain_main(const std::vector<std::string>& args) {
  const std::uint64_t bytes = std::stoull(args.at(0));
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw error(errc::out_of_memory, args.at(0) + " bytes");
  two_phases work({static_cast<std::byte*>(at), bytes});
  return serve_commands({}, [&](const std::vector<std::string>& words) { return work.run(words); });
}

void dcm_rows(program& p, const std::string& binary) {
  if (!p.wants("dcm_13") && !p.wants("dcm_14") && !p.wants("dcm_15") && !p.wants("dcm_16") && !p.wants("dcm_16_swap"))
    return;
  dcm_figures f(p, binary);
  f.phases();
  f.accuracy();
  f.block_sizes();
  f.threads();
}

}  // namespace fm::bench
