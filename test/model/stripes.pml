/* A stripe of a paged range that is written back, read, discarded, moved from agent to agent and dropped from one, while an
 * agent may die (src/paged/homes/home.h, src/paged/mend.cc).
 *
 * Proved for every interleaving within the bounds: a page that is fetched has the bytes that were written last, and a page that
 * is at home can be fetched as long as fewer than REPLICAS agents have died. A move does not end without a living member if the
 * one that it takes out lives. Nothing is written to a place that was given back.
 *
 * PAGES pages of one stripe, each with the number of its last write (`cur`; 0: zero). AGENTS agents with one place each for the
 * stripe; `at` is what lies there. A place that was given back holds another stripe's bytes at once. The fill and the write-back
 * of a page, a discard, and the mender's copies are processes; what is atomic in the code under the group's lock is one step here,
 * and each operation of an agent is one.
 *
 * Each macro puts one known mistake back, and spin must find an error then:
 *   WRITE_WHILE_COPIED    a write-back begins while the stripe is copied
 *   COPY_WHILE_WRITTEN    a copy begins while a write-back is under way
 *   ACKNOWLEDGE_ONE       a write-back counts when one member has it
 *   GIVE_PLACE_AT_ONCE    the old place goes back when the new member is one
 *   DISCARD_WHILE_COPIED  a discard gives the places back while they are copied
 *   BELIEVE_EARLIER_LOOK  the mender goes by the set that it saw before the copy began
 *   MEMBER_BEFORE_COPY    a new member is one before it has the home copies
 *   END_ON_LOST           a move ends on an agent that died meanwhile
 *   DROP_WHILE_WRITTEN    a member is dropped while a write-back is under way
 *   DROP_AND_GIVE         its place goes back at once
 */

#ifndef REPLICAS
#define REPLICAS 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef WRITES
#define WRITES 2
#endif
#ifndef MOVES
#define MOVES 1
#endif
#ifndef DISCARDS
#define DISCARDS 0
#endif
#ifndef DROPS
#define DROPS 0 /* so often one replica less is wanted */
#endif
#define PAGES 2
#define AGENTS 3
#define OTHERS 99 /* another stripe's bytes */

#define BIT(a) (1 << (a))
#define HAS(set, a) (((set) & BIT(a)) != 0)

mtype = { absent, busy, here, writing };
mtype state[PAGES] = absent;
byte cur[PAGES];
bool dirty[PAGES], home[PAGES], under_way[PAGES];

byte at[AGENTS * PAGES] = OTHERS;
byte members, taken, dead; /* sets of agents */
byte writes, kept;
bool copying;

byte writes_left = WRITES, discards_left = DISCARDS, losses_left = LOSSES, wanted = REPLICAS;

#define AT(a, p) at[(a) * PAGES + (p)]
#define COUNT(set) (((set) & 1) + ((set) >> 1 & 1) + ((set) >> 2 & 1))
#define LIVING (members & ~dead)
#define IS_LOST (members != 0 && LIVING == 0)

#ifdef WRITE_WHILE_COPIED
#define MAY_WRITE true
#else
#define MAY_WRITE (!copying)
#endif
#ifdef COPY_WHILE_WRITTEN
#define MAY_COPY true
#else
#define MAY_COPY (writes == 0)
#endif

inline give_place(a) {
  taken = taken & ~BIT(a);
  AT(a, 0) = OTHERS;
  AT(a, 1) = OTHERS
}

inline give_all(set) {
  if :: HAS(set, 0) -> give_place(0) :: else fi;
  if :: HAS(set, 1) -> give_place(1) :: else fi;
  if :: HAS(set, 2) -> give_place(2) :: else fi
}

inline give_unused() {
  if
#ifdef DISCARD_WHILE_COPIED
  :: kept == 0 && writes == 0 -> give_all(members); members = 0
#else
  :: kept == 0 && writes == 0 && !copying -> give_all(members); members = 0
#endif
  :: else
  fi
}

inline leave_out_lost() {
  if :: LIVING != 0 -> members = LIVING :: else fi
}

inline pick(a, set) {
  if
  :: HAS(set, 0) -> a = 0
  :: HAS(set, 1) -> a = 1
  :: HAS(set, 2) -> a = 2
  fi
}

