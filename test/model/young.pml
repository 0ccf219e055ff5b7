/* Collections of young objects, one after the other, beside threads that change references and an evictor that copies objects out:
 * cards, promotion, and slots that are used again at once. The conditions and the proof that this model checks are in
 * src/collector/young_collection.h.
 *
 * Proved for every interleaving within the bounds: no object is freed that a root reaches, or that an agent knows of; and no thread
 * roots or uses a freed one. On the way, in every snapshot's pause: a frame that is dirty or being written has a dirty card (condition 2); and
 * if a root reaches a frame that is neither, it is not young, equals its home copy and names no young object (condition 1).
 *
 * The heap: SLOTS slots with one reference field each, each in a page of its own; the last one is free at the start. Two threads
 * share OPS operations and CELLS root cells: cells 0 and 1 are the first one's, 2 and 3 the second one's. The frame is the truth
 * (`cur`), and the home copy (`home`) follows by WRITES write-backs, each of which may fail. ROUNDS collections follow each other. A
 * frame that is clean may be evicted at any moment: then the tracer cannot read it. It is fetched again by whoever uses
 * it, and is a clean one again. Pins are not modelled as roots, and neither are threads that wait: both are as cells are.
 * Full collections are not modelled.
 *
 * One step is what is atomic in the code, or what commutes with everything else. A pause is one step that waits until no
 * thread is in a section. A frame is looked at in one step: while its word is warm, or held, its copy-out does not
 * begin. Memory is sequentially consistent.
 *
 * Each macro puts one known mistake back, and spin must find an error then:
 *   LOG_NOTHING              what is overwritten while a collection marks is not logged
 *   CARD_FIRST               a store makes its card dirty before its frame
 *   CARD_AFTER_SECTION       a store makes its card dirty after its section has ended
 *   CARD_CLEANED_LAST        a scan cleans a card after it has looked at the words
 *   CARD_STAYS_CLEAN         a card stays clean although the scan found a dirty word
 *   WRITING_IS_CLEAN         a frame that is being written is shown as clean
 *   YOUNG_ONLY               dirty objects that are not young are no roots
 *   YOUNG_FOR_EVER           what a copy refers to stays young
 *   GROW_UP_LATE             what a copy refers to ceases to be young after the copy is acknowledged
 *   GROW_UP_UNNOTICED        what a copy refers to ceases to be young, and is not logged
 *   FREE_GROWN_UP            what was found dead is copied out before the sweep comes to it, and is freed nevertheless
 *   FREE_OLD                 what is not marked is dead, whether or not it was shown as young
 *   NO_FINAL_CHECK           marking ends though something unmarked was logged
 * And some that are no mistakes, which must verify:
 *   COPY_UNNOTICED           a young object that is copied out ceases to be young, and is not logged itself: it is not freed, since it
 *                            is not young, and what it refers to is logged
 *   COPY_DOOMED              what was found dead is copied out before the sweep comes to it: it stays, and nobody reaches it
 */

#ifndef OPS
#define OPS 4
#endif
#ifndef WRITES
#define WRITES 1
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef SLOTS
#define SLOTS 3
#endif
#ifndef CELLS
#define CELLS 3
#endif

#define NIL SLOTS
#define ALL ((1 << SLOTS) - 1)
#define BIT(s) ((1 << (s)) & ALL)  /* none for NIL */
#define HAS(set, s) ((set) & BIT(s))

byte cur[SLOTS], home[SLOTS];      /* the reference in the frame, and in the home copy */
byte dirty, writing, young, card;  /* sets of slots */
byte at_home;                      /* those with a home copy */
byte allocated, free_run;          /* slots with an object; slots that threads may take */
byte cell[4] = NIL;                /* roots */
byte logged;
byte pinned[2] = NIL;              /* for writing, by thread */
byte in_section;
byte ops = OPS, writes = WRITES;

bool marking, done;
byte shown;                        /* as young, by the scan */
byte found, marked, gray;
byte doomed, sweeping;             /* found dead; and of those, what the sweep has not come to */

hidden byte reach, i, n;

/* ---- threads ---- */

inline log(s) {
  if
#ifdef LOG_NOTHING
  :: marking && false -> skip
#else
  :: marking -> logged = logged | BIT(s)
#endif
  :: else
  fi
}

#define EMPTY(y) ((y) < CELLS && cell[y] == NIL)
#define CAN_LOAD(x, y) (EMPTY(y) && cell[x] != NIL && cur[cell[x]] != NIL)
#define CAN_COPY(x, y) (EMPTY(y) && cell[x] != NIL)
#define CAN_STORE(x, y) (cell[x] != NIL)
#define CAN_DROP(x, y) (cell[x] != NIL)
#define CAN_ALLOCATE(x, y) (EMPTY(y) && free_run != 0)

/* Begins an operation, with one of the thread's cells as x and the other one as y. */
#define BEGIN(can)                                      \
  !done && ops > 0 && (can(2 * m, 2 * m + 1) || can(2 * m + 1, 2 * m)) -> \
  ops--;                                                \
  if                                                    \
  :: can(2 * m, 2 * m + 1) -> x = 2 * m; y = 2 * m + 1  \
  :: can(2 * m + 1, 2 * m) -> x = 2 * m + 1; y = 2 * m  \
  fi

