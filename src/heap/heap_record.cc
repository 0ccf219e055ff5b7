// Writing the record of a heap down, and reading it; see heap_record.h. Called by src/heap/detach.cc.
// Invariant: whatever bytes come, what read() gives is consistent in itself: numbers of agents exist, tablets are apart,
// and the root is in one of them.
#include "heap/heap_record.h"

#include "protocol/heap_messages.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace fm::detail {

namespace {

constexpr std::uint32_t record_magic = 0x31524d46;  // "FMR1"

#pragma pack(push, 1)
struct record_head {
  std::uint32_t magic;
  std::uint32_t agents, types, runs;
  std::uint64_t number, id, lineage[2], root, cycles, object_bytes;
};
struct type_head {
  std::uint32_t kind, bytes;
  std::uint64_t layout_hash;
  std::uint32_t refs, name_bytes, layout_bytes;
};
struct run_record {
  std::uint32_t first, count;
  std::uint16_t members[limits::replicas_max];  ///< the primary first; 1 more than the agent's number, 0: nobody
};
#pragma pack(pop)

[[noreturn]] void damaged(const std::string& how) {
  throw error(errc::corrupt, "what was left of a detached heap: " + how);
}

class record_writer {
 public:
  template <class T>
  void put(const T& fixed) {
    append(&fixed, sizeof fixed);
  }
  void text(std::string_view s) { append(s.data(), s.size()); }
  std::vector<std::byte> out;

 private:
  void append(const void* from, std::size_t n) {
    const auto* p = static_cast<const std::byte*>(from);
    out.insert(out.end(), p, p + n);
  }
};

class record_reader {
 public:
  explicit record_reader(std::span<const std::byte> from) : from_(from) {}
  template <class T>
  T get() {
    T out;
    std::memcpy(&out, bytes(sizeof out).data(), sizeof out);
    return out;
  }
  /// As it was written, because names are compared: without what would forge a line of a log.
  std::string text(std::size_t n) {
    const auto b = bytes(n);
    std::string s(reinterpret_cast<const char*>(b.data()), b.size());
    if (std::any_of(s.begin(), s.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
      damaged("a name has control characters");
    return s;
  }
  [[nodiscard]] bool at_end() const noexcept { return from_.empty(); }
  /// So many things of at least `each` bytes can follow.
  void expect(std::uint64_t n, std::size_t each, const char* what) const {
    if (n > from_.size() / each) damaged(fmt::format("{} {} do not fit into it", n, what));
  }

 private:
  std::span<const std::byte> bytes(std::size_t n) {
    if (n > from_.size()) damaged("it ends too early");
    const auto b = from_.first(n);
    from_ = from_.subspan(n);
    return b;
  }
  std::span<const std::byte> from_;
};

type_descriptor read_type(record_reader& in) {
  const auto h = in.get<type_head>();
  type_descriptor d;
  d.kind = static_cast<type_kind>(h.kind);
  d.bytes = h.bytes;
  d.layout_hash = h.layout_hash;
  in.expect(h.refs, sizeof(std::uint32_t), "references of a type");
  for (std::uint32_t i = 0; i < h.refs; ++i) d.ref_offsets.push_back(in.get<std::uint32_t>());
  d.name = in.text(h.name_bytes);
  d.layout = in.text(h.layout_bytes);
  return d;
}

heap_record::run read_run(record_reader& in, std::uint32_t agents) {
  const auto r = in.get<run_record>();
  heap_record::run out{.first = r.first, .count = r.count, .set = {}};
  for (std::uint32_t i = 0; i < limits::replicas_max; ++i) {
    if (r.members[i] == 0 && i != 0) continue;
    if (r.members[i] == 0 || r.members[i] > agents) damaged(fmt::format("tablet {} has no such agent", r.first));
    const std::uint32_t agent = r.members[i] - 1u;
    if (i == 0)
      out.set.set_primary(agent);
    else if (out.set.has(agent))
      damaged(fmt::format("tablet {} has an agent twice", r.first));
    else
      out.set.add(agent);
  }
  return out;
}

}  // namespace

std::vector<std::byte> heap_record::bytes() const {
  record_writer w;
  w.put(record_head{record_magic,
                    static_cast<std::uint32_t>(agents.size()),
                    static_cast<std::uint32_t>(types.size()),
                    static_cast<std::uint32_t>(tablets.size()),
                    number,
                    id,
                    {lineage[0], lineage[1]},
                    root,
                    cycles,
                    object_bytes});
  for (const std::string& url : agents) {
    w.put(static_cast<std::uint32_t>(url.size()));
    w.text(url);
  }
  for (const type_descriptor& d : types) {
    w.put(type_head{static_cast<std::uint32_t>(d.kind), d.bytes, d.layout_hash,
                    static_cast<std::uint32_t>(d.ref_offsets.size()), static_cast<std::uint32_t>(d.name.size()),
                    static_cast<std::uint32_t>(d.layout.size())});
    for (const std::uint32_t at : d.ref_offsets) w.put(at);
    w.text(d.name);
    w.text(d.layout);
  }
  for (const run& t : tablets) {
    run_record r{t.first, t.count, {}};
    r.members[0] = static_cast<std::uint16_t>(t.set.primary() + 1);
    std::size_t i = 1;
    t.set.for_each_backup([&](std::uint32_t a) { r.members[i++] = static_cast<std::uint16_t>(a + 1); });
    w.put(r);
  }
  if (w.out.size() > protocol::heap_record_bytes_max)
    throw error(errc::too_large,
                fmt::format("{} runs of tablets and {} types take {} bytes to write down; {} are possible",
                            tablets.size(), types.size(), w.out.size(), protocol::heap_record_bytes_max));
  return std::move(w.out);
}

heap_record heap_record::read(std::span<const std::byte> bytes) {
  record_reader in(bytes);
  const auto h = in.get<record_head>();
  if (h.magic != record_magic) damaged("it is of another version of farmem");
  heap_record r;
  r.number = h.number;
  r.id = h.id;
  r.lineage[0] = h.lineage[0];
  r.lineage[1] = h.lineage[1];
  r.root = h.root;
  r.cycles = h.cycles;
  r.object_bytes = h.object_bytes;
  if (h.agents == 0 || h.agents > limits::agents_max) damaged(fmt::format("{} agents", h.agents));
  for (std::uint32_t i = 0; i < h.agents; ++i) r.agents.push_back(in.text(in.get<std::uint32_t>()));
  in.expect(h.types, sizeof(type_head), "types");
  for (std::uint32_t i = 0; i < h.types; ++i) r.types.push_back(read_type(in));
  in.expect(h.runs, sizeof(run_record), "runs of tablets");
  std::uint64_t next = 1;
  bool has_root = false;
  for (std::uint32_t i = 0; i < h.runs; ++i) {
    const run t = read_run(in, h.agents);
    const std::uint64_t end = std::uint64_t{t.first} + t.count;
    if (t.first < next || t.count == 0 || end > slot_limit / tablet_slots)
      damaged(fmt::format("{} tablets from {} are out of order", t.count, t.first));
    has_root = has_root || (r.root / tablet_slots >= t.first && r.root / tablet_slots < end);
    next = end;
    r.tablets.push_back(t);
  }
  if (!in.at_end()) damaged("it does not end where it should");
  if (!has_root) damaged("its root is in none of its tablets");
  return r;
}

}  // namespace fm::detail
