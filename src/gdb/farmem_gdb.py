"""Pretty-printers of gdb for farmem: handles, references, pins, strings and vectors show the objects behind them.

gdb loads this file by itself for programs that use an installed libfarmem.so. Otherwise: (gdb) source .../farmem_gdb.py

An object is shown if it is resident. What is remote shows as a slot and "remote": gdb does not fetch. Nothing is called in
the process and nothing in it changes. In a core dump handles show their slots alone, unless the heap was opened with
heap_options::dump_cache: other dumps leave out the cache and the table.
"""
import gdb
import gdb.printing

# farmem/detail/word.h
RESIDENT, FLAGS = 1, 15
# farmem/detail/frame.h: the prefix before the payload
PINS_BEFORE = 16
# farmem/detail/roots.h, farmem/detail/weak_cell.h: of the words of root cells and weak cells, and of weak names
SLOT_MASK = (1 << 40) - 1
WEAK_CHUNK = 16384  # limits::cells_per_weak_chunk
ELEMENTS_MOST = 200  # of a vector, as gdb's own default for arrays


def atomic(value):
    """The number in a std::atomic."""
    for field in value.type.strip_typedefs().fields():
        if field.name in ("_M_i", "_M_b"):
            return atomic(value[field]) if value[field].type.strip_typedefs().code == gdb.TYPE_CODE_STRUCT else int(value[field])
        if field.is_base_class:
            return atomic(value[field])
    return int(value)


def word_at(address):
    return int(gdb.parse_and_eval("*(unsigned long*)%d" % address))


def address_of(symbol):
    """Of a variable of the library, which may have no types of its variables, and in frames of any language."""
    return int(gdb.parse_and_eval("(unsigned long)&'%s'" % symbol))


def payload_of(slot):
    """The address of a slot's object if it is resident, else None and the state that it is in."""
    try:
        hit = address_of("fm::detail::hit")  # farmem/detail/indirection_table.h: words, tablets, pages, slots
        if slot == 0 or slot >= word_at(hit + 24):
            return None, "outside of the table"
        word = word_at(word_at(hit) + 8 * slot)
    except gdb.error:
        return None, "not in this dump"
    if word & RESIDENT:
        return word & ~FLAGS, "resident"
    return None, "free" if word == 4 else "unknown" if word == 0 else "being fetched" if word & FLAGS == 8 else "remote"


def target_of(handle_type):
    """The type behind a handle's type argument, as detail::object_of says: of an array, the elements'."""
    return handle_type.strip_typedefs().template_argument(0)


def describe(slot, kind):
    if slot == 0:
        return "%s null" % kind
    payload, state = payload_of(slot)
    pins = ""
    if payload is not None:
        n = int(gdb.parse_and_eval("*(unsigned int*)%d" % (payload - PINS_BEFORE)))
        pins = ", %d pins" % n if n else ""
    return "%s slot 0x%x, %s%s" % (kind, slot, state, pins)


def object_at(payload, target):
    """The object as gdb shows it: a struct, or the elements of an array."""
    target = target.unqualified().strip_typedefs()
    if target.code == gdb.TYPE_CODE_ARRAY:
        element = target.target()
        length = word_at(payload)
        if length == 0:
            return None
        return gdb.Value(payload + 8).cast(element.pointer()).cast(element.array(length - 1).pointer()).dereference()
    if not target.fields():  # declared and not defined, such as fm::object
        return None
    return gdb.Value(payload).cast(target.pointer()).dereference()


def slot_of_cell(cell):
    return 0 if int(cell) == 0 else atomic(cell["word"]) & SLOT_MASK