/* Touches pages: fetches them where they are absent, and writes to them. */
proctype user(byte p) {
  byte a;
end:
  do
  :: atomic { state[p] == here && writes_left > 0 -> writes_left--; cur[p]++; dirty[p] = true }
  :: atomic { state[p] == writing -> /* a touch */
       state[p] = here;
       if :: writes_left > 0 -> writes_left--; cur[p]++; dirty[p] = true :: true fi
     }
  :: atomic { state[p] == absent ->
       state[p] = busy;
       if
       :: home[p] ->
          assert(members != 0);
          if :: LIVING != 0 -> pick(a, LIVING) :: else -> pick(a, members) fi
       :: else
       fi
     }
     atomic {
       if
       :: !home[p] -> assert(cur[p] == 0); state[p] = here
       :: home[p] && !HAS(dead, a) -> assert(AT(a, p) == cur[p]); state[p] = here
       :: home[p] && HAS(dead, a) -> assert(LIVING != 0 || COUNT(dead) >= REPLICAS); state[p] = absent
       fi;
       a = 0
     }
  od
}

/* Evicts a page: clean ones are dropped, dirty ones written to all members. */
proctype evictor(byte p) {
  byte to, left, a, v;
  bool failed, any;
end:
  do
  :: atomic { state[p] == here && !dirty[p] && !(home[p] && IS_LOST) -> state[p] = absent }
  :: atomic { state[p] == here && dirty[p] && !under_way[p] && (members == 0 || LIVING != 0) && MAY_WRITE ->
       leave_out_lost();
       if
       :: members == 0 -> /* any that live, and whose places are free */
          do
          :: COUNT(members) < wanted && (7 & ~(members | dead | taken)) != 0 ->
             pick(a, 7 & ~(members | dead | taken));
             members = members | BIT(a);
             taken = taken | BIT(a)
          :: else -> break
          od
       :: else
       fi;
       if
       :: members != 0 ->
          writes++;
          to = members;
          left = to;
          v = cur[p];
          failed = false;
          any = false;
          under_way[p] = true;
          state[p] = writing
       :: else
       fi;
       a = 0
     }
     do
     :: atomic { left != 0 ->
          pick(a, left);
          left = left & ~BIT(a);
          if :: HAS(dead, a) -> failed = true :: else -> assert(HAS(taken, a)); AT(a, p) = v; any = true fi;
          a = 0
        }
#ifdef ACKNOWLEDGE_ONE
     :: any -> break
#endif
     :: left == 0 -> break
     od;
     atomic {
       if
       :: under_way[p] ->
          under_way[p] = false;
          writes--;
#ifdef ACKNOWLEDGE_ONE
          failed = !any;
#endif
          if
          :: !failed && state[p] == writing ->
             dirty[p] = false;
             if :: !home[p] -> home[p] = true; kept++ :: else fi;
             state[p] = absent
          :: failed && state[p] == writing -> state[p] = here
          :: else
          fi
       :: else
       fi;
       to = 0; left = 0; v = 0; failed = false; any = false
     }
  od
}

proctype discarder() {
  byte p;
end:
  do
  :: atomic { discards_left > 0 ->
       discards_left--;
       if :: p = 0 :: p = 1 fi
     }
     atomic { state[p] != busy && !under_way[p] ->
       cur[p] = 0;
       dirty[p] = false;
       state[p] = absent;
       if :: home[p] -> home[p] = false; kept--; give_unused() :: else fi;
       p = 0
     }
  od
}

