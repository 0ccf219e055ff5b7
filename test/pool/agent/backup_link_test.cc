// A primary's session with its backup, which is the test's.
#include "agent/pools/backup_link.h"
#include "agent/base/answers.h"
#include "agent/pools/backup_session.h"
#include "fabric/server/server.h"
#include "support/await.h"
#include "support/temporary_folder.h"

#include <sys/mman.h>
#include <unistd.h>

using namespace fm;
using namespace fm::agent;
using namespace fm::protocol;
using fm::test::await;

namespace {

/// Answers with a descriptor, which belongs to no answer of a backup.
class generous final : public fabric::service {
 public:
  explicit generous(int fd) : fd_(fd) {}
  errc connected(fabric::peer&) noexcept override { return errc::ok; }
  void disconnected(fabric::peer&) noexcept override {}
  errc message(fabric::peer&, std::span<const std::byte> payload, fabric::answer& out) noexcept override {
    message_head head{};
    std::memcpy(&head, payload.data(), sizeof head);
    const auto type = static_cast<backup_message>(head.type);
    const open_backup_answer opened{5, 0, 0, {}};
    const backup_answer said{0, 0, 0};
    if (type == backup_message::open_backup)
      begin_answer(out, as_type(type), &opened, sizeof opened);
    else
      begin_answer(out, as_type(type), &said, sizeof said);
    out.share(fd_);
    return errc::ok;
  }
  std::byte* memory(fabric::peer&, const fabric::remote&, std::uint64_t, fabric::access) noexcept override {
    return nullptr;
  }
  void memory_done(fabric::peer&, std::uint32_t) noexcept override {}

 private:
  const int fd_;
};

std::size_t descriptors_of(const std::string& name) {
  std::size_t n = 0;
  for (const auto& d : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    if (std::filesystem::read_symlink(d.path(), none).string().find(name) != std::string::npos) ++n;
  }
  return n;
}

}  // namespace

TEST_CASE("descriptors that a backup sends are closed, also those that come with answers nobody looks at") {
  const fm::test::temporary_folder folder;
  const int fd = ::memfd_create("generous-backup", MFD_CLOEXEC);
  REQUIRE(fd >= 0);
  {
    generous backup(fd);
    const auto listener = fabric::listen(folder.url("shm", 0), {}, backup);
    pool_log log;
    std::atomic<int> rung{0};
    backup_link link(
        listener->url(), open_backup_body{}, std::chrono::seconds(30), log,
        [](void* n) noexcept { ++*static_cast<std::atomic<int>*>(n); }, &rung);
    const int before = rung;
    for (int i = 0; i < 4; ++i) link.post(backup_message::backup_beat, {});
    CHECK(await([&] { return rung >= before + 4; }));
    CHECK(descriptors_of("generous-backup") > 1);
  }
  CHECK(descriptors_of("generous-backup") == 1);
  ::close(fd);
}
