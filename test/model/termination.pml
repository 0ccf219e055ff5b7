/* How the owner knows that tracing is over: two agents that trace their own objects, and send remote references to each other, or
 * leave them to the owner; answers that say idle and how much was received; messages that are lost and repeated; and the final
 * pause.
 *
 * Proved for every interleaving within the bounds, for every heap of four objects with one reference each (up to symmetry):
 * when marking ends, everything that is reachable from a root, or from what was overwritten while marking, is marked.
 *
 * The protocol is that of store/protocol.h, "Collecting" and "Agents that talk", and the end that of src/collector/marking/termination.h. An agent has a
 * handler, which takes messages and answers; a tracer, which takes an object in hand, looks at its reference, and passes remote references on
 * later; and a courier, which brings remote references to the other agent, one message at a time: it is sent, queued there, and
 * acknowledged, which are steps of their own. They share the agent's lock, so what is done under it is one step. Messages of
 * the owner and answers are steps of their own; either may be lost, and then the same number is sent again. A courier's message, or what acknowledges it, may
 * be lost, too, or come late: then what was not acknowledged goes to the owner, and so does all that follows, and the message may
 * still be queued at any time later. All of that happens LOSSES times in total. What threads overwrite appears in the log at
 * any time (LATE); the heap does not change otherwise, since collector.pml covers that. With THROUGH_OWNER agents do not talk.
 *
 * Of the counts of termination.h only what was received is compared, and whether anything was ever sent. That is enough. What would go
 * wrong without comparing takes six objects to be seen, which are too many to search.
 *
 * Each macro puts one known mistake back, and spin must find an error then:
 *   ANSWER_BEFORE_QUEUEING  the slots of a message are on their way to the tracer when idle is answered
 *   IDLE_WITH_REFERENCES      idle is answered while the tracer has remote references that it has not passed on
 *   IDLE_WITH_WORK_IN_HAND  idle is answered while the tracer has taken an object and not looked at it
 *   END_WITH_PENDING        marking ends when all agents are idle, whatever they gave in that round
 *   NO_FINAL_CHECK          marking ends though something unmarked was logged
 *   REPEATED_AS_NEW         a repeated message is answered with new remote references: those of the lost answer are lost
 *   ONE_ROUND               marking ends with the first quiet round, though agents talk
 *   ACKNOWLEDGE_EARLY       an agent acknowledges remote references, and queues them later
 *   IDLE_UNACKNOWLEDGED     idle is answered while the other agent has not acknowledged what was sent
 *   LOST_WITH_PEER          what a lost peer has not acknowledged is not given to the owner
 * And one that is no mistake, which must verify:
 *   END_IN_ROUND_WITH_SLOTS a round may be the last though slots were sent in it, since they are queued before the answer; the
 *                           owner does another round nevertheless
 */

#ifndef LATE
#define LATE 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif

#define SLOTS 4
#define NIL 4
#define ALL 15
#define BIT(s) ((1 << (s)) & ALL)
#define HAS(set, s) ((set) & BIT(s))
#define OWN(a) (5 << (a))                      /* slots 0 and 2 are A's, 1 and 3 B's */
#define AGENT(s) ((s) & 1)

byte ref[SLOTS];
byte roots = 1;                                /* and whatever was logged: what must be marked in the end */
byte marked, gray;                             /* of both agents */
byte in_hand[2] = NIL;                         /* taken from gray, not looked at */
byte own_references, references;                       /* the tracers', and what the handlers may give; of the other agent */
byte outbox, under_way;                        /* what the couriers have to bring there, and what they have sent */
byte late_references;                              /* of messages that were given up, and may come nevertheless */
bool queued[2];                                /* what is under way from the agent was marked and queued */
bool talks[2] = 1;                             /* its courier has not lost the other agent */
bool ever_sent[2];
byte received[2];                              /* messages with references */
byte inbox;                                    /* of a mistaken agent: received, not queued */
byte logged;
byte late = LATE, losses = LOSSES;
bool done;

mtype = { answered, lost };
chan to[2] = [1] of { bit, byte };             /* number, slots */
chan from[2] = [1] of { mtype, bool, byte, bool, byte };  /* idle, references, whether any were ever sent, received */

hidden byte i, n;

/* ---- an agent ---- */

