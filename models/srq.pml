/* SPDX-License-Identifier: MIT */
/*
 * The receive FIFO of docs/protocols.md, as an SRQ: the owner posts and polls, initiators take and complete, the
 * limit event, and the repair after a taker's death.
 *
 * Taker 0 may be stopped for ever or killed behind each of its stores. The owner posts every slot again as soon as it
 * comes back, POSTS times in all; the initiators take until all these are used up, or taken by one who ended.
 *
 * No cycles: see cq.pml. LIMIT 0: no limit event. BUG_x breaks the rule named there.
 */
#define N     2
#define SLOTS 2
#ifndef POSTS
#define POSTS 4
#endif
#define TAKERS 2
#ifndef LIMIT
#define LIMIT 1
#endif

/* A word is lap * 64 + taker * 16 + state * 4 + slot; taker is one more than the process. */
#define AVAILABLE 1
#define TAKEN	  2
#define WORD(lap, taker, state, slot) ((lap) * 64 + (taker) * 16 + (state) * 4 + (slot))
#define LAP(p)	 ((p) / N)
#define W_LAP(w) ((w) / 64)
#define W_TAKER(w) (((w) / 16) % 4)
#define W_STATE(w) (((w) / 4) % 4)
#define W_SLOT(w) ((w) % 4)

short word[N];
byte head, tail;
#define LIMIT_FIRED 200
byte limit;
bit attention; /* and doorbell */

/* The receive CQ, of which only this matters here: which slots are referred to. A publication is one step (cq.pml). */
byte refs[SLOTS];

/* The owner's private state, under its locks. */
bit out[SLOTS];	      /* posted and not yet polled */
byte position[SLOTS]; /* where it was posted last */
byte taker_of[SLOTS]; /* known from a word that was posted over */

#define RUNNING 0
#define STOPPED 1
#define DEAD	2
byte life[TAKERS];
bit repaired;

/* What is checked. */
byte holder[SLOTS]; /* who has taken it: 1 + process */
byte posts, completions, armings, events;
byte last; /* who took last: 1 + process */

inline cas(location, old, new, ok)
{
	d_step {
		if
		:: location == old -> location = new; ok = 1
		:: else -> ok = 0
		fi
	}
}

inline may_end()
{
	if
	:: true
	:: id == 0 -> life[0] = STOPPED; goto ended
	:: id == 0 -> life[0] = DEAD; goto ended
	fi
}

proctype Taker(byte id)
{
	byte p, t, l, slot;
	short w;
	bit ok;

	do
	:: true ->
retry:		p = head;
		w = word[p % N];
		if
		:: w == WORD(LAP(p), 0, AVAILABLE, W_SLOT(w)) ->
			slot = W_SLOT(w);
			atomic {
				if
				:: word[p % N] == w ->
					word[p % N] = WORD(LAP(p), id + 1, TAKEN, slot);
					assert(!holder[slot] && out[slot] && !refs[slot]);
					holder[slot] = id + 1;
					last = id + 1;
					may_end()
				:: else -> goto retry
				fi
			};
			atomic { cas(head, p, p + 1, ok); may_end() };

			/* The limit. Read after the head was moved: pairs with the owner, who arms and then looks at head. */
			t = tail;
			l = limit;
			ok = 0;
			if
			:: l && l != LIMIT_FIRED && t - (p + 1) < l ->
#ifdef BUG_LIMIT /* swapped to 0: nobody knows any more when its taker ends here */
				atomic { cas(limit, l, 0, ok); may_end() };
#else
				atomic { cas(limit, l, LIMIT_FIRED, ok); may_end() };
				ok = 1
#endif
#ifndef BUG_LIMIT_RING
			:: l == LIMIT_FIRED -> ok = 1
#endif
			:: else
			fi;
			if
			:: ok -> atomic { attention = 1; may_end() }
			:: else
			fi;

			/* The data are placed, the completion is written into the WQE; then: */
			atomic { assert(holder[slot] == id + 1); holder[slot] = 0; refs[slot]++; may_end() };
			d_step { p = 0; w = 0; t = 0; l = 0; ok = 0; slot = 0 }
		:: W_STATE(w) == 0 || W_LAP(w) + 1 == LAP(p) ->
			/* Empty: receiver not ready. Comes back when there is something, or there won't be. */
end:			word[p % N] != w || head != p
#ifdef BUG_STALE /* a word of a later lap is not told from one of the last lap */
		:: W_STATE(w) != 0 && W_LAP(w) > LAP(p) -> word[p % N] != w || head != p
#endif
		:: else -> atomic { cas(head, p, p + 1, ok); may_end() }
		fi
	od;
ended:	skip;
	d_step { p = 0; w = 0; t = 0; l = 0; ok = 0; slot = 0 }
}

