/* The marking of a collection cycle as the owner and its threads see it: snapshot, root scan, the dirty set, deletion barrier,
 * tracing, final pause, and what is dead then. How the agents agree that tracing is over is in termination.pml, and what happens to
 * dead slots afterwards in reuse.pml.
 *
 * Proved for every interleaving within the bounds: nothing that is dead after the final pause is reachable from a root then, and
 * no thread roots or uses a dead object later. On the way: in a pause every slot is either allocated or in a run, and the
 * home copy of a frame that is clean and not being written equals the frame.
 *
 * The heap: SLOTS slots with one reference field each; the last is free at the start. Two threads with two root cells each
 * share OPS operations and a run of free slots; with CELLS 3 the second thread has one root only. The frame is the truth (`cur`);
 * the home copy (`home`) follows by at most WRITES write-backs. What entered the dirty set after the snapshot is traced from the
 * frame by the owner, or from home once it is clean, since it may have been evicted; everything else from home. A frame that is
 * evicted and fetched again is a clean one, so residency is not modelled otherwise. A write pin is not held longer than a store, and pins are not modelled as roots: one is dropped
 * as a cell is.
 *
 * One step is what is atomic in the code, or what commutes with everything else. A pause is one step that waits until no
 * thread is in a section (table/epoch.h): what runs meanwhile outside of sections commutes with it. Marking a dirty frame and
 * exchanging its field are one step, because a frame that is dirty before it differs is as good as clean. Memory is sequentially
 * consistent: the code's fences are not modelled.
 *
 * Each macro puts one known mistake back, and spin must find an error then:
 *   STORE_READS_EARLY         ref store: what is logged was loaded before the section of the store
 *   DROP_WITHOUT_LOG          a root is overwritten or dropped without logging
 *   LOAD_WITHOUT_SECTION      a reference is loaded and rooted outside of a section: a whole cycle may pass between
 *   ALLOCATE_WITHOUT_SECTION  a slot is taken from the run and published with a snapshot in between
 *   SWEEP_BY_MARK             what is not marked is dead, whether or not it was allocated at the snapshot
 *   TRACE_BEFORE_DIRTY_SET    agents begin to trace when the roots are known
 *   DIRTY_SET_WITHOUT_WRITTEN a frame whose write-back is not acknowledged is not in the dirty set
 *   DIRTY_SET_READS_WORD_FIRST whether a frame is clean is read before whether it is being written, and the write-back fails
 *                             in between
 *   HOME_WHILE_WRITING        what was in the dirty set is traced from home though its write-back is not acknowledged
 *   FAILED_WRITE_LOOKS_CLEAN  a failed write-back is no longer under way a moment before its frame is dirty again
 *   NO_FINAL_CHECK            marking ends though something unmarked was logged
 * And one that is no mistake, which must verify:
 *   STORE_LOADS_IN_SECTION    a load and a store in one section instead of an exchange: the first store after the snapshot
 *                             still logs the snapshot's value, and no more is needed
 */

#ifndef OPS
#define OPS 4
#endif
#ifndef WRITES
#define WRITES 1
#endif
#ifndef SLOTS
#define SLOTS 4
#endif

#ifndef CELLS
#define CELLS 4
#endif

#define NIL SLOTS
#define ALL ((1 << SLOTS) - 1)
#define BIT(s) ((1 << (s)) & ALL)  /* none for NIL */
#define HAS(set, s) ((set) & BIT(s))

byte cur[SLOTS], home[SLOTS];      /* the reference in the frame, and in the home copy */
byte dirty_set, dirty, writing;    /* sets of slots */
byte allocated, free_run;          /* slots with an object; slots that threads may take */
byte cell[4] = NIL;                /* roots: 0, 1 of thread 0; 2, 3 of thread 1 */
byte logged;                       /* overwritten while marking, by either thread */
byte pinned[2] = NIL;              /* for writing, by thread */
byte in_section;                   /* threads */
byte ops = OPS, writes = WRITES;

bool marking, done;
byte not_allocated;                /* at the snapshot */
byte marked, gray;

hidden byte reach, dead, i, n;

