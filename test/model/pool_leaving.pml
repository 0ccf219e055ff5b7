/* The two agents of a pool with replicas when nobody is asked who goes on: there is no arbiter, and what they tell each other
 * decides (agent/pools/leading.cc, agent/pools/pool_keeper.cc). Each may be drained at any moment: the primary lets its backup
 * go then, or leaves to it. An agent that has served and leaves gives the part to a third one, and forgets it. A backup that
 * hears nothing may give its copy up.
 *
 * Proved for every interleaving: at most one agent serves at a time, and there is always one that has the part. Messages and
 * answers are lost with the connection that they are on, at any moment. A primary that connects again is told what the other
 * agent is.
 *
 * Each macro puts one known mistake back, and spin must find an error then:
 *   LEAVE_AFTER_LETTING_GO  a primary leaves to a backup that it has told to go, before it knows that this was heard
 *   LOSE_WHO_FORGETS        a primary goes on alone because its backup has forgotten the pool
 *   GIVE_UP_WHILE_TAKING    a backup gives its copy up though it was told to take over
 *   LEAVE_WITHOUT_ANSWER    a primary that leaves ends before it knows that its backup takes over
 */

#ifndef BREAKS
#define BREAKS 3
#endif

mtype = { paired, leaving, alone, backup, gone, over };
mtype p = paired, b = backup;
bool third_serves;

bool up = true;
byte breaks;
mtype = { go, take_over };
chan to_b = [1] of { mtype };
chan to_p = [1] of { mtype }; /* what was heard */

bool p_drained, b_drained;
bool let_go, lets_go;            /* the backup was told to go, on this connection or on an earlier one; on this one */
bool asked_over, ever_asked_over;
bool left;                       /* it has answered that, or has forgotten after it was told */
bool takes_over;                 /* it has answered that it takes over */
bool b_left;                     /* the backup was told that its primary has left */

#define P_SERVES (p == paired || p == alone)
#define B_SERVES (b == alone)

inline look() {
  assert(P_SERVES + B_SERVES + third_serves <= 1);
  /* a backup that was told to take over will serve */
  assert(P_SERVES || B_SERVES || third_serves || p == leaving || (b == backup && b_left))
}

proctype primary() {
end:
  do
  :: atomic { !p_drained -> p_drained = true }
#ifdef LEAVE_AFTER_LETTING_GO
  :: atomic { p == paired && up && p_drained && !lets_go -> p = leaving; look() }
#else
  :: atomic { p == paired && up && p_drained && !let_go -> p = leaving; look() }
#endif
  :: atomic { p == paired && up && (b_drained || let_go) && !lets_go && nfull(to_b) -> to_b!go; let_go = true; lets_go = true }
  :: atomic { p == leaving && up && !asked_over && nfull(to_b) ->
       to_b!take_over;
       asked_over = true;
       ever_asked_over = true;
#ifdef LEAVE_WITHOUT_ANSWER
       p = over;
       look()
#endif
     }
  :: atomic { up && to_p?[go] -> to_p?go; left = true }
  :: atomic { up && to_p?[take_over] -> to_p?take_over; takes_over = true }
  :: atomic { (p == paired || p == leaving) && left -> p = alone; look() }
  :: atomic { p == leaving && takes_over -> p = over; look() }
  :: atomic { (p == paired || p == leaving) && !up -> /* it connects again, and is told what the other one is */
       if
       :: b == backup && !b_left -> up = true; lets_go = false; asked_over = false
       :: b == alone || b_left && b == backup -> if :: ever_asked_over -> takes_over = true :: else fi
#ifdef LOSE_WHO_FORGETS
       :: b == gone || b == over -> left = true
#else
       :: b == gone || b == over -> if :: let_go -> left = true :: else fi
#endif
       :: true /* the answer is lost */
       fi
     }
  od
}

proctype second() {
end:
  do
  :: atomic { !b_drained -> b_drained = true }
  :: atomic { up && to_b?[go] && nfull(to_p) ->
       to_b?go;
       if
       :: b == backup && !b_left -> b = over; to_p!go
       :: b == over -> to_p!go
       :: else
       fi;
       look()
     }
  :: atomic { up && to_b?[take_over] && nfull(to_p) ->
       to_b?take_over;
       if
       :: b == backup -> b_left = true; to_p!take_over
       :: b == alone -> to_p!take_over
       :: else
       fi;
       look()
     }
  :: atomic { b == backup && b_left -> b = alone; look() }
  :: atomic { b == alone && b_drained -> third_serves = true; b = over; look() }
#ifdef GIVE_UP_WHILE_TAKING
  :: atomic { b == backup -> b = over; look() }
#else
  :: atomic { b == backup && !b_left -> b = over; look() }
#endif
  :: atomic { b == over -> b = gone }
  od
}

proctype world() {
end:
  do
  :: atomic { up && breaks < BREAKS ->
       up = false;
       breaks++;
       if :: to_b?[go] -> to_b?go :: to_b?[take_over] -> to_b?take_over :: else fi;
       if :: to_p?[go] -> to_p?go :: to_p?[take_over] -> to_p?take_over :: else fi
     }
  od
}

init {
  atomic { run primary(); run second(); run world() }
}
