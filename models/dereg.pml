/* SPDX-License-Identifier: MIT */
/*
 * Taking back what others may be using: a memory region is deregistered while initiators visit. The same grace serves
 * QPs, SRQs, CQs and old rings (docs/protocols.md, "Visits").
 *
 * Memory is as on x86: each process has a store buffer, a store is seen by others some time later, its own loads look
 * past its own buffer. What is called seq_cst here empties the buffer before it goes on. So the model shows where that
 * is needed, and that it is enough. (arm64 reorders more: there seq_cst orders the same pairs, and release is what
 * keeps the last access before the end of the visit: BUG_RELEASE.)
 *
 * Visitor 0 may be stopped, for a time or for ever, or killed at any step. The owner waits for those who are attached and name the
 * region; one that is stopped is evicted, unless the kernel may be copying for it.
 * The entry of the region is used again after deregistration, under another key, for other memory.
 */
#define VISITORS 2
#define VISITS	 2 /* of each visitor */

/* Shared: seg_mr, of which an address stands for all fields; the visit words, 0 when free, else a count. */
byte mr_key;	 /* 0: invalid */
byte mr_address;
byte visit[VISITORS];
bit touches[VISITORS]; /* the visit names the region */
byte evicted[VISITORS], copying[VISITORS];

/* Store buffers: the owner's of one store to mr_key; the visitors' of one store to what is theirs. */
#define WORD	0
#define TOUCHES 1
#define COPYING 2
byte into[VISITORS];
bit owner_buffered;
byte owner_store;
bit buffered[VISITORS];
byte stored[VISITORS];

bit listed[VISITORS];	/* in the owner's list of visitors */
bit list_lock;
bit attached[VISITORS]; /* has the owner's segment */

#define RUNNING 0
#define STOPPED 1
#define DEAD	2
byte life[VISITORS];

/* What is checked. */
bit registered[3];  /* memory by address: the program has it registered */
bit waiting;	    /* a deregistration is under way */
bit answered;

/* What is in the buffers reaches memory, at any time. A process that was killed still has its stores drained. */
proctype Drain(byte id)
{
	do
	:: atomic {
		buffered[id] ->
		if
		:: into[id] == WORD -> visit[id] = stored[id]
		:: into[id] == TOUCHES -> touches[id] = stored[id]
		:: into[id] == COPYING -> copying[id] = stored[id]
		fi;
		buffered[id] = 0; stored[id] = 0; into[id] = WORD
	   }
	od
}

proctype DrainOwner()
{
	do
	:: atomic { owner_buffered -> mr_key = owner_store; owner_buffered = 0; owner_store = 0 }
	od
}

/* The owner's helper: lists a visitor, then answers with the segment. */
proctype Attach(byte id)
{
#ifdef BUG_ATTACH
	attached[id] = 1;
	atomic { !list_lock -> listed[id] = 1 }
#else
	atomic { !list_lock -> listed[id] = 1 };
	attached[id] = 1
#endif
}

/* What a process leaves behind is known by its stores alone; so it ends, or is stopped for a time, behind these. */
inline may_end()
{
	if
	:: true
	:: id == 0 -> life[0] = STOPPED; /* and perhaps continued */
		if
		:: life[0] = RUNNING
		:: goto ended
		fi
	:: id == 0 -> life[0] = DEAD; goto ended
	fi
}

inline put(what, value)
{
	atomic { !buffered[id] -> buffered[id] = 1; into[id] = what; stored[id] = value }
}

inline leave()
{
	put(WORD, 0);
	may_end()
}

/* An access: before the region is given back, or to pages that nobody has mapped any more. */
inline access()
{
	atomic {
		assert(registered[address] || (!by_kernel && evicted[id] == count));
		lost = lost || !registered[address]
	}
}

proctype Visitor(byte id)
{
	byte count = 0, key, address;
	bit by_kernel, lost;

	attached[id];
	do
	:: count < VISITS ->
		count++;
		/* Enter: names nothing, claim, and a full barrier before the first look at the target. */
		put(TOUCHES, 0);
		put(WORD, count);
		may_end();
#ifndef BUG_ENTER
		!buffered[id];
#endif
#ifdef BUG_TOUCH /* names the region after the look */
		key = mr_key;
		put(TOUCHES, 1);
		!buffered[id];
#else
		put(TOUCHES, 1);
#ifndef BUG_ENTER
		!buffered[id];
#endif
		key = mr_key;
#endif
		if
		:: key ->
			address = mr_address;
			assert(address == key); /* else it is the address of another life */
			may_end();
			if
			:: by_kernel = 0
			:: by_kernel = 1 ->
				put(COPYING, count);
				!buffered[id];
#ifndef BUG_EVICT
				if
				:: evicted[id] == count -> leave(); goto done
				:: else
				fi
#endif
			fi;
			access(); /* the first */
			may_end();
#ifdef BUG_RELEASE
			leave();
			access()
#else
			access(); /* the last one */
			/* What completes has reached the region. */
#ifdef BUG_COMPLETE
			assert(!lost);
#else
			assert(!lost || evicted[id] == count);
#endif
			leave()
#endif
		:: else -> leave()
		fi;
done:		skip;
		d_step { key = 0; address = 0; by_kernel = 0; lost = 0 }
	:: else -> break
	od;
ended:	skip;
	d_step { key = 0; address = 0; by_kernel = 0; lost = 0 }
}

inline store_key(value)
{
	atomic { !owner_buffered -> owner_buffered = 1; owner_store = value }
}

inline wait_for(i)
{
	seen = 0;
	if
	:: listed[i] -> seen = visit[i]; /* before its names: they may be the next visit's, and then this one is over */
		if
		:: touches[i]
		:: else -> seen = 0
		fi
	:: else
	fi;
	if
	:: seen ->
		if
		:: visit[i] != seen
#ifndef BUG_DEAD
		/* Its life lock is free: its last access is over. */
		:: life[i] == DEAD
#endif
		/* The time is up: evicted, unless the kernel may be copying for it. */
		:: life[i] == STOPPED ->
			evicted[i] = seen;
			if
			:: copying[i] == seen && visit[i] == seen -> over = 0
			:: else
			fi
		fi
	:: else
	fi
}

proctype Owner()
{
	byte seen;
	bit over;

	registered[1] = 1;
	mr_address = 1;
	mr_key = 1;

	/* Deregister: unreachable, full barrier, wait. */
	store_key(0);
#ifndef BUG_OWNER
	!owner_buffered;
#endif
#ifdef BUG_FIELDS /* writes the entry's next life before the wait is over */
	mr_address = 2;
#endif
	over = 1;
	waiting = 1;
	list_lock = 1;
	wait_for(0);
	wait_for(1);
	list_lock = 0;
	waiting = 0;
#ifdef BUG_TIMEOUT
	over = 1;
#endif
	if
	:: over ->
		registered[1] = 0;
		/* The next life of the entry. */
		registered[2] = 1;
		mr_address = 2;
		store_key(2)
	:: else -> store_key(1) /* EBUSY: it remains registered */
	fi;
	answered = 1
}

init
{
	atomic {
		run Drain(0);
		run Drain(1);
		run DrainOwner();
		run Owner();
		run Attach(0);
		run Attach(1);
		run Visitor(0);
		run Visitor(1)
	}
	timeout -> assert(answered && (registered[1] || registered[2]))
}
