// FlatBuffers: verified, then read in place. See serializers.h.
#include "base/base.h"
#include <cstring>
#include <flatbuffers/flatbuffers.h>

#include "serializers.h"
#include "shapes_generated.h"

namespace fm::bench {
namespace {

class flatbuffers_serializer final : public serializer {
 public:
  std::string_view encode(const shape_data& from, std::string& /*room*/) override {
    auto& b = builder_;
    b.Clear();
    switch (from.kind) {
      case shape::floats: b.Finish(peer_fb::CreateFloats(b, b.CreateVector(from.floats))); break;
      case shape::points: {
        static_assert(sizeof(peer_fb::Point) == sizeof(shape_point));
        const auto* first = reinterpret_cast<const peer_fb::Point*>(from.points.data());
        b.Finish(peer_fb::CreatePoints(b, b.CreateVectorOfStructs(first, from.points.size())));
        break;
      }
      case shape::point_objects: {
        std::vector<flatbuffers::Offset<peer_fb::PointObject>> all;
        all.reserve(from.point_objects.size());
        for (const auto& p : from.point_objects) all.push_back(peer_fb::CreatePointObject(b, p->x, p->y));
        b.Finish(peer_fb::CreatePointObjects(b, b.CreateVector(all)));
        break;
      }
      case shape::pairs: {
        static_assert(sizeof(peer_fb::Pair) == sizeof(shape_pair));
        const auto* first = reinterpret_cast<const peer_fb::Pair*>(from.pairs.data());
        b.Finish(peer_fb::CreatePairs(b, b.CreateVectorOfStructs(first, from.pairs.size())));
        break;
      }
    }
    return {reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize()};
  }
  double decode(shape kind, const char* data, std::size_t bytes) override {
    switch (kind) {
      case shape::floats: {
        const auto* const v = verified<peer_fb::Floats>(data, bytes)->v();
        return sum_each(v->size(), [&](std::size_t i) -> double { return v->Get(flatbuffers::uoffset_t(i)); });
      }
      case shape::points: {
        const auto* const v = verified<peer_fb::Points>(data, bytes)->v();
        return sum_each(v->size(), [&](std::size_t i) -> double {
          return v->Get(flatbuffers::uoffset_t(i))->x() + v->Get(flatbuffers::uoffset_t(i))->y();
        });
      }
      case shape::point_objects: {
        const auto* const v = verified<peer_fb::PointObjects>(data, bytes)->v();
        return sum_each(v->size(), [&](std::size_t i) -> double {
          return v->Get(flatbuffers::uoffset_t(i))->x() + v->Get(flatbuffers::uoffset_t(i))->y();
        });
      }
      case shape::pairs: {
        const auto* const v = verified<peer_fb::Pairs>(data, bytes)->v();
        return sum_each(v->size(), [&](std::size_t i) -> double {
          return v->Get(flatbuffers::uoffset_t(i))->number() + v->Get(flatbuffers::uoffset_t(i))->text()->Get(4);
        });
      }
    }
    return 0;
  }
  void take(const char* data, std::size_t bytes, std::vector<float>& to) override {
    const auto* const v = verified<peer_fb::Floats>(data, bytes)->v();
    to.assign(v->begin(), v->end());
  }

 private:
  template <class Table>
  static const Table* verified(const char* data, std::size_t bytes) {
    flatbuffers::Verifier check(reinterpret_cast<const std::uint8_t*>(data), bytes, 64, 1u << 30);
    if (!check.VerifyBuffer<Table>()) throw error(errc::corrupt, "flatbuffers refuses its own bytes");
    return flatbuffers::GetRoot<Table>(data);
  }
  flatbuffers::FlatBufferBuilder builder_{1 << 20};
};

}  // namespace

std::unique_ptr<serializer> make_flatbuffers() { return std::make_unique<flatbuffers_serializer>(); }

}  // namespace fm::bench
