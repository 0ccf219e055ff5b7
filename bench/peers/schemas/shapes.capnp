# The shapes of bench/channel for Cap'n Proto.
@0xb1f0c4a3d2e59687;
using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("peer_capnp");

struct Floats { v @0 :List(Float32); }
struct Point { x @0 :Float64; y @1 :Float64; }
struct Points { v @0 :List(Point); }
# A list of structs lies inline; these are pointers to points elsewhere in the message.
struct PointReference { to @0 :Point; }
struct PointObjects { v @0 :List(PointReference); }
struct Pair { number @0 :Int32; text @1 :Data; }
struct Pairs { v @0 :List(Pair); }
