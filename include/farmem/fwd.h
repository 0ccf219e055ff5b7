// Declarations of what farmem's headers define, for headers of programs that only name handles and containers. Includes
// almost nothing. Where a handle is dereferenced, copied or destroyed, its own header is needed. Not hash_map,
// hash_set, map and set: their default arguments are of <functional>.
#pragma once

#include <cstdint>

namespace fm {

enum class errc : unsigned short;
class error;

class heap;  // NOLINT(bugprone-forward-declaration-namespace): agents have a heap, too
class scope;
template <class T>
class ptr;
template <class T>
class ref;
template <class T>
class weak;
template <class T>
class read_pin;
template <class T>
class write_pin;
template <class T, class M>
class member_pin;

/// Any managed object, as the type argument of handles; see farmem/object/object.h. Never defined.
class object;
/// An object of one of these types, as the type argument of handles; see farmem/object/object.h. Never defined.
template <class... Ts>
class one_of;

template <class E>
class array_object;
class string;
template <class E>
class vector;
template <class E>
class queue;
class string_builder;
template <class T>
class optional;
template <class... Ts>
class variant;

template <class T>
class task;
template <class T>
class fetch_operation;

class channel;
class channel_listener;
class pool;
template <class T>
class pool_ptr;
class paged;

}  // namespace fm