proctype tracer(bit a) {
end:
  do
  :: atomic {
       in_hand[a] == NIL && (gray & OWN(a)) != 0 ->
       if
       :: HAS(gray & OWN(a), a) -> in_hand[a] = a
       :: HAS(gray & OWN(a), a + 2) -> in_hand[a] = a + 2
       fi;
       gray = gray & ~BIT(in_hand[a])
     }
  :: atomic {
       in_hand[a] != NIL ->
       n = ref[in_hand[a]];
       in_hand[a] = NIL;
       if
       :: n == NIL || HAS(marked, n)           /* a remote reference that is marked already may be sent; here it is not */
       :: else ->
          if
          :: AGENT(n) == a -> marked = marked | BIT(n); gray = gray | BIT(n)
          :: else -> own_references = own_references | BIT(n)
          fi
       fi;
       n = 0
     }
  :: atomic {
       (own_references & OWN(1 - a)) != 0 ->
       if
#ifndef THROUGH_OWNER
       :: talks[a] -> outbox = outbox | (own_references & OWN(1 - a)); ever_sent[a] = 1
#endif
       :: else -> references = references | (own_references & OWN(1 - a))
       fi;
       own_references = own_references & ~OWN(1 - a)
     }
#if defined(ANSWER_BEFORE_QUEUEING) || defined(ACKNOWLEDGE_EARLY)
  :: atomic {
       (inbox & OWN(a)) != 0 ->
       gray = gray | (inbox & OWN(a) & ~marked);
       marked = marked | (inbox & OWN(a));
       inbox = inbox & ~OWN(a)
     }
#endif
  od
}

inline queue(set, by) {
  gray = gray | ((set) & ~marked);
  marked = marked | (set);
  received[by]++
}

#ifndef THROUGH_OWNER
proctype courier(bit a) {
end:
  do
  :: atomic {
       (outbox & OWN(1 - a)) != 0 && (under_way & OWN(1 - a)) == 0 ->
       under_way = under_way | (outbox & OWN(1 - a));
       outbox = outbox & ~OWN(1 - a)
     }
  :: atomic {
       (under_way & OWN(1 - a)) != 0 && !queued[a] ->
#ifdef ACKNOWLEDGE_EARLY
       inbox = inbox | (under_way & OWN(1 - a));
       received[1 - a]++;
#else
       queue(under_way & OWN(1 - a), 1 - a);
#endif
       queued[a] = 1
     }
  :: atomic { queued[a] -> under_way = under_way & ~OWN(1 - a); queued[a] = 0 }
  :: atomic {
       losses > 0 && (under_way & OWN(1 - a)) != 0 ->
       losses--;
       talks[a] = 0;
#ifndef LOST_WITH_PEER
       references = references | ((outbox | under_way) & OWN(1 - a));
#endif
       late_references = late_references | (queued[a] -> 0 : (under_way & OWN(1 - a)));
       outbox = outbox & ~OWN(1 - a);
       under_way = under_way & ~OWN(1 - a);
       queued[a] = 0
     }
  :: atomic {
       (late_references & OWN(1 - a)) != 0 ->
       queue(late_references & OWN(1 - a), 1 - a);
       late_references = late_references & ~OWN(1 - a)
     }
  od
}
#endif

proctype handler(bit a) {
  bit number, last;
  byte slots, given;                           /* given: with the last answer */
  bool idle, sent;
  byte count;
end:
  do
  :: to[a] ? number, slots ->
     if
     :: atomic { losses > 0 -> losses--; slots = 0; from[a] ! lost, 0, 0, 0, 0 }  /* before it arrived */
     :: skip ->
#ifdef ANSWER_BEFORE_QUEUEING
        inbox = inbox | slots;
#else
        atomic { gray = gray | (slots & ~marked); marked = marked | slots };
#endif
        atomic {
          slots = 0;
#ifndef REPEATED_AS_NEW
          if
          :: number == last                    /* the same references again */
          :: else ->
#endif
             given = 0;
             if                                /* at most one in an answer */
             :: HAS(references & OWN(1 - a), 1 - a) -> given = BIT(1 - a)
             :: else ->
                if
                :: HAS(references & OWN(1 - a), 3 - a) -> given = BIT(3 - a)
                :: else
                fi
             fi;
             references = references & ~given;
             last = number;
#ifndef REPEATED_AS_NEW
          fi;
#endif
          idle = (gray & OWN(a)) == 0;
#ifndef IDLE_WITH_WORK_IN_HAND
          idle = idle && in_hand[a] == NIL;
#endif
#ifndef IDLE_WITH_REFERENCES
          idle = idle && (own_references & OWN(1 - a)) == 0;
#endif
#ifndef IDLE_UNACKNOWLEDGED
          idle = idle && ((outbox | under_way) & OWN(1 - a)) == 0;
#endif
          idle = idle && (references & OWN(1 - a)) == 0;
          sent = ever_sent[a];
          count = received[a]
        };
        if
        :: from[a] ! answered, idle, given, sent, count
        :: atomic { losses > 0 -> losses--; from[a] ! lost, 0, 0, 0, 0 }
        fi
     fi;
     atomic { idle = 0; number = 0; sent = 0; count = 0 }
  od
}

