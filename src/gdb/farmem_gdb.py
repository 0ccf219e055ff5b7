"""Pretty-printers of gdb for farmem: handles, references, pins and containers show the objects behind them.

Programs have this file in them, and gdb loads it if its auto-load safe-path has the program. gdb loads the installed one by
itself for programs that use a libfarmem.so below /usr. Otherwise: (gdb) source .../farmem_gdb.py. Loading it again replaces it.

An object is shown if it is resident. What is remote shows as a slot and "remote": gdb does not fetch. Of a container,
each page, node, block or chunk is an object. Nothing is called in
the process and nothing in it changes. In a core dump handles show their slots alone, unless the heap was opened with
heap_options::dump_cache: other dumps leave out the cache and the table.
"""
import gdb
import gdb.printing

# farmem/detail/barriers/word.h
RESIDENT, FLAGS = 1, 15
# farmem/detail/barriers/frame.h: the prefix before the payload
PINS_BEFORE = 16
# farmem/detail/barriers/roots.h, farmem/detail/barriers/weak_cell.h: of the words of root cells and weak cells, and of weak names
SLOT_MASK = (1 << 40) - 1
WEAK_CHUNK = 16384  # limits::cells_per_weak_chunk
BUCKETS_OF_CHUNK = 1024  # farmem/detail/hash/pages.h
ELEMENTS_MOST = 200  # of a container, as gdb's own default for arrays


def atomic(value):
    """The number in a std::atomic."""
    for field in value.type.strip_typedefs().fields():
        if field.name in ("_M_i", "_M_b", "__a_", "__a_value"):  # of libstdc++, of libc++
            return atomic(value[field]) if value[field].type.strip_typedefs().code == gdb.TYPE_CODE_STRUCT else int(value[field])
        if field.is_base_class:
            return atomic(value[field])
    return int(value)


def elements(array):
    """The C array in a std::array."""
    return array[array.type.strip_typedefs().fields()[0]]


def word_at(address):
    return int(gdb.parse_and_eval("*(unsigned long*)%d" % address))


def address_of(symbol):
    """Of a variable of the library, which may have no types of its variables, and in frames of any language."""
    return int(gdb.parse_and_eval("(unsigned long)&'%s'" % symbol))


def payload_of(slot):
    """The address of a slot's object if it is resident, else None and the state that it is in."""
    try:
        hit = address_of("fm::detail::hit")  # farmem/detail/barriers/indirection_table.h: words, tablets, pages, slots
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
    """fm::ptr and fm::ref."""

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


