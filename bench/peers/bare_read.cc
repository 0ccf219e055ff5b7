#include "bare_read.h"

#include "os/os.h"
#include <array>
#include <unistd.h>

namespace fm::bench {
namespace {

constexpr std::uint32_t region = 1, generation = 1;
constexpr std::byte ask_for_memory{1}, ask_for_echo{2};

class memory_server final : public fabric::service {
 public:
  explicit memory_server(std::uint64_t bytes) : memory_("bare memory", bytes) {
    std::fill_n(memory_.base(), bytes, std::byte{7});
  }
  errc connected(fabric::peer&) noexcept override { return errc::ok; }
  void disconnected(fabric::peer&) noexcept override {}
  errc message(fabric::peer&, std::span<const std::byte> asked, fabric::answer& out) noexcept override {
    if (asked.front() == ask_for_memory) {
      out.token = 1;
      out.share(memory_.fd());
    } else {
      out.payload.assign(asked.begin(), asked.end());
    }
    return errc::ok;
  }
  std::byte* memory(fabric::peer&, const fabric::remote& where, std::uint64_t bytes, fabric::access) noexcept override {
    if (where.region != region || where.generation != generation) return nullptr;
    if (bytes > memory_.bytes() || where.offset > memory_.bytes() - bytes) return nullptr;
    return memory_.base() + where.offset;
  }
  void memory_done(fabric::peer&, std::uint32_t) noexcept override {}

 private:
  os::memory_file memory_;
};

}  // namespace

int bare_memory_main(const std::vector<std::string>& args) {
  memory_server memory(std::stoull(args.at(1)));
  const auto listening = fabric::listen(args.at(0), {}, memory);
  const std::string& url = listening->url();
  const double port = url.starts_with("tcp") ? std::stod(url.substr(url.rfind(':') + 1)) : 0;
  return serve_commands({{"port", port}}, [](const std::vector<std::string>&) { return figures{}; });
}

class bare_reader::events final : public fabric::session_events {
 public:
  explicit events(std::uint64_t bytes) : bytes_(bytes) {}
  errc connected(fabric::session& s, std::uint32_t) override {
    std::byte ask = ask_for_memory;
    fabric::request r;
    r.kind = fabric::op_kind::message;
    r.on = fabric::lane::control;
    r.sg = {{{&ask, 1}}};
    r.sg_count = 1;
    s.post(r);
    s.wait(r);
    return r.status != errc::ok ? r.status : s.attach(region, generation, bytes_, r.reply_key);
  }
  void disconnected(fabric::session&, std::uint32_t, errc) noexcept override {}
  void lost(fabric::session&, errc) noexcept override {}
  void notice(fabric::session&, std::span<const std::byte>) noexcept override {}

 private:
  std::uint64_t bytes_;
};

bare_reader::bare_reader(const std::string& transport, int core, std::uint64_t bytes)
    : url_(transport == "shm" ? "shm:///tmp/farmem-bare-" + std::to_string(getpid()) : "tcp://127.0.0.1:0"),
      server_("bare_memory", {url_, std::to_string(bytes)}, core),
      events_(std::make_unique<events>(bytes)) {
  if (transport == "tcp") url_ = "tcp://127.0.0.1:" + std::to_string(int(server_.ready().at("port")));
  session_ = fabric::connect(url_, {}, *events_);
}

bare_reader::~bare_reader() { session_->close(); }

void bare_reader::read(std::uint64_t offset, void* to, std::size_t bytes) {
  fabric::request r;
  r.sg[0] = {to, bytes};
  r.sg_count = 1;
  r.where = {region, generation, offset};
  session_->post(r);
  session_->wait(r);
  if (r.status != errc::ok) throw error(r.status, "a bare read of " + std::to_string(bytes) + " bytes");
}

void bare_reader::call(std::size_t bytes) {
  std::array<std::byte, 4096> asked{ask_for_echo};
  fabric::request r;
  r.kind = fabric::op_kind::message;
  r.on = fabric::lane::fetch;
  r.sg[0] = {asked.data(), bytes};
  r.sg_count = 1;
  session_->post(r);
  session_->wait(r);
  if (r.status != errc::ok) throw error(r.status, "a bare call");
}

}  // namespace fm::bench