/* ---- threads ---- */

proctype threads() {
end:
  do
  :: atomic {
       !done && late > 0 -> late--;
       if
       :: n = BIT(1)
       :: n = BIT(2)
       fi;
       logged = logged | n;
       roots = roots | n;
       n = 0
     }
  od
}

/* ---- the owner ---- */

byte pending;

proctype owner() {
  bit number[2], a;
  byte slots, given;
  bool idle, quiet, was_quiet, sent, none_sent, same;
  byte count, counts[2];
  mtype outcome;

  pending = roots;
mark:
  atomic {
    quiet = 1;
    same = 1;
    none_sent = 1;
    if                                         /* logs that are full */
    :: skip
    :: logged != 0 -> pending = pending | logged; logged = 0; quiet = 0
    fi
  };
  do
  :: atomic {
       slots = pending & OWN(a);
       pending = pending & ~OWN(a);
       number[a] = 1 - number[a]
     };
     do
     :: to[a] ! number[a], slots;
        from[a] ? outcome, idle, given, sent, count;
        if
        :: outcome == answered -> break
        :: else
        fi
     od;
     atomic {
       pending = pending | given;
       quiet = quiet && idle;
#ifndef END_IN_ROUND_WITH_SLOTS
#ifndef END_WITH_PENDING
       quiet = quiet && slots == 0;
#endif
#endif
#ifndef END_WITH_PENDING
       quiet = quiet && given == 0;
#endif
       none_sent = none_sent && !sent;
       same = same && count == counts[a];
       counts[a] = count;
       slots = 0; given = 0; idle = 0; sent = 0; count = 0;
       a = 1 - a
     };
     if
     :: a == 0 -> break
     :: else
     fi
  od;
  atomic {
    if
    :: quiet && (none_sent || (was_quiet && same)) -> was_quiet = 0
#ifdef ONE_ROUND
    :: quiet && !(none_sent || (was_quiet && same)) -> was_quiet = 0
#endif
    :: else -> was_quiet = quiet; goto mark
    fi
  };
  atomic {                                     /* the final pause */
    pending = pending | (logged & ~marked);
    logged = 0;
#ifdef NO_FINAL_CHECK
    pending = 0;
#endif
#ifdef END_WITH_PENDING
    pending = 0;
#endif
    if
    :: pending != 0 -> goto mark
    :: else
    fi;
    done = 1;
    n = roots;
    do
    :: i < SLOTS * SLOTS ->
       if
       :: HAS(n, i % SLOTS) && ref[i % SLOTS] != NIL -> n = n | BIT(ref[i % SLOTS])
       :: else
       fi;
       i++
    :: else -> break
    od;
    assert((n & ~marked) == 0);
    i = 0; n = 0
  }
}

init {
  atomic {
    if                                         /* by symmetry not 3; the rest may be anything but a loop to itself */
    :: ref[0] = 1
    :: ref[0] = 2
    fi;
    i = 1;
    do
    :: i < SLOTS ->
       if
       :: ref[i] = 0
       :: i != 1 -> ref[i] = 1
       :: i != 2 -> ref[i] = 2
       :: i != 3 -> ref[i] = 3
       :: ref[i] = NIL
       fi;
       i++
    :: else -> break
    od;
    i = 0;
    run handler(0);
    run handler(1);
    run tracer(0);
    run tracer(1);
#ifndef THROUGH_OWNER
    run courier(0);
    run courier(1);
#endif
    run threads();
    run owner()
  }
}
