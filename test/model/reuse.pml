/* What happens to one slot over any number of cycles: its object dies, its word is made free, the agent forgets the entry, and
 * the slot is used for another object; while write-backs, fetches, elastic neighbours, answers about the whole page and
 * weak handles may still name the old one.
 *
 * Proved for every interleaving, without bounds on operations or cycles: an object that has a root is never freed, its frame and
 * its home copy are never an older object's, and its agent's entry names it whenever its frame is gone. A weak handle never
 * gives a dead object, and never null for one that has a root.
 *
 * Objects have numbers, used again in turn. A home address stands for the object whose copy it is: nothing is overwritten. An
 * object has no references, since marking is proved in collector.pml: marked is what the scan finds and what is logged. Two
 * threads have one root each, and there is one weak handle, which nobody sets while somebody locks it. A pause waits until nobody
 * is in a section. Batches are applied in order, but a release may overtake them. The words' transitions are those of
 * farmem/detail/barriers/word.h: a fetch ends in a resident word or in a remote one, and a slot is never freed while it runs. Not
 * modelled: regions that are used again (generations, hints that are corrected), the agent's cleaner, words put aside
 * while their page is given back. Pages are given back at any time of a cycle: the owner holds them only while it scans
 * words for dirty frames, which is no part of this model.
 *
 * Each macro puts one known mistake back, and spin must find an error then:
 *   SWEEP_BY_MARK           what is not marked is dead, whether or not it was allocated at the snapshot
 *   RETURN_WHILE_WRITING    a slot is freed though a write-back of it is under way
 *   RETURN_BEFORE_RELEASE   a slot may be used again before the agent has cleared its entry
 *   FREE_WHILE_FETCHING     a slot is freed though a fetch of it is under way
 *   NEIGHBOUR_OVER_ANY_HINT an elastic neighbour is installed whatever address the word names
 *   HINT_OVER_ANYTHING      an answer about the page is put over any word that is not resident
 *   WEAK_WITHOUT_ASKING     a weak handle is locked without asking whether its object is dying
 *   WEAK_LOCK_WITHOUT_LOG   a weak handle that is locked while marking is not logged
 *   WEAK_READS_CELL_FIRST   lock() reads the handle's cell before it asks whether objects are dying: a whole sweep may pass
 *                           between
 *   DYING_UNTIL_THE_END     lock() asks the marks of the old objects although slots are in use again
 */

#define IDS 3
#define NEXT(id) ((id) % IDS + 1)

mtype = { free, unknown, remote, fetching, resident };

/* The owner's word: `holds` is the object in the frame, or the one at the home address of a hint or of a fetch. */
mtype word = free;
byte holds;
bool dirty, writing;                   /* of the frame */
byte home;                             /* the frame's home address */
bool in_run = 1;                       /* the slot may be taken */
byte id = 1;                           /* of the object allocated next */
byte entry;                            /* the agent's: the object whose home copy it names; 0 none */

byte root[2];                          /* objects; 0 none */
byte weak;                             /* the handle's object; 0 none */
byte locking;                          /* threads that use the weak handle: it is set by nobody else then */
byte in_section;
bool marking, marked, logged, dying, dead;
bool dropped;                          /* the page was given back since the question was asked */

#define FOUND(o)                                                     \
  ((o) == 0 || (word == resident && holds == (o) && (dirty || writing || entry == (o))) || \
   ((word == remote || word == fetching) && holds == (o) && entry == (o)) || (word == unknown && entry == (o)))

active proctype monitor() {
  atomic { !(FOUND(root[0]) && FOUND(root[1])) -> assert(false) }
}

/* ---- threads ---- */

proctype thread(bit m) {
  byte w;
  bool d;
end:
  do
  :: atomic {                          /* allocate: taken, published and rooted in one section */
       root[m] == 0 && in_run -> in_run = 0;
       word = resident; holds = id; home = 0; dirty = 1; writing = 0;
       root[m] = id;
       id = NEXT(id)
     }
  :: atomic { root[m] != 0 && word == resident -> dirty = 1 }
  :: atomic { root[m] != 0 && weak == 0 && locking == 0 -> weak = root[m] }
  :: atomic { root[m] != 0 -> d = marking };  /* drop: logged in a section of its own, then done */
     if
     :: atomic { d -> logged = logged | marking; d = 0 }
     :: !d
     fi;
     root[m] = 0
  :: atomic {                          /* lock the weak handle */
       root[m] == 0 && weak != 0 -> in_section++; locking++;
#ifdef WEAK_READS_CELL_FIRST
       w = weak
     };
     d = dying;
#else
       d = dying
     };
     w = weak;
#endif
#ifdef WEAK_WITHOUT_ASKING
     d = 0;