class Vector:
    """An fm::vector: its elements as far as their chunks are resident (farmem/detail/vector/chunks.h)."""

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

    def chunk_slot(self, h, number):
        """Of a chunk, or of the part of the directory that would tell it and is not resident."""
        if number == 0:
            return h["first"]
        at = h["directory"]
        for index in (number // 512, number % 512):
            payload = payload_of(at)[0]
            if payload is None:
                return at
            at = word_at(payload + 8 + 8 * index)
        return at

    def chunk(self, h, number):
        return payload_of(self.chunk_slot(h, number))[0]

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


def inside(container, what):
    """A type of the library with the type arguments of a container: of a set, also that of its values, which are none."""
    name, arguments = container.name[:-1].strip().split("<", 1)
    if name in ("fm::set", "fm::hash_set"):
        depth = at = 0
        while at < len(arguments) and (depth > 0 or arguments[at] != ","):
            depth += {"<": 1, ">": -1}.get(arguments[at], 0)
            at += 1
        arguments = arguments[:at] + ", fm::detail::no_value" + arguments[at:]
    return gdb.lookup_type("fm::detail::%s<%s%s>" % (what, arguments, " " if arguments.endswith(">") else ""))


def key_in(stored):
    """A key as it lies in a page or a node (farmem/detail/hash/keys.h, tree/keys.h)."""
    name = stored.type.strip_typedefs().name or ""
    if name in ("fm::detail::text_key", "fm::detail::headed_text"):
        return stored["text"]
    return stored["key"] if name.startswith("fm::detail::program_key<") else stored


class Entries:
    """A container of entries. A part of it that is not resident shows as its slot and its state."""

    def __init__(self, container, slot):
        self.type, self.slot, self.kind = container, slot, container.name.split("<")[0]

    def header(self):
        return payload_of(self.slot)[0] if self.slot else None

    def typed(self, payload, what):
        return gdb.Value(payload).cast(inside(self.type, what).pointer()).dereference()

    def to_string(self):
        try:
            n = self.size(self.header()) if self.header() is not None else None
        except gdb.error:  # the program has no types of what is inside
            n = None
        if n is None:
            return describe(self.slot, self.kind)
        return "%s of %d %s, slot 0x%x" % (self.kind, n, self.things, self.slot)

    def children(self):
        try:
            for i, (key, value) in enumerate(self.entries(self.header()) if self.header() is not None else ()):
                if i == ELEMENTS_MOST:
                    return
                yield "[%d]" % i, key
                if self.display_hint() == "map":
                    yield "[%d].value" % i, value
        except gdb.error:
            return

    def absent(self, slot):
        """In the place of the entries of an object that is not shown."""
        state = payload_of(slot)[1]
        return ("slot 0x%x" % slot, state) if self.display_hint() == "map" else ("slot 0x%x, %s" % (slot, state), None)

    def entry(self, node, place):
        """Of a page or a leaf."""
        return key_in(elements(node["keys"])[place]), elements(node["values"])[place]

    def chain(self, slot, what):
        """The entries of objects that refer to each other by `next`, as far as they are resident; of() tells those of one."""
        while slot:
            payload = payload_of(slot)[0]
            if payload is None:
                yield self.absent(slot)
                return
            node = self.typed(payload, what)
            yield from self.of(node)
            slot = atomic(node["next"]["slot_"])

    def of(self, page):
        return (self.entry(page, i) for i in range(int(page["count"])))

    def display_hint(self):
        return "map" if self.kind in ("fm::map", "fm::hash_map") else "array"


class Table(Entries):
    """An fm::hash_map or fm::hash_set (farmem/detail/hash/pages.h)."""

    things = "entries"

    def shards(self, header):
        shards = elements(self.typed(header, "hash_table_header")["shards"])
        return [shards[i] for i in range(shards.type.strip_typedefs().range()[1] + 1)]

    def size(self, header):
        return sum(atomic(s["size"]) for s in self.shards(header))

    def entries(self, header):
        for shard in self.shards(header):
            directory = atomic(shard["directory"]["slot_"])
            for bucket in range(int(shard["buckets"])):
                number, place = divmod(bucket, BUCKETS_OF_CHUNK)
                if place == 0:
                    slot = atomic(shard["first"]["slot_"])
                    if number != 0:
                        chunks = payload_of(directory)[0]
                        slot = directory if chunks is None else word_at(chunks + 8 * number)
                    chunk = payload_of(slot)[0]
                    if chunk is None:
                        yield self.absent(slot)
                if chunk is not None:
                    yield from self.chain(word_at(chunk + 8 + 8 * place), "hash_page")


class Tree(Entries):
    """An fm::map or fm::set (farmem/detail/tree/nodes.h)."""

    things = "entries"

    def size(self, header):
        top = word_at(header)
        counts = payload_of(top)[0] if top else None
        if top and counts is None:
            return None
        return sum(word_at(counts + 8 + 64 * i) for i in range(8)) % (1 << 64) if top else 0

    def entries(self, header):
        top = word_at(header)
        payload = payload_of(top)[0] if top else None
        if payload is not None and word_at(payload):
            yield from self.below(word_at(payload))

    def below(self, slot):
        payload = payload_of(slot)[0]
        if payload is None:
            yield self.absent(slot)
        elif word_at(payload):
            node = self.typed(payload, "tree_inner")
            for i in range(int(node["count"])):
                yield from self.below(atomic(elements(node["children"])[i]["slot_"]))
        else:
            leaf = self.typed(payload, "tree_leaf")
            for i in range(int(leaf["count"])):
                yield self.entry(leaf, int(elements(leaf["order"])[i]))


class Queue(Entries):
    """An fm::queue, from its front as far as blocks are resident (farmem/containers/queue.h)."""

    things = "elements"

    def size(self, header):
        return word_at(header)

    def entries(self, header):
        return self.chain(word_at(header + 8), "queue_block")

    def of(self, block):
        return ((elements(block["items"])[i], None) for i in range(int(block["begin"]), int(block["end"])))


class Optional:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        return "fm::optional" if self.value["has_"] else "fm::optional none"

    def children(self):
        return iter([("value", self.value["value_"])] if self.value["has_"] else [])


class Variant:
    """An fm::variant: a reference and bytes, of which one is used (farmem/object/variant.h)."""

    def __init__(self, value):
        self.fields, self.which = value["fields_"], int(value["fields_"]["which"])
        self.type = value.type.strip_typedefs().template_argument(self.which)

    def to_string(self):
        return "fm::variant %d" % self.which

    def children(self):
        is_ref = (self.type.strip_typedefs().name or "").startswith("fm::ref<")
        at = self.fields["reference" if is_ref else "values"].address
        return iter([("value", at.cast(self.type.pointer()).dereference())] if at is not None else [])


def container_printer(t, slot):
    """Of a container's type; None if it is another one."""
    name = (t.name or "").split("<")[0]
    if name == "fm::string":
        return String(slot)
    if name == "fm::vector":
        return Vector(slot, t.template_argument(0))
    kinds = {"fm::map": Tree, "fm::set": Tree, "fm::hash_map": Table, "fm::hash_set": Table, "fm::queue": Queue}
    return kinds[name](t, slot) if name in kinds else None


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
        slot, target = slot_of_cell(value["cell_"]), target_of(t)
        return container_printer(target, slot) or Handle("fm::ptr", slot, target)
    if name == "fm::ref":
        slot, target = atomic(value["slot_"]), target_of(t)
        return container_printer(target, slot) or Handle("fm::ref", slot, target)
    if name == "fm::weak":
        return Handle("fm::weak", slot_of_weak(int(value["name_"])), target_of(t))
    if name in ("fm::read_pin", "fm::write_pin"):
        return Pin(name, value)
    if name == "fm::optional":
        return Optional(value)
    if name == "fm::variant":
        return Variant(value)
    if container_printer(t, 0):
        return container_printer(t, slot_of_cell(base_handle(value)["cell_"]))
    return None


class Printers(gdb.printing.PrettyPrinter):
    def __call__(self, value):
        return printer_of(value)


gdb.printing.register_pretty_printer(gdb.current_objfile(), Printers("farmem"), replace=True)
