/* SPDX-License-Identifier: MIT */
/*
 * The completion queue of docs/protocols.md: publishers in other processes, the owner's program and helper, arming and
 * firing, one resize. Memory is sequentially consistent here: each line that touches shared memory is one step.
 *
 * Publisher 0 may be stopped for ever or killed at any step. The program sleeps whenever its CQ is empty, so that
 * an event which is lost shows as a completion that nobody consumes.
 *
 * Nothing runs in circles: whoever retries does so because somebody else got on. So any cycle is an error (pan -l).
 *
 * N words a ring; PUBLISHERS that publish COUNT completions each; RESIZES 0 or 1. BUG_x breaks the rule named there.
 */
#ifndef N
#define N 2
#endif
#ifndef PUBLISHERS
#define PUBLISHERS 2
#endif
#ifndef COUNT
#define COUNT 2
#endif
#ifndef RESIZES
#define RESIZES 1
#endif
#ifndef EVENTS
#define EVENTS 1
#endif
#ifndef FATE
#define FATE 1
#endif

/* A word is lap * 16 + reference. Reference 0 is EMPTY, 15 is MOVED, else one more than publisher * COUNT + number. */
#define EMPTY	0
#define MOVED	15
#define LAP(p)	((p) / N)
#define WORD(lap, ref) ((lap) * 16 + (ref))
#define AT(ring, p) word[(ring) * N + (p) % N]
#define REFS	(PUBLISHERS * COUNT)

byte word[2 * N];
byte tail[2];
byte next[2];
byte cq_ring;

#define NONE  0
#define ARMED 1
#define FIRED 2
byte arm;
bit attention, doorbell;
byte tokens; /* of the channel's eventfd */

#define RUNNING 0
#define STOPPED 1
#define DEAD	2
byte life[PUBLISHERS];

/* What is checked; not part of the protocol. */
bit body[REFS + 1];	 /* written */
bit published[REFS + 1];
bit consumed[REFS + 1];
byte queued[2];		 /* published and not consumed, a ring */
bit finished[PUBLISHERS];
byte owed; /* arms less events */

inline cas(location, old, new, ok)
{
	d_step {
		if
		:: location == old -> location = new; ok = 1
		:: else -> ok = 0
		fi
	}
}

/*
 * Publisher 0 may end behind each of its stores. Others can't tell at which of its reads it ended, so that these are
 * all the places there are.
 */
inline may_end()
{
	if
	:: true
	:: FATE && id == 0 -> life[0] = STOPPED; goto ended
	:: FATE && id == 0 -> life[0] = DEAD; goto ended
	fi
}

inline help_tail()
{
	atomic { cas(tail[ring], p, p + 1, ok); may_end() }
}

/* The event of an armed CQ: the truth is arm == FIRED, the rest only wakes the owner's helper. */
inline fire()
{
	a = arm;
	ok = 0;
	if
	:: a == ARMED ->
		atomic {
			a = arm;
			cas(arm, ARMED, FIRED, ok);
			may_end()
		}
	:: else
	fi;
#ifndef BUG_FIRED /* only who fired rings */
	ok = ok || a == FIRED;
#endif
	if
	:: ok -> atomic { attention = 1; may_end() }; atomic { doorbell = 1; may_end() }
	:: else
	fi
}

proctype Publisher(byte id)
{
	byte number = 0, ref, ring, p, w, w2, a;
	bit ok, was_full;

	do
	:: number < COUNT ->
		ref = id * COUNT + number + 1;
#ifndef BUG_BODY
		body[ref] = 1;
#endif
#ifdef BUG_ARM_FIRST
		fire();
#endif
		ring = cq_ring;
retry:		p = tail[ring];
		w = AT(ring, p);
		if
		:: w == WORD(LAP(p), EMPTY) ->
			d_step { w2 = AT(ring, p + 1); was_full = queued[ring] >= N - 1 };
#ifdef BUG_NO_GAP
			w2 = WORD(LAP(p + 1), EMPTY);
#endif
			if
			:: w2 == WORD(LAP(p + 1), EMPTY) ->
				atomic {
					if
#ifdef BUG_CAS /* the word is stored, not compared */
					:: true ->
#else
					:: AT(ring, p) == w ->
#endif
						AT(ring, p) = WORD(LAP(p), ref);
						published[ref] = 1;
						queued[ring]++;
						may_end()
					:: else -> goto retry
					fi
				};
#ifdef BUG_BODY
				body[ref] = 1;
#endif
				help_tail();
#if EVENTS && !defined(BUG_ARM_FIRST)
				fire()
#endif
			:: else ->
				/* Full if p is still free; else the word behind it may be of the same lap. */
#ifndef BUG_GAP
				if
				:: AT(ring, p) != w -> goto retry
				:: else
				fi;
#endif
				assert(was_full) /* overflow, and rightly so */
			fi
		:: w == WORD(LAP(p), MOVED) -> ring = next[ring]; goto retry
		:: else -> /* published, perhaps even consumed */
#ifdef BUG_STALE /* helps only over what is not consumed */
			if
			:: w / 16 == LAP(p) -> help_tail()
			:: else
			fi;
#else
			help_tail();
#endif
			goto retry
		fi;
		d_step { number++; ref = 0; ring = 0; p = 0; w = 0; w2 = 0; a = 0; ok = 0; was_full = 0 }
	:: else -> break
	od;
	finished[id] = 1;
ended:	skip;
	d_step { number = 0; ref = 0; ring = 0; p = 0; w = 0; w2 = 0; a = 0; ok = 0; was_full = 0 }
}