#endif
     atomic {
       assert(w == 0 || root[1 - m] != w || !(d && dead));
       if
       :: w != 0 && !(d && dead) ->
#ifndef WEAK_LOCK_WITHOUT_LOG
          logged = logged | marking;
#endif
          root[m] = w
       :: else
       fi;
       in_section--; locking--; w = 0; d = 0
     }
  od
}

/* ---- the cache, and the agent that applies its batches in order ---- */

chan batches = [2] of { byte };
chan acknowledged = [2] of { byte };

proctype evictor() {
  byte o;
end:
  do
  :: atomic {
       word == resident && dirty && !writing && nfull(batches) -> dirty = 0; writing = 1;
       batches ! holds
     }
  :: atomic { acknowledged ? o -> writing = 0; home = o; o = 0 }  /* whatever frame the slot has */
  :: atomic { word == resident && !dirty && !writing -> word = remote; holds = home; home = 0 }
  :: atomic { word == remote || word == free -> word = unknown; holds = 0; dropped = 1 }
  od
}

proctype agent() {
  byte o;
end:
  do
  :: atomic { batches ? o -> entry = o; acknowledged ! o; o = 0 }
  od
}

/* A fetch that was begun for a root, which may be dropped meanwhile; outside of sections. It fails, or brings the object. */
proctype fetches() {
  byte got;
end:
  do
  :: atomic { word == remote && (root[0] != 0 || root[1] != 0) -> word = fetching; got = holds };
     atomic {
       if
       :: word = resident; holds = got; home = got; dirty = 0; writing = 0
       :: word = remote                /* the hint that it started from is given back */
       fi;
       got = 0
     }
  od
}

/* A read of other objects' bytes that the slot's home copy lies among. One section from posting to install. */
proctype neighbours() {
  byte got;
end:
  do
  :: atomic { entry != 0 -> in_section++; got = entry };
     atomic {
       if
#ifdef NEIGHBOUR_OVER_ANY_HINT
       :: word == remote -> word = resident; holds = got; home = got; dirty = 0; writing = 0
#else
       :: word == remote && holds == got -> word = resident; home = got; dirty = 0; writing = 0
#endif
       :: else
       fi;
       got = 0; in_section--
     }
  od
}

/* A question about some slot of the page, whose answer carries the entries of all of them. */
proctype page_answers() {
  byte got;
end:
  do
  :: atomic { in_section++; dropped = 0 };
     atomic { got = entry };
     atomic {
       if
#ifdef HINT_OVER_ANYTHING
       :: got != 0 && word != resident && word != fetching -> word = remote; holds = got
#else
       :: got != 0 && word == unknown && !dropped -> word = remote; holds = got
#endif
       :: else
       fi;
       got = 0; in_section--
     }
  od
}

/* ---- cycles ---- */

proctype owner() {
  bool allocated, freed;
end:
  do
  :: atomic { in_section == 0 -> marking = 1; logged = 0; allocated = !in_run };  /* the snapshot */
     atomic { marked = marked || (allocated && root[0] != 0) };
     atomic { marked = marked || (allocated && root[1] != 0) };
     do
     :: atomic {                       /* the final pause */
          in_section == 0;
          if
          :: logged && allocated && !marked -> marked = 1; logged = 0
          :: else ->
             marking = 0; logged = 0;
#ifdef SWEEP_BY_MARK
             dead = !in_run && !marked;
#else
             dead = allocated && !marked;
#endif
             dying = 1;
             break
          fi
        }
     od;
     if
     :: atomic { dead -> weak = 0 }    /* weak handles first */
     :: !dead
     fi;
#ifndef DYING_UNTIL_THE_END
     dying = 0;
#endif
     atomic {                          /* the word, under its lock */
       if
       :: !dead -> skip
#ifdef RETURN_WHILE_WRITING
       :: dead && word == resident -> freed = 1; word = free; dirty = 0; writing = 0; holds = 0; home = 0
#else
       :: dead && word == resident && !writing -> freed = 1; word = free; dirty = 0; holds = 0; home = 0
       :: dead && word == resident && writing     /* another cycle will find it */
#endif
#ifdef FREE_WHILE_FETCHING
       :: dead && word == fetching -> freed = 1; word = free; holds = 0
#else
       :: dead && word == fetching
#endif
       :: dead && word == remote -> freed = 1; word = free; holds = 0
       :: dead && (word == free || word == unknown) -> freed = 1  /* nothing is put where nothing is known */
       fi
     };
     if
     :: freed ->
#ifdef RETURN_BEFORE_RELEASE
        in_run = 1;
        entry = 0
#else
        entry = 0;
        in_run = 1
#endif
     :: !freed
     fi;
     dying = 0;
     atomic { locking == 0 -> dead = 0; marked = 0; freed = 0; allocated = 0 }  /* marks stay while asked */
  od
}

init {
  atomic {
    run thread(0);
    run thread(1);
    run evictor();
    run agent();
    run fetches();
    run neighbours();
    run page_answers();
    run owner()
  }
}
