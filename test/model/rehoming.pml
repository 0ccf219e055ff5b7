/* What happens to one slot while the agent of its tablet is lost and its tablet gets another one; see src/cache/replicas/rehoming.h.
 *
 * Proved for every interleaving, without bounds on operations: the newest version of the object is resident, or the tablet's
 * agent has it, or it is on the list of the lost. What is on that list is never read again. A read goes to the agent whose
 * address it uses, and a clean frame's home copy is its tablet's agent's.
 *
 * Versions have numbers, used again in turn. Agent 0 is lost at any moment, and agent 1 has nothing of the slot before. A hint
 * says no more than whose it is: hints of one agent that are old are the matter of reuse.pml. A session that has ended posts
 * nothing; what was read or applied before may be told late. A miss waits outside of sections; a question about a slot that
 * nothing is known of does so, too, and looks at the session again before it puts hints into words. The evictor reads the
 * tablet's agent before it owns the word, with its lock held. A pause waits until nobody is in a section. Not modelled: pages
 * that are given back while a question is under way, slots that are allocated meanwhile, survivors that are lost as well.
 *
 * Each macro puts one known mistake back, and spin must find an error then:
 *   SWEEP_WITHOUT_PAUSE     the words are looked at while somebody who saw the session live may still put hints into them
 *   PASS_FETCHES            a word that a fetch owns is passed over
 *   LOOK_ONCE               a question's answer is used without another look at the session
 *   NAME_FIRST              the tablet names its new agent before the words are looked at
 *   STAY_CLEAN              clean frames stay clean, although the new agent has no copy
 * And one that is none, because words are dirty after the sweep and an acknowledgement leaves that alone:
 *   LEAVE_BATCHES           the old agent's batches are not waited for
 */

#define NEXT(v) ((v) % 3 + 1)

mtype = { unknown, remote, fetching, resident };

mtype word = resident;
byte holds = 1, newest = 1;            /* versions */
bit hint_of;                           /* whose address a remote or fetching word has */
bool dirty = 1, writing;               /* of the frame */
bit home_of;                           /* whose address the frame's home copy has */
bit named;                             /* the tablet's agent */
byte entry[2];                         /* the version that each agent has; 0 none */
bool ended;                            /* the session with agent 0 */
bool listed;                           /* the object is on the list of the lost */
byte in_section;
bool evicting;                         /* the evictor's lock */

mtype = { none, flying, applied, failed };
mtype batch = none;
bit batch_to;
byte batch_holds;

#define GONE(a) ((a) == 0 && ended)

#define FOUND                                                                        \
  (listed ||                                                                         \
   (word == resident && holds == newest && (dirty || writing || (entry[named] == newest && home_of == named))) || \
   ((word == remote || word == fetching) && hint_of == named && entry[named] == newest) ||  \
   (word == unknown && entry[named] == newest))

active proctype monitor() {
  atomic { !FOUND || (listed && named == 1 && word != unknown) -> assert(false) }
}

active proctype program() {
end:
  do
  :: atomic { word == resident -> newest = NEXT(newest); holds = newest; dirty = 1 }
  od
}

/* ---- eviction ---- */

active proctype evictor() {
  bit a;
end:
  do
  :: atomic { !evicting && batch == none && !GONE(named) -> evicting = 1; in_section++; a = named };
     atomic {
       if
       :: word == resident && dirty && !writing -> dirty = 0; writing = 1; batch = flying; batch_to = a; batch_holds = holds
       :: else
       fi;
       evicting = 0; in_section--; a = 0
     }
  :: atomic { !evicting && !GONE(named) -> evicting = 1; in_section++ };
     atomic {
       if
       :: word == resident && !dirty && !writing -> word = remote; hint_of = home_of; holds = 0; home_of = 0
       :: word == remote -> word = unknown; hint_of = 0
       :: else
       fi;
       evicting = 0; in_section--
     }
  od
}

active proctype agents() {
end:
  do
  :: atomic { batch == flying && !GONE(batch_to) -> entry[batch_to] = batch_holds; batch = applied }
  :: atomic { batch == flying && GONE(batch_to) -> batch = failed }
  od
}

active proctype acknowledgements() {
end:
  do
  :: atomic { batch == applied -> writing = 0; home_of = batch_to; batch = none; batch_to = 0; batch_holds = 0 }
  :: atomic { batch == failed -> writing = 0; dirty = 1; batch = none; batch_to = 0; batch_holds = 0 }
  od
}

/* ---- misses ---- */

active proctype misses() {
  bit a;
  byte got;
end:
  do
  :: atomic { word == remote -> in_section++; a = named };
     if
     :: atomic { GONE(a) -> in_section--; a = 0 }
     :: atomic {
          !GONE(a);
          if
          :: word == remote -> assert(hint_of == a); word = fetching
          :: else -> in_section--; a = 0; goto end
          fi;
          in_section--
        };
        if
        :: atomic { !GONE(a) -> got = entry[a] };
           atomic { word = resident; holds = got; home_of = a; hint_of = 0; dirty = 0; got = 0; a = 0 }
        :: atomic { word = remote; a = 0 }  /* it fails: the hint that it started from is given back */
        fi
     fi
  od
}

active proctype questions() {
  bit a;
  bool answered;
end:
  do
  :: atomic { word == unknown && !listed -> in_section++; a = named };
     if
     :: atomic { GONE(a) -> in_section--; a = 0 }
     :: atomic { !GONE(a) -> in_section-- };
        if
        :: atomic { !GONE(a) && entry[a] != 0 -> answered = 1 }
        :: skip
        fi;
        atomic { in_section++ };
#ifndef LOOK_ONCE
        if
        :: atomic { GONE(a) -> answered = 0 }
        :: !GONE(a)
        fi;
#endif
        atomic {
          if
          :: answered && word == unknown -> word = remote; hint_of = a
          :: else
          fi;
          in_section--; answered = 0; a = 0
        }
     fi
  od
}

/* ---- the loss, and the order of re-homing ---- */

active proctype owner() {
  ended = 1;
#ifdef NAME_FIRST
  named = 1;
#endif
#ifndef LEAVE_BATCHES
  atomic { !evicting && !(batch != none && batch_to == 0) };
#endif
#ifndef SWEEP_WITHOUT_PAUSE
  atomic { in_section == 0 };
#endif
  atomic {
#ifndef PASS_FETCHES
    word != fetching;
#endif
    if
    :: word == resident ->
#ifndef STAY_CLEAN
       dirty = 1
#else
       skip
#endif
    :: word == fetching -> listed = 1
    :: else -> word = unknown; hint_of = 0; listed = 1
    fi
  };
  named = 1
}
