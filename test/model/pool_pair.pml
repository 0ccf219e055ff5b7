/* The two agents of a pool with replicas: a backup that joins, a primary that serves under its promises, and either of them
 * that goes on alone when it does not hear the other, or a primary that leaves and has its backup take over
 * (agent/pools/membership.h, agent/pools/pool_keeper.cc).
 *
 * Proved for every interleaving within the bounds: at most one agent serves at a time, and whoever serves has every change that
 * counted. Messages are lost or late, an agent dies, the arbiter's answer is lost, and each agent may find the other silent
 * at any moment.
 *
 * Time goes on by steps that nobody waits for. A promise holds for TENURE steps: the primary counts from when it sent what
 * the backup answers, the backup from when that came. Changes are numbers, and an agent has the first so many of them.
 *
 * Each macro puts one known mistake back, and spin must find an error then:
 *   COUNT_AT_ONCE             a change counts when the primary has made it
 *   JOIN_UNSETTLED            the arbiter is told of the backup before that has confirmed everything
 *   PROMISE_WHILE_TAKING_OVER a backup that asks who goes on answers its primary all the same
 *   COUNT_FROM_ANSWER         the primary counts a promise from when the answer came
 *   GO_ON_UNASKED             a primary goes on alone because its backup is silent
 *   TAKE_OVER_UNASKED         a backup takes over because its primary is silent
 *   TAKE_OVER_EARLY           a backup does not wait for what it has promised
 *   SERVE_UNPROMISED          a primary with a backup serves without a promise
 *   SERVE_WHILE_ASKING        a primary serves as if it was alone until it knows that the arbiter has named its backup
 *   JOIN_FROM_NOW             a primary that has a backup from now on counts that as a promise
 *   BELIEVE_SILENCE           an arbiter that does not answer has agreed
 *   SERVE_WHILE_LEAVING       a primary serves until its backup has taken over
 *   RETURN_UNASKED            a primary that leaves serves again because its backup is silent
 *   OBEY_WHILE_ASKING         a primary that leaves ends because its backup takes over, while it is asked whether it goes on
 *   LET_GO_WHILE_TAKING       a backup that asks who goes on lets itself be sent away
 */

#ifndef CHANGES
#define CHANGES 2
#endif
#ifndef TIME
#define TIME 5
#endif
#define TENURE 2

mtype = { alone, settling, asking, paired, leaving, learning, backup, taking, over };
mtype p = alone, b = learning;

/* The arbiter's record: its term, and who may go on with it. */
byte term = 1;
bool of_p = true, with_b;

byte now;
byte p_has, p_confirmed, p_term = 1, p_until, p_heard, settled;
byte b_has, b_term = 1, b_promised;
byte counted; /* the most that any client was told */
bool p_asks;  /* the arbiter was asked, and its answer was lost */
bool b_agrees; /* an answer to take_over is on its way */
bool p_dead, b_dead;

mtype = { records, joined, take_over, leave };
chan to_b = [1] of { mtype, byte, byte }; /* what, how much of the changes, when it was sent */
chan to_p = [1] of { byte, byte };        /* how much the backup has, when what it answers was sent */

#ifdef SERVE_WHILE_ASKING
#define UNPROMISED (p == alone || p == settling || p == asking)
#else
#define UNPROMISED (p == alone || p == settling)
#endif
#ifdef SERVE_WHILE_LEAVING
#define PROMISED (p == asking || p == paired || p == leaving)
#else
#define PROMISED (p == asking || p == paired)
#endif
#ifdef SERVE_UNPROMISED
#define P_SERVES (!p_dead && (UNPROMISED || p == asking || p == paired))
#else
#define P_SERVES (!p_dead && (UNPROMISED || (PROMISED && now < p_until)))
#endif
#define B_SERVES (!b_dead && b == alone)

inline look() {
  assert(!(P_SERVES && B_SERVES));
  assert(!P_SERVES || p_has >= counted);
  assert(!B_SERVES || b_has >= counted);
  assert(p_dead || b_dead || p != over || b != over)
}

/* What clients are told of. */
inline count() {
  if
#ifdef COUNT_AT_ONCE
  :: !p_dead && p != over && counted < p_has -> counted = p_has
#else
  :: !p_dead && p == alone && counted < p_has -> counted = p_has
  :: !p_dead && (p == settling || p == asking || p == paired || p == leaving) && counted < p_confirmed -> counted = p_confirmed
#endif
  :: B_SERVES && counted < b_has -> counted = b_has
  :: else
  fi
}

/* A message leaves, or is lost. */
inline say(what, much) {
  if
  :: nfull(to_b) -> to_b!what(much, now)
  :: true
  fi
}