/* Moves the stripe from one member to another agent, or adds one. */
proctype mender() {
  byte old, to, a, seen, was_busy;
  byte moves = MOVES, drops = DROPS;
  byte buffer[PAGES];
  bool moving, failed;
end:
  do
  :: atomic { LIVING != 0 && LIVING != members -> leave_out_lost() }
  :: atomic { drops > 0 -> drops--; wanted-- }
#ifdef DROP_WHILE_WRITTEN
  :: atomic { !copying && COUNT(members) > wanted ->
#else
  :: atomic { !copying && MAY_COPY && COUNT(members) > wanted ->
#endif
       pick(old, members);
       members = members & ~BIT(old);
       was_busy = (state[0] == busy -> 1 : 0) | (state[1] == busy -> 2 : 0)
     }
#ifndef DROP_AND_GIVE
     do
     :: atomic { (was_busy & 1) != 0 && state[0] != busy -> was_busy = was_busy & ~1 }
     :: atomic { (was_busy & 2) != 0 && state[1] != busy -> was_busy = was_busy & ~2 }
     :: was_busy == 0 -> break
     od;
#endif
     atomic { give_place(old); old = 0; was_busy = 0 }
  :: atomic { moves > 0 && members != 0 && LIVING != 0 && (7 & ~(taken | dead)) != 0 ->
       moves--;
       moving = (COUNT(members) >= wanted);
       seen = members;
       if :: moving -> pick(old, members) :: else fi
     }
     atomic { !copying && MAY_COPY ->
       copying = true;
       failed = ((7 & ~(taken | dead)) == 0);
#ifndef BELIEVE_EARLIER_LOOK
       if
       :: moving && !HAS(members, old) -> failed = true
       :: !moving && (members == 0 || COUNT(members) >= wanted) -> failed = true
       :: else
       fi;
#endif
       if
       :: !failed -> pick(to, 7 & ~(taken | dead)); taken = taken | BIT(to)
       :: else -> copying = false; give_unused(); moving = false
       fi;
#ifdef MEMBER_BEFORE_COPY
       if :: !failed -> members = members | BIT(to) :: else fi
#endif
     }
     if
     :: failed
     :: else ->
        a = 0;
        do /* reads, then writes */
        :: atomic { a < PAGES ->
             if
#ifdef BELIEVE_EARLIER_LOOK
             :: home[a] && HAS(seen, old) && moving && !HAS(dead, old) -> buffer[a] = AT(old, a)
#endif
             :: home[a] && LIVING != 0 && HAS(LIVING, 0) && to != 0 -> buffer[a] = AT(0, a)
             :: home[a] && LIVING != 0 && HAS(LIVING, 1) && to != 1 -> buffer[a] = AT(1, a)
             :: home[a] && LIVING != 0 && HAS(LIVING, 2) && to != 2 -> buffer[a] = AT(2, a)
             :: home[a] && (LIVING & ~BIT(to)) == 0 -> failed = true
             :: !home[a] -> buffer[a] = OTHERS
             fi;
             a++
           }
        :: a == PAGES -> break
        od;
        a = 0;
        do
        :: atomic { a < PAGES ->
             if :: HAS(dead, to) -> failed = true :: else -> AT(to, a) = buffer[a] fi;
             a++
           }
        :: a == PAGES -> break
        od;
        atomic {
          copying = false;
#ifndef END_ON_LOST
          failed = failed || HAS(dead, to);
#endif
          if
          :: failed ->
#ifdef MEMBER_BEFORE_COPY
             members = members & ~BIT(to);
#endif
             give_place(to); moving = false
          :: else ->
             members = members | BIT(to);
             if :: moving -> members = members & ~BIT(old) :: else fi;
             assert(kept == 0 || LIVING != 0 || (moving && HAS(dead, old)))
          fi;
          was_busy = (state[0] == busy -> 1 : 0) | (state[1] == busy -> 2 : 0);
          give_unused()
        };
        if
        :: moving ->
#ifndef GIVE_PLACE_AT_ONCE
           do
           :: atomic { (was_busy & 1) != 0 && state[0] != busy -> was_busy = was_busy & ~1 }
           :: atomic { (was_busy & 2) != 0 && state[1] != busy -> was_busy = was_busy & ~2 }
           :: was_busy == 0 -> break
           od;
#endif
           atomic { give_place(old) }
        :: else
        fi
     fi;
     atomic { old = 0; to = 0; a = 0; seen = 0; was_busy = 0; moving = false; failed = false; buffer[0] = 0; buffer[1] = 0 }
  od
}

proctype killer() {
  byte a;
end:
  do
  :: atomic { losses_left > 0 ->
       losses_left--;
       if :: a = 0 :: a = 1 :: a = 2 fi;
       dead = dead | BIT(a);
       a = 0
     }
  od
}

init {
  atomic {
    run user(0);
    run user(1);
    run evictor(0);
    run evictor(1);
    run mender();
    if :: DISCARDS > 0 -> run discarder() :: else fi;
    if :: LOSSES > 0 -> run killer() :: else fi
  }
}
