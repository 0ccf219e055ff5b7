// Heaps that outlive their owners: leaving one at an agent, finding what was left, and taking it over; the owner's half of
// protocol/heap_messages.h, "Detaching".
// Invariant: what an agent has is taken over only if it is what the first agent that was asked has left: one that was
// left out of a later attempt has an older record, and older objects.
// attach_heap runs on the session's thread; the rest on the owner's.
#include "base/base.h"
#include <algorithm>

#include "agent_session_impl.h"

namespace fm::remote {

namespace internal {

namespace {

void put_name(char (&field)[heap_name_bytes], const std::string& text) {
  FM_CHECK(text.size() < sizeof field, "names and secrets were looked at");
  text.copy(field, sizeof field - 1);
}

framed<attach_heap_body> attach_message(const std::string& name, const std::string& secret,
                                        const agent_session_options& o, bool take_it) {
  attach_heap_body body{};
  body.major = protocol_major;
  body.minor = protocol_minor;
  body.take = take_it;
  put_name(body.name, name);
  put_name(body.secret, secret);
  body.incarnation = o.incarnation;
  o.heap_name.copy(body.owner, sizeof body.owner - 1);
  return frame(message_type::attach_heap, body);
}

bool parse(std::span<const std::byte> answer, attach_heap_answer& a, std::span<const std::byte>& record) {
  record = answer;
  return take(record, a) && !record.empty() && record.size() == a.record_bytes;
}

/// A connection for one question.
class record_reader final : public fabric::session_events {
 public:
  explicit record_reader(framed<attach_heap_body> question) : question_(question) {}

  errc connected(fabric::session& s, std::uint32_t) override {
    fabric::request r;
    make_message(r, fabric::lane::control, &question_, sizeof question_);
    s.post(r);
    s.wait(r);
    if (r.status != errc::ok) return r.status;
    const answer_view a = parse_answer(r.reply, message_type::attach_heap);
    attach_heap_answer said;
    std::span<const std::byte> record;
    code = a.code;
    if (code != errc::ok)
      text = code == errc::bad_frame ? "the answer is malformed" : a.text();
    else if (parse(a.body, said, record))
      found.assign(record.begin(), record.end());
    else
      code = errc::bad_frame, text = "the answer to attach_heap is out of range";
    return code == errc::ok ? errc::ok : errc::refused;
  }
  void disconnected(fabric::session&, std::uint32_t, errc) noexcept override {}
  void lost(fabric::session&, errc) noexcept override {}
  void notice(fabric::session&, std::span<const std::byte>) noexcept override {}

  errc code = errc::ok;
  std::string text;
  std::vector<std::byte> found;

 private:
  framed<attach_heap_body> question_;
};

}  // namespace

errc agent_session_impl::attach_heap(fabric::session& s) {
  auto message = attach_message(options_.attaches->name, options_.attaches->secret, options_, true);
  std::vector<std::byte> answer;
  if (const errc e = ask_to_open(s, false, message_type::attach_heap, &message, sizeof message, answer); e != errc::ok)
    return e;
  attach_heap_answer a;
  std::span<const std::byte> record;
  if (!parse(answer, a, record))
    return refused_to_open(false, errc::bad_frame, "the answer to attach_heap is out of range");
  if (!std::equal(record.begin(), record.end(), options_.attaches->record.begin(), options_.attaches->record.end()))
    return refused_to_open(false, errc::stale, "another state of the heap was left here than elsewhere");
  std::copy(std::begin(a.heap_id), std::end(a.heap_id), std::begin(heap_id_));
  if (const errc e = opened(false, a.opened); e != errc::ok) return e;
  if (a.left != 0) left_.store((a.left - 1) * region_bytes_, std::memory_order_relaxed);
  return errc::ok;
}

errc agent_session_impl::detach_heap(const detached_heap& left, std::uint64_t keep_ms, std::string& why) noexcept try {
  detach_heap_body body{};
  put_name(body.name, left.name);
  put_name(body.secret, left.secret);
  std::copy(std::begin(left.lineage), std::end(left.lineage), std::begin(body.lineage));
  body.keep_ms = keep_ms;
  body.record_bytes = static_cast<std::uint32_t>(left.record.size());
  auto head = frame(message_type::detach_heap, body);
  head.head.body_bytes += body.record_bytes;
  std::vector<std::byte> message(sizeof head + left.record.size());
  std::memcpy(message.data(), &head, sizeof head);
  std::copy(left.record.begin(), left.record.end(), message.begin() + sizeof head);
  const reply r =
      call(fabric::lane::control, message_type::detach_heap, message.data(), message.size(), operation_deadline());
  if (r.code != errc::ok) why = detail::readable_text(r.body());
  return r.code;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

errc agent_session_impl::claim_heap() noexcept {
  auto message = frame_empty(message_type::claim_heap);
  return call(fabric::lane::control, message_type::claim_heap, &message, sizeof message, operation_deadline()).code;
}

}  // namespace internal

std::vector<std::byte> read_record(const std::string& url, const std::string& name, const std::string& secret,
                                   const agent_session_options& options) {
  internal::record_reader reader(internal::attach_message(name, secret, options, false));
  try {
    const auto s = fabric::connect(url, options.session, reader);
    s->close();
  } catch (const error&) {
    if (reader.code != errc::ok) throw error(reader.code, url + ": " + reader.text);
    throw;
  }
  return std::move(reader.found);
}

}  // namespace fm::remote