#ifdef LOAD_WITHOUT_SECTION
#define enter_load skip
#define leave_load skip
#else
#define enter_load in_section++
#define leave_load in_section--
#endif
#ifdef ALLOCATE_WITHOUT_SECTION
#define enter_allocate skip
#define leave_allocate skip
#else
#define enter_allocate in_section++
#define leave_allocate in_section--
#endif

/* ---- threads ---- */

inline log(s) {
  if
  :: marking -> logged = logged | BIT(s)
  :: else
  fi
}

/* What can be done with root x, and y the thread's other cell. */
#define EMPTY(y) ((y) < CELLS && cell[y] == NIL)
#define CAN_LOAD(x, y) (EMPTY(y) && cell[x] != NIL && cur[cell[x]] != NIL)
#define CAN_COPY(x, y) (EMPTY(y) && cell[x] != NIL)
#define CAN_STORE(x, y) (cell[x] != NIL)
#define CAN_SET(x, y) (cell[y] != NIL)
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
       enter_load;
       assert(HAS(allocated, cell[x]));
       v = cur[cell[x]]
     };
     atomic { assert(HAS(allocated, v)); cell[y] = v; leave_load; END }

  :: atomic { BEGIN(CAN_COPY); cell[y] = cell[x]; END }  /* the original is rooted meanwhile */

  :: atomic {                                  /* p.write()->next = q, or null */
       BEGIN(CAN_STORE);
#ifdef STORE_READS_EARLY
       v = cur[cell[x]]
     };
     atomic {
#endif
       in_section++;
       assert(HAS(allocated, cell[x]));
       pinned[m] = cell[x];
       dirty = dirty | BIT(cell[x]);
#ifdef STORE_LOADS_IN_SECTION
       v = cur[cell[x]]
     };
     atomic {
#endif
#if !defined(STORE_READS_EARLY) && !defined(STORE_LOADS_IN_SECTION)
       v = cur[cell[x]];
#endif
       if
       :: cur[cell[x]] = NIL
       :: cell[y] != NIL -> cur[cell[x]] = cell[y]
       fi
     };
     atomic { log(v); in_section--; pinned[m] = NIL; END }

  :: atomic {                                  /* a root is dropped, or overwritten by the other; no section around */
       BEGIN(CAN_SET);
       v = (marking -> cell[y] : NIL)
     };
#ifndef DROP_WITHOUT_LOG
     if
     :: v != NIL -> log(v)                     /* a section of its own */
     :: v == NIL
     fi;
#endif
     atomic {
       if
       :: cell[y] = NIL
       :: cell[x] != NIL && cell[x] != cell[y] -> cell[y] = cell[x]
       fi;
       END
     }

  :: atomic {
       BEGIN(CAN_ALLOCATE);
       enter_allocate;
       v = 0;
       do
       :: !HAS(free_run, v) -> v++
       :: else -> break
       od;
       free_run = free_run & ~BIT(v);
#ifdef ALLOCATE_WITHOUT_SECTION
       skip
     };
     atomic {
#endif
       allocated = allocated | BIT(v);
       cur[v] = NIL;
       dirty = dirty | BIT(v);
       cell[y] = v;
       leave_allocate;
       END
     }
  od
}

/* ---- write-back: a copy is taken, and applied and acknowledged later; or it fails ---- */

#define CAN_WRITE(s) (HAS(dirty, s) && pinned[0] != s && pinned[1] != s)

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
       v = cur[s];
       dirty = dirty & ~BIT(s);
       writing = writing | BIT(s)
     };
     if
     :: atomic { home[s] = v; writing = writing & ~BIT(s) }
#ifdef FAILED_WRITE_LOOKS_CLEAN
     :: writing = writing & ~BIT(s); dirty = dirty | BIT(s)
#else
     :: atomic { dirty = dirty | BIT(s); writing = writing & ~BIT(s) }
#endif
     fi;
     atomic { s = 0; v = 0 }
  od
}

/* ---- the owner, and the agents' tracing ---- */

#ifdef HOME_WHILE_WRITING
#define AT_HOME_BEFORE 0
#else
#define AT_HOME_BEFORE writing
#endif

inline mark(s) {
  gray = gray | (BIT(s) & ~(marked | not_allocated));
  marked = marked | (BIT(s) & ~not_allocated)
}