def slot_of_weak(name):
    """Of an fm::weak: the slot in its cell, if the cell still has the version of the name."""
    number = name & SLOT_MASK
    chunk = word_at(address_of("fm::detail::weak_chunks") + number // WEAK_CHUNK * 8)
    if name == 0 or chunk == 0:
        return 0
    word = word_at(chunk + number % WEAK_CHUNK * 8)
    return word & SLOT_MASK if word & ~SLOT_MASK == name & ~SLOT_MASK else 0


class Handle:
    """fm::ptr and fm::ref, and containers that are handles to what is not shown."""

    def __init__(self, kind, slot, target):
        self.kind, self.slot, self.target = kind, slot, target

    def to_string(self):
        return describe(self.slot, self.kind)

    def children(self):
        payload = payload_of(self.slot)[0] if self.slot and self.target is not None else None
        shown = None
        if payload is not None:
            try:
                shown = object_at(payload, self.target)
            except (gdb.error, RuntimeError):
                pass
        return iter([("object", shown)] if shown is not None else [])


class Pin:
    def __init__(self, kind, value):
        self.kind, self.payload, self.target = kind, int(value["payload_"]), target_of(value.type)

    def to_string(self):
        return self.kind if self.payload else "%s empty" % self.kind

    def children(self):
        shown = object_at(self.payload, self.target) if self.payload else None
        return iter([("object", shown)] if shown is not None else [])


class String:
    def __init__(self, slot):
        self.slot = slot

    def to_string(self):
        payload = payload_of(self.slot)[0] if self.slot else None
        if payload is None:
            return describe(self.slot, "fm::string")
        length = word_at(payload)
        return gdb.Value(payload + 8).cast(gdb.lookup_type("char").pointer()).lazy_string("", length)

    def display_hint(self):
        return "string" if self.slot and payload_of(self.slot)[0] is not None else None


class Tree:
    """An fm::map or fm::set: how many entries it has, if its top is resident (farmem/detail/tree_nodes.h)."""

    def __init__(self, kind, slot):
        self.kind, self.slot = kind, slot

    def to_string(self):
        header = payload_of(self.slot)[0] if self.slot else None
        if header is None:
            return describe(self.slot, self.kind)
        top = word_at(header)
        counts = payload_of(top)[0] if top else None
        if top and counts is None:
            return describe(self.slot, self.kind)
        entries = sum(word_at(counts + 8 + 64 * i) for i in range(8)) % (1 << 64) if top else 0
        return "%s of %d entries, slot 0x%x" % (self.kind, entries, self.slot)


class Vector:
    """An fm::vector: its elements as far as their chunks are resident (farmem/detail/vector_chunks.h)."""

    def __init__(self, slot, element):
        self.slot, self.element = slot, element

    def header(self):
        payload = payload_of(self.slot)[0] if self.slot else None
        if payload is None:
            return None
        return {"size": word_at(payload), "first": word_at(payload + 16), "directory": word_at(payload + 24)}

    def to_string(self):
        h = self.header()
        if h is None:
            return describe(self.slot, "fm::vector")
        return "fm::vector of %d elements, slot 0x%x" % (h["size"], self.slot)

    def chunk(self, h, number):
        if number == 0:
            return payload_of(h["first"])[0]
        at = payload_of(h["directory"])[0]
        for index in (number // 512, number % 512):
            if at is None:
                return None
            at = payload_of(word_at(at + 8 + 8 * index))[0]
        return at

    def children(self):
        h = self.header()
        if h is None:
            return
        bytes_each = self.element.sizeof
        per_chunk = max(1, 1 << (8192 // bytes_each).bit_length() - 1) if bytes_each <= 8192 else 1
        for i in range(min(h["size"], ELEMENTS_MOST)):
            chunk = self.chunk(h, i // per_chunk)
            if chunk is None:
                yield "[%d]" % i, "remote"
            else:
                yield "[%d]" % i, gdb.Value(chunk + 8 + i % per_chunk * bytes_each).cast(self.element.pointer()).dereference()

    def display_hint(self):
        return "array"


def base_handle(value):
    """The fm::ptr that a container is."""
    t = value.type.strip_typedefs()
    while not t.name.startswith("fm::ptr<"):
        base = [f for f in t.fields() if f.is_base_class][0]
        value, t = value[base], base.type.strip_typedefs()
    return value


def printer_of(value):
    t = value.type.strip_typedefs()
    if t.code != gdb.TYPE_CODE_STRUCT or t.name is None or not t.name.startswith("fm::"):
        return None
    name = t.name.split("<")[0]
    if name == "fm::ptr":
        target = target_of(t)
        if target.name == "fm::string":
            return String(slot_of_cell(value["cell_"]))
        return Handle("fm::ptr", slot_of_cell(value["cell_"]), target)
    if name == "fm::weak":
        return Handle("fm::weak", slot_of_weak(int(value["name_"])), target_of(t))
    if name == "fm::ref":
        slot, target = atomic(value["slot_"]), target_of(t)
        if target.name == "fm::string":
            return String(slot)
        if target.name is not None and target.name.startswith("fm::vector<"):
            return Vector(slot, target.template_argument(0))
        return Handle("fm::ref", slot, target)
    if name in ("fm::read_pin", "fm::write_pin"):
        return Pin(name, value)
    if name == "fm::string":
        return String(slot_of_cell(base_handle(value)["cell_"]))
    if name == "fm::vector":
        return Vector(slot_of_cell(base_handle(value)["cell_"]), t.template_argument(0))
    if name in ("fm::map", "fm::set"):
        return Tree(name, slot_of_cell(base_handle(value)["cell_"]))
    if name in ("fm::hash_map", "fm::queue", "fm::hash_set"):
        return Handle(t.name, slot_of_cell(base_handle(value)["cell_"]), None)
    return None


class Printers(gdb.printing.PrettyPrinter):
    def __call__(self, value):
        return printer_of(value)


gdb.printing.register_pretty_printer(gdb.current_objfile(), Printers("farmem"), replace=True)