#define END v = NIL; x = 0; y = 0

proctype thread(byte m) {
  byte x, y;
  byte v = NIL;
end:
  do
  :: atomic {                                  /* p->next, rooted */
       BEGIN(CAN_LOAD);
       in_section++;
       assert(HAS(allocated, cell[x]));
       v = cur[cell[x]]
     };
     atomic { assert(HAS(allocated, v)); cell[y] = v; in_section--; END }

  :: atomic { BEGIN(CAN_COPY); cell[y] = cell[x]; END }

  :: atomic {                                  /* p.write()->next = q, or null */
       BEGIN(CAN_STORE);
       in_section++;
       assert(HAS(allocated, cell[x]));
       pinned[m] = cell[x];
#ifdef CARD_FIRST
       card = card | BIT(cell[x])
     };
     atomic {
       dirty = dirty | BIT(cell[x]);
#else
       dirty = dirty | BIT(cell[x])
     };
     atomic {
#ifndef CARD_AFTER_SECTION
       card = card | BIT(cell[x]);
#endif
#endif
       v = cur[cell[x]];
       if
       :: cur[cell[x]] = NIL
       :: cell[y] != NIL -> cur[cell[x]] = cell[y]
       fi
     };
     atomic {
       log(v);
       in_section--;
       pinned[m] = NIL;
#ifdef CARD_AFTER_SECTION
       skip
     };
     atomic {
       card = card | BIT(cell[x]);
#endif
       END
     }

  :: atomic { BEGIN(CAN_DROP); v = (marking -> cell[x] : NIL) };
     log(v);                                   /* a section of its own */
     atomic { cell[x] = NIL; END }

  :: atomic {
       BEGIN(CAN_ALLOCATE);
       v = 0;
       do
       :: !HAS(free_run, v) -> v++
       :: else -> break
       od;
       free_run = free_run & ~BIT(v);
       allocated = allocated | BIT(v);
       cur[v] = NIL;
       at_home = at_home & ~BIT(v);
       young = young | BIT(v);
       dirty = dirty | BIT(v);
       card = card | BIT(v);
       cell[y] = v;
       END
     }
  od
}

/* ---- write-back ---- */

#ifdef FREE_GROWN_UP
#define COPY_DOOMED
#endif
#ifdef COPY_DOOMED
#define CAN_WRITE(s) (HAS(dirty & ~writing & allocated, s) && pinned[0] != s && pinned[1] != s)
#else
#define CAN_WRITE(s) (HAS(dirty & ~writing & allocated & ~doomed, s) && pinned[0] != s && pinned[1] != s)
#endif

inline grow_up(s) {
#ifndef YOUNG_FOR_EVER
  if
  :: HAS(young, s) ->
     young = young & ~BIT(s);
#ifndef GROW_UP_UNNOTICED
     log(s)
#endif
  :: else
  fi
#else
  skip
#endif
}

proctype evictor() {
  byte s, v;
end:
  do
  :: atomic {
       !done && writes > 0 && (CAN_WRITE(0) || CAN_WRITE(1) || CAN_WRITE(2)) -> writes--;
       if
       :: CAN_WRITE(0) -> s = 0
       :: CAN_WRITE(1) -> s = 1
       :: CAN_WRITE(2) -> s = 2
       fi;
       in_section++;
       v = cur[s];
       writing = writing | BIT(s);
       dirty = dirty & ~BIT(s);
       n = HAS(young, s);
       young = young & ~BIT(s);
#ifndef COPY_UNNOTICED
       if
       :: n != 0 -> log(s)
       :: else
       fi;
#endif
       n = 0;
       in_section--
     };
#ifndef GROW_UP_LATE
     atomic { grow_up(v) };                    /* in a section, perhaps another one */
#endif
     if
     :: atomic { home[s] = v; at_home = at_home | BIT(s); writing = writing & ~BIT(s) }
     :: dirty = dirty | BIT(s); card = card | BIT(s); writing = writing & ~BIT(s)
     fi;
#ifdef GROW_UP_LATE
     atomic { grow_up(v) };
#endif
     atomic { s = 0; v = 0 }
  od
}

/* ---- the collector ---- */

inline find_reachable() {
  reach = 0;
  i = 0;
  do
  :: i < 4 ->
     n = cell[i];
     do
     :: n != NIL && !HAS(reach, n) -> reach = reach | BIT(n); n = cur[n]
     :: else -> break
     od;
     i++
  :: else -> break
  od;
  i = 0; n = 0
}

#define NAMES_YOUNG(s) ((s) != NIL && HAS(young, s))

