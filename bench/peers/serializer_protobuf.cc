// Protocol Buffers; both ends keep their messages and arenas from one graph to the next. See serializers.h.
#include "base/base.h"
#include <google/protobuf/arena.h>

#include "serializers.h"
#include "shapes.pb.h"

namespace fm::bench {
namespace {

class protobuf_serializer final : public serializer {
 public:
  std::string_view encode(const shape_data& from, std::string& out) override {
    arena_.Reset();
    switch (from.kind) {
      case shape::floats: {
        auto* m = make<peer_pb::Floats>();
        m->mutable_v()->Add(from.floats.begin(), from.floats.end());
        m->SerializeToString(&out);
        break;
      }
      case shape::points:
      case shape::point_objects: {
        auto* m = make<peer_pb::Points>();
        const auto add = [&](const shape_point& p) {
          auto* const to = m->add_v();
          to->set_x(p.x);
          to->set_y(p.y);
        };
        for (const shape_point& p : from.points) add(p);
        for (const auto& p : from.point_objects) add(*p);
        m->SerializeToString(&out);
        break;
      }
      case shape::pairs: {
        auto* m = make<peer_pb::Pairs>();
        for (const shape_pair& p : from.pairs) {
          auto* const to = m->add_v();
          to->set_number(p.number);
          to->set_text(p.text, sizeof p.text);
        }
        m->SerializeToString(&out);
        break;
      }
    }
    return out;
  }
  double decode(shape kind, const char* data, std::size_t bytes) override {
    arena_.Reset();
    switch (kind) {
      case shape::floats: {
        const auto& m = parsed<peer_pb::Floats>(data, bytes);
        return sum_each(std::size_t(m.v_size()), [&](std::size_t i) -> double { return m.v(int(i)); });
      }
      case shape::points:
      case shape::point_objects: {
        const auto& m = parsed<peer_pb::Points>(data, bytes);
        return sum_each(std::size_t(m.v_size()),
                        [&](std::size_t i) -> double { return m.v(int(i)).x() + m.v(int(i)).y(); });
      }
      case shape::pairs: {
        const auto& m = parsed<peer_pb::Pairs>(data, bytes);
        return sum_each(std::size_t(m.v_size()),
                        [&](std::size_t i) -> double { return m.v(int(i)).number() + m.v(int(i)).text()[4]; });
      }
    }
    return 0;
  }
  void take(const char* data, std::size_t bytes, std::vector<float>& to) override {
    arena_.Reset();
    const auto& v = parsed<peer_pb::Floats>(data, bytes).v();
    to.assign(v.begin(), v.end());
  }

 private:
  template <class M>
  M* make() {
    return google::protobuf::Arena::CreateMessage<M>(&arena_);
  }
  template <class M>
  const M& parsed(const char* data, std::size_t bytes) {
    auto* const m = make<M>();
    if (!m->ParseFromArray(data, int(bytes))) throw error(errc::corrupt, "protobuf cannot parse its own bytes");
    return *m;
  }
  google::protobuf::Arena arena_;
};

}  // namespace

std::unique_ptr<serializer> make_protobuf() { return std::make_unique<protobuf_serializer>(); }

}  // namespace fm::bench