/*
 * Under the queue's lock. What only the owner's threads see is one step with the store of the word; tail follows.
 * A word that is posted over may be the last to say who took a slot that is still out.
 */
bit locked;
inline post(s)
{
	d_step {
		locked = 1;
		old = word[tail % N];
		assert(W_STATE(old) != AVAILABLE);
		if
		:: W_STATE(old) == TAKEN && W_SLOT(old) != s && out[W_SLOT(old)] && position[W_SLOT(old)] + N == tail ->
			taker_of[W_SLOT(old)] = W_TAKER(old)
		:: else
		fi;
		old = 0;
		out[s] = 1; position[s] = tail; taker_of[s] = 0;
		word[tail % N] = WORD(LAP(tail), 0, AVAILABLE, s)
	};
	d_step { tail = tail + 1; locked = 0 }
}

/* Under the CQ's lock: whoever holds it sees both or none. */
inline poll(s)
{
	d_step { refs[s]--; completions++; assert(out[s]); out[s] = 0 }
}

proctype Owner()
{
	short old;

	do
	:: atomic { posts < POSTS && !locked && !out[0] -> posts++; post(0) }
	:: atomic { posts < POSTS && !locked && !out[1] -> posts++; post(1) }
	:: atomic { refs[0] -> poll(0) }
	:: atomic { refs[1] -> poll(1) }
	:: posts == POSTS && refs[0] + refs[1] + out[0] + out[1] == 0 -> break
	od
}

inline deliver()
{
	d_step { events++; assert(events <= armings) }
}

/* The owner looks for itself whether the limit was passed: after arming, and after a death. */
inline check_limit()
{
	h = head;
	t = tail;
	if
	:: t - h < LIMIT ->
		cas(limit, LIMIT, 0, ok);
		if
		:: ok -> deliver()
		:: else
		fi
	:: else
	fi
}

inline take_fired()
{
	cas(limit, LIMIT_FIRED, 0, ok);
	if
	:: ok -> deliver()
	:: else
	fi
}

/* Arms the limit once, at any time; then attends when asked. */
proctype Limiter()
{
	byte h, t;
	bit ok;

	atomic { limit = LIMIT; armings = 1 };
#ifndef BUG_ARM
	check_limit();
#ifndef BUG_ARM_FIRED /* an initiator was first, and may have been stopped before it told */
	take_fired();
#endif
#endif
	h = 0; t = 0; ok = 0;
	do
	:: attention ->
end:		attention = 0;
#ifdef BUG_LIMIT
		deliver()
#else
		take_fired()
#endif
	od
}

/* The owner's helper after the death of taker 0: posts again what it took and did not complete. */
proctype Undertaker()
{
	byte s, by, h, t;
	bit referred, ok;
	short old;

	life[0] == DEAD;
	do
	:: s < SLOTS ->
#ifndef BUG_REPAIR_CQ
		referred = refs[s] > 0; /* its completion is on its way */
#endif
		atomic {
			!locked;
			old = word[position[s] % N];
			by = taker_of[s];
			if
			:: !by && W_STATE(old) == TAKEN && W_SLOT(old) == s -> by = W_TAKER(old)
			:: else
			fi;
			old = 0;
			if
#ifdef BUG_REPAIR_OUT /* it may be back already, and its word still tell of its last time */
			:: by == 1 && !referred -> by = 0; holder[s] = 0; post(s)
#else
			:: by == 1 && !referred && out[s] -> by = 0; holder[s] = 0; post(s)
#endif
			:: else -> by = 0
			fi
		};
		s++
	:: else -> break
	od;
	if
	:: LIMIT > 0 -> check_limit(); take_fired()
	:: else
	fi;
	repaired = 1
}

init
{
	byte i;

	atomic {
		run Owner();
		run Taker(0);
		run Taker(1);
		if
		:: LIMIT > 0 -> run Limiter()
		:: else
		fi;
		run Undertaker()
	}
	timeout ->
	d_step {
		/* All is posted, taken and completed, but for the one that a stopped taker holds. */
		assert(posts == POSTS);
		assert(completions == POSTS || life[0] == STOPPED && completions == POSTS - 1);
		assert(life[0] != DEAD || repaired);
		/* At the end the queue is empty, below the limit; only who was stopped over the last one may not have told. */
		assert(LIMIT == 0 || events == 1 || life[0] == STOPPED && last == 1)
	}
}