inline trace_one() {
  if
  :: HAS(gray, 0) -> n = 0
  :: HAS(gray, 1) -> n = 1
  :: HAS(gray, 2) -> n = 2
#if SLOTS > 3
  :: HAS(gray, 3) -> n = 3
#endif
  fi;
  gray = gray & ~BIT(n);
  if
  :: HAS(dirty_set, n) -> i = cur[n]
  :: !HAS(dirty_set & (dirty | AT_HOME_BEFORE), n) -> i = home[n]
  fi;
  mark(i);
  n = 0; i = 0
}

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
  od
}

inline check_copies() {
  i = 0;
  do
  :: i < SLOTS -> assert(HAS(dirty | writing, i) || home[i] == cur[i] || !HAS(allocated, i)); i++
  :: else -> break
  od;
  i = 0
}

proctype owner() {
  byte at;

  d_step {                              /* the snapshot */
    in_section == 0;
    marking = 1;
    not_allocated = free_run;
#ifndef FAILED_WRITE_LOOKS_CLEAN
    check_copies();
#endif
#ifndef ALLOCATE_WITHOUT_SECTION
    assert((free_run ^ allocated) == ALL);
#endif
  };
  do                                    /* the roots, one by one */
  :: atomic { at < CELLS -> mark(cell[at]); at++ }
  :: atomic { at == CELLS -> at = 0; break }
  od;
#ifdef TRACE_BEFORE_DIRTY_SET
  do
  :: atomic { gray != 0 -> trace_one() }
  :: break
  od;
#endif
#ifdef DIRTY_SET_WITHOUT_WRITTEN
#define WANTED(s) HAS(dirty, s)
#else
#define WANTED(s) HAS(dirty | writing, s)
#endif
  do
#ifdef DIRTY_SET_READS_WORD_FIRST
  :: atomic { at < SLOTS && HAS(writing, at) && !HAS(dirty, at) -> skip };
     atomic {
       if
       :: HAS(writing, at) -> dirty_set = dirty_set | BIT(at)
       :: else
       fi;
       at++
     }
#endif
  :: atomic {                           /* no write-back of a frame begins while it is looked at */
       at < SLOTS ->
       if
       :: WANTED(at) -> dirty_set = dirty_set | BIT(at)
       :: else
       fi;
       at++
     }
  :: atomic { at == SLOTS -> at = 0; break }
  od;

  do
  :: atomic { gray != 0 -> trace_one() }
  :: atomic {                           /* the final pause */
       gray == 0 && in_section == 0;
       gray = logged & ~(marked | not_allocated);
       logged = 0;
#ifdef NO_FINAL_CHECK
       gray = 0;
#endif
       marked = marked | gray;
       if
       :: gray == 0 ->
          marking = 0;
#ifdef SWEEP_BY_MARK
          dead = allocated & ~marked;
#else
          dead = ALL & ~(marked | not_allocated);
#endif
          find_reachable();
          assert((reach & dead) == 0);
          allocated = allocated & ~dead;
          done = 1;
          break
       :: else
       fi
     }
  od
}

init {
  atomic {
    allocated = ALL >> 1;
    free_run = ALL & ~allocated;
    cell[0] = 0;
    if
    :: cell[2] = 0
    :: cell[2] = 0; cell[1] = 1
    :: cell[2] = 1
    fi;
#if SLOTS > 3
    if                                  /* 0 -> 1 -> 2, or 0 -> 2 */
    :: cur[0] = 1; cur[1] = 2
    :: cur[0] = 2; cur[1] = NIL
    fi;
    cur[2] = NIL; home[2] = NIL;
    cur[3] = NIL; home[3] = NIL;
#else
    if                                  /* 0 -> 1, or nothing */
    :: cur[0] = 1
    :: cur[0] = NIL
    fi;
    cur[1] = NIL;
    cur[2] = NIL; home[2] = NIL;
#endif
    home[0] = cur[0]; home[1] = cur[1];
    if                                  /* all is stored, or one object was written since */
    :: skip
    :: home[0] = (cur[0] == NIL -> 1 : NIL); dirty = 1
    fi;
    run thread(0);
    run thread(1);
    run evictor();
    run owner()
  }
}