inline check_conditions() {
  assert(((dirty | writing) & allocated & ~card) == 0);
  find_reachable();
  assert((reach & ~allocated) == 0);
  do
  :: i < SLOTS ->
     if
     :: HAS(reach & ~dirty & ~writing, i) ->
        assert(!HAS(young, i) && HAS(at_home, i) && home[i] == cur[i] && !NAMES_YOUNG(cur[i]))
     :: else
     fi;
     i++
  :: else -> break
  od;
  i = 0
}

inline mark(s) {
  gray = gray | (BIT(s) & shown & ~marked);
  marked = marked | (BIT(s) & shown)
}

#ifdef WRITING_IS_CLEAN
#define LOOKS_DIRTY(s) HAS(dirty, s)
#else
#define LOOKS_DIRTY(s) HAS(dirty | writing, s)
#endif

inline trace_one() {
  if
  :: HAS(gray, 0) -> n = 0
  :: HAS(gray, 1) -> n = 1
  :: HAS(gray, 2) -> n = 2
  fi;
  gray = gray & ~BIT(n);
  if
  :: true -> i = cur[n]
  :: !HAS(dirty | writing | young, n) -> i = NIL   /* it was evicted meanwhile: nobody reads it */
  fi;
  mark(i);
  n = 0; i = 0
}

proctype owner() {
  byte at, before, rounds;
  bool any;

  do
  :: rounds == ROUNDS -> break
  :: else ->
     rounds++;
     d_step {                           /* the snapshot */
       in_section == 0;
       marking = 1;
       before = allocated;
       check_conditions()
     };
     do                                 /* the roots, one by one */
     :: atomic { at < CELLS && cell[at] != NIL -> found = found | BIT(cell[at]); at++ }
     :: atomic { at < CELLS && cell[at] == NIL -> at++ }
     :: atomic { at == CELLS -> at = 0; break }
     od;
     do                                 /* pages with a dirty card */
     :: atomic { at < SLOTS && !HAS(card, at) -> at++ }
     :: at < SLOTS && HAS(card, at) ->
#ifndef CARD_CLEANED_LAST
        card = card & ~BIT(at);
#endif
        any = 0;
        atomic {
          if
          :: HAS(young & before, at) -> shown = shown | BIT(at); any = 1
          :: HAS(allocated & ~young, at) && LOOKS_DIRTY(at) ->
             any = 1;
#ifndef YOUNG_ONLY
             found = found | BIT(cur[at])
#endif
          :: else -> any = (HAS(allocated & (dirty | writing), at) -> 1 : 0)
          fi
        };
#ifdef CARD_CLEANED_LAST
        card = card & ~BIT(at);
#endif
        atomic {
#ifndef CARD_STAYS_CLEAN
          if
          :: any -> card = card | BIT(at)
          :: else
          fi;
#endif
          any = 0; at++
        }
     :: atomic { at == SLOTS -> at = 0; break }
     od;
#ifdef FREE_OLD
     shown = before;
#endif
     atomic {
       gray = found & shown;
       marked = gray;
       found = 0
     };

     do
     :: atomic { gray != 0 -> trace_one() }
     :: atomic {                        /* the final pause */
          gray == 0 && in_section == 0;
          gray = logged & shown & ~marked;
          logged = 0;
#ifdef NO_FINAL_CHECK
          gray = 0;
#endif
          marked = marked | gray;
          if
          :: gray == 0 ->
             marking = 0;
             doomed = shown & ~marked;
             sweeping = doomed;
             break
          :: else
          fi
        }
     od;

     do                                 /* the sweep, with eviction held back for a slot at least */
     :: atomic {
          sweeping != 0 ->
          do
          :: !HAS(sweeping, at) -> at++
          :: else -> break
          od;
          sweeping = sweeping & ~BIT(at);
#if defined(FREE_GROWN_UP) || defined(FREE_OLD)
          if
          :: HAS(doomed & ~writing, at) ->
#else
          if
          :: HAS(doomed & ~writing & young, at) ->
#endif
             find_reachable();
             assert(!HAS(reach | at_home, at));
             allocated = allocated & ~BIT(at);
             young = young & ~BIT(at);
             dirty = dirty & ~BIT(at);
             cur[at] = NIL;
             free_run = free_run | BIT(at)
          :: else
          fi;
          at = 0
        }
     :: atomic { sweeping == 0 -> break }
     od;
     atomic { doomed = 0; shown = 0; marked = 0; before = 0 }
  od;
  atomic { done = 1; rounds = 0 }
}

init {
  atomic {
    /* 2 is old, and the scan comes to it last. It refers to 1, which may refer to 0; or slot 0 is free. */
    cell[0] = 2;
    at_home = BIT(2);
    home[0] = NIL; home[1] = NIL; home[2] = NIL;
    cur[0] = NIL; cur[1] = NIL;
    if
    :: allocated = ALL; cur[1] = 0
    :: allocated = ALL & ~1
    fi;
    free_run = ALL & ~allocated;
    young = allocated & ~BIT(2);
    if
    :: cur[2] = 1; dirty = allocated
    :: cur[2] = NIL; dirty = young; cell[2] = 1
    fi;
    card = dirty;
    run thread(0);
    run thread(1);
    run evictor();
    run owner()
  }
}