inline deliver()
{
	d_step { assert(owed > 0); owed--; tokens++ }
}

/* The program: arm, poll until empty, sleep. Poll and resize hold the consumer's lock. */
proctype Program()
{
	byte ring = 0, head = 0, w, ref, a, t, resizes = RESIZES;
	bit ok;

	do
	:: true ->
#if EVENTS
		d_step { a = arm; arm = ARMED; owed++ };
		if
		:: a == FIRED -> deliver()
		:: else
		fi;
		a = 0;
#endif
poll:		w = AT(ring, head);
		if
		:: w == WORD(LAP(head), MOVED) -> ring = next[ring]; head = 0; goto poll
		:: w / 16 == LAP(head) && w % 16 != EMPTY && w % 16 != MOVED ->
			d_step {
				ref = w % 16;
				assert(body[ref] && published[ref] && !consumed[ref]);
				/* In order: what the same one published before is consumed. */
				assert(ref % COUNT == 1 % COUNT || consumed[ref - 1] || !published[ref - 1]);
				consumed[ref] = 1;
				ref = 0
			};
			d_step {
#ifdef BUG_LAP
				AT(ring, head) = WORD(LAP(head), EMPTY);
#else
				AT(ring, head) = WORD(LAP(head) + 1, EMPTY);
#endif
				queued[ring]--
			};
			head++;
			goto poll
		:: w % 16 == EMPTY && resizes > 0 ->
resize:			resizes = 0;
			next[cq_ring] = 1;
			t = tail[cq_ring];
			do
			:: w = AT(0, t);
			   if
			   :: w == WORD(LAP(t), EMPTY) ->
				cas(AT(0, t), w, WORD(LAP(t), MOVED), ok);
				if
				:: ok -> break
				:: else
				fi
			   :: else -> cas(tail[0], t, t + 1, ok); t = tail[0]
			   fi
			od;
			cq_ring = 1;
			goto poll
		:: w / 16 == LAP(head) && w % 16 != MOVED && resizes > 0 -> goto resize /* with completions queued */
		:: w % 16 == EMPTY
		fi;
#if EVENTS
end:		tokens > 0 -> tokens--
#else
end:		AT(ring, head) != w
#endif
	od
}

proctype Helper()
{
	bit ok, was;

	do
	:: doorbell ->
end:		doorbell = 0;
		d_step { was = attention; attention = 0 };
		if
		:: was ->
#ifdef BUG_EXCHANGE
			d_step { ok = arm == FIRED; arm = NONE };
#else
			cas(arm, FIRED, NONE, ok);
#endif
			if
			:: ok -> deliver()
			:: else
			fi
		:: else
		fi
	od
}

/* Once publisher 0 is dead, the helper repairs; here as a process of its own. */
proctype Undertaker()
{
	bit ok;

	life[0] == DEAD;
#ifndef BUG_DEATH
	/* Whatever is armed gets its event: the dead one may have published without having looked. */
	cas(arm, ARMED, FIRED, ok);
#endif
	cas(arm, FIRED, NONE, ok);
	if
	:: ok -> deliver()
	:: else
	fi
}

init
{
	byte i;

	atomic {
		run Program();
		if
		:: EVENTS -> run Helper()
		:: else
		fi;
		for (i : 0 .. PUBLISHERS - 1) { run Publisher(i) };
		if
		:: FATE && EVENTS -> run Undertaker()
		:: else
		fi
	}
	timeout ->
	d_step {
		for (i : 0 .. PUBLISHERS - 1) { assert(finished[i] || life[i] != RUNNING) };
		for (i : 1 .. REFS) {
			assert(!published[i] || consumed[i] || life[(i - 1) / COUNT] == STOPPED)
		}
	}
}