proctype primary() {
  byte much, sent;
end:
  do
  :: atomic { !p_dead && p_has < CHANGES && P_SERVES -> p_has++; count(); look() }
  :: atomic { !p_dead && p == alone && !with_b && of_p && p_term == 1 && b == learning -> /* the image is out */
       p = settling;
       settled = p_has;
#ifndef COUNT_AT_ONCE
       if :: counted > settled -> settled = counted :: else fi
#endif
     }
#ifdef JOIN_UNSETTLED
  :: atomic { !p_dead && p == settling && b_promised != 0 ->
#else
  :: atomic { !p_dead && p == settling && p_confirmed >= settled && b_promised != 0 ->
#endif
       p = asking;
#ifdef JOIN_FROM_NOW
       p_until = now + TENURE;
#else
       p_until = p_heard + TENURE;
#endif
       look()
     }
  :: atomic { !p_dead && p == asking ->
       if
       :: of_p && (term == p_term || (term == p_term + 1 && with_b)) ->
          term = p_term + 1;
          with_b = true;
          if
          :: p_term = term; p = paired; say(joined, p_term)
          :: true /* the answer is lost: it asks again */
          fi
       :: else -> p = over
       fi;
       look()
     }
  :: atomic { !p_dead && (p == alone && p_term == 1 || p == settling || p == asking || p == paired || p == leaving) -> say(records, p_has) }
  :: atomic { !p_dead && (p == alone && p_term == 1 || p == settling || p == asking || p == paired || p == leaving) && nempty(to_p) ->
       to_p?much(sent);
       if :: much > p_confirmed -> p_confirmed = much :: else fi;
       if :: sent > p_heard -> p_heard = sent :: else fi;
       if
#ifdef COUNT_FROM_ANSWER
       :: (p == asking || p == paired) && now + TENURE > p_until -> p_until = now + TENURE
#else
       :: (p == asking || p == paired) && sent + TENURE > p_until -> p_until = sent + TENURE
#endif
       :: else
       fi;
       much = 0;
       sent = 0;
       count();
       look()
     }
  :: atomic { !p_dead && p == paired -> p = leaving; look() }
  :: atomic { !p_dead && p == leaving -> say(take_over, p_term) }
#ifdef OBEY_WHILE_ASKING
  :: atomic { !p_dead && p == leaving && b_agrees -> p = over; look() }
#else
  :: atomic { !p_dead && p == leaving && b_agrees && !p_asks -> p = over; look() }
#endif
  :: atomic { !p_dead && p == paired -> say(leave, p_term) }
  :: atomic { !p_dead && (p == paired || p == leaving) -> /* the backup seems silent */
       if
#ifdef GO_ON_UNASKED
       :: true -> p = alone
#endif
#ifdef RETURN_UNASKED
       :: p == leaving -> p = alone
#endif
       :: of_p && (term == p_term || (term == p_term + 1 && !with_b)) ->
          term = p_term + 1;
          with_b = false;
          if
          :: p_term = term; p = alone; p_asks = false; count()
          :: p_asks = true
          fi
#ifdef BELIEVE_SILENCE
       :: true -> p = alone; count()
#endif
       :: !(of_p && (term == p_term || (term == p_term + 1 && !with_b))) -> p = over
       fi;
       look()
     }
  od
}

proctype second() {
  byte much, sent;
  mtype what;
end:
  do
  :: atomic { !b_dead && nempty(to_b) ->
       to_b?what(much, sent);
       if
#ifdef PROMISE_WHILE_TAKING_OVER
       :: b == learning || b == backup || b == taking ->
#else
       :: b == learning || b == backup ->
#endif
          b_promised = now + TENURE;
          if
          :: what == joined && b == learning -> b = backup; b_term = much
          :: what == records && much > b_has && b != taking -> b_has = much
          :: what == take_over && b == backup && much == b_term -> b = taking; b_agrees = true
          :: what == leave && b == backup -> b = over
          :: else
          fi;
          if
          :: nfull(to_p) -> to_p!b_has(sent)
          :: true
          fi
#ifdef LET_GO_WHILE_TAKING
       :: b == taking && what == leave -> b = over
#endif
       :: else
       fi;
       look();
       much = 0;
       sent = 0;
       what = records
     }
#ifdef TAKE_OVER_EARLY
  :: atomic { !b_dead && b == backup -> b = taking }
#else
  :: atomic { !b_dead && b == backup && now >= b_promised -> b = taking }
  :: atomic { !b_dead && b == learning && now >= b_promised && b_promised != 0 -> b = taking; b_term++ }
#endif
  :: atomic { !b_dead && b == taking ->
       if
#ifdef TAKE_OVER_UNASKED
       :: true -> b = alone
#endif
       :: (of_p && with_b && term == b_term) || (!of_p && term == b_term + 1) ->
          term = b_term + 1;
          of_p = false;
          with_b = false;
          if
          :: b = alone; b_term = term
          :: true
          fi
       :: !((of_p && with_b && term == b_term) || (!of_p && term == b_term + 1)) -> b = over
       fi;
       look()
     }
  :: atomic { B_SERVES && b_has < CHANGES -> b_has++; count(); look() }
  od
}

proctype world() {
end:
  do
  :: atomic { now < TIME -> now++; look() }
  :: atomic { !p_dead && !b_dead -> if :: p_dead = true :: b_dead = true fi }
  od
}

init {
  atomic { run primary(); run second(); run world() }
}
