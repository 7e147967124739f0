/* SPDX-License-Identifier: MIT */
/*
 * The switch of a lab: a process that reads the frames that hosts send, each from its host's TAP device, and writes them
 * to those that they are for, with the troubles of the links in between.
 *
 * A frame's way: it may be lost, or doubled, or damaged; held back, until later ones have overtaken it; it waits its turn
 * for the rate towards its host, or finds that queue full; then it travels for the delay. What meets none of this is
 * written at once. The devices offer no offloads: every frame is one that could stand on a wire, with its checksums, so
 * that what is damaged stays so.
 *
 * What finds neighbours and members of groups (ARP, IGMP, IPv6's neighbour and listener discovery) is spared: its timeouts of a second would hide what
 * the trouble does to everything else, and what hosts say of their own accord would spoil the repeating by seed.
 */
#include <errno.h>
#include <netinet/icmp6.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <netinet/ip6.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/lab.h"
#include "tools/tools.h"

enum {
	MAX_FRAME = 65536 + 64,
	BATCH = 32, /* frames of one host before the others' turn */
	MAX_OVERTAKERS = 8,
	MAX_HELD = 64, /* frames of one direction */
};

/* An ICMPv6 type (RFC 3810). */
#define MLD2_LISTENER_REPORT 143

#define HOLD_NS	 5000000ULL
#define MAX_KEPT (256UL << 20) /* bytes of frames that travel or wait */

/* A frame that is kept for later. */
struct frame {
	uint64_t due;
	uint64_t order; /* of keeping; decides between equal times */
	unsigned from, to;
	unsigned overtakers; /* how many frames it still waits for; 0: it travels */
	bool gone; /* it was overtaken and has gone on: the heap's reference is the last */
	size_t size;
	unsigned char data[];
};

/* One direction between two hosts. */
struct flow {
	struct dice dice;
	uint64_t arrival; /* of the last frame: jitter does not reorder */
	unsigned held;
	struct frame *frames[MAX_HELD];
};

struct lab_switch {
	const struct lab *lab;
	const struct trouble *trouble;
	struct switch_counts *counts;
	struct flow *flows; /* from * count + to, hosts from 0 */
	uint64_t *free_at;  /* per host: when the rate takes the next frame */
	struct frame **heap;
	size_t heap_used, heap_size;
	size_t kept; /* bytes */
	uint64_t order;
	uint64_t now;
};

static uint64_t clock_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static bool before(const struct frame *a, const struct frame *b)
{
	return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static bool heap_add(struct lab_switch *sw, struct frame *frame)
{
	size_t at = sw->heap_used;

	if (at == sw->heap_size) {
		size_t size = sw->heap_size ? sw->heap_size * 2 : 1024;
		struct frame **heap = reallocarray(sw->heap, size, sizeof(*heap));

		if (!heap)
			return false;
		sw->heap = heap;
		sw->heap_size = size;
	}
	sw->heap_used++;
	for (; at && before(frame, sw->heap[(at - 1) / 2]); at = (at - 1) / 2)
		sw->heap[at] = sw->heap[(at - 1) / 2];
	sw->heap[at] = frame;
	return true;
}

static struct frame *heap_take(struct lab_switch *sw)
{
	struct frame *first = sw->heap[0], *last = sw->heap[--sw->heap_used];
	size_t at = 0, child;

	while ((child = 2 * at + 1) < sw->heap_used) {
		if (child + 1 < sw->heap_used && before(sw->heap[child + 1], sw->heap[child]))
			child++;
		if (!before(sw->heap[child], last))
			break;
		sw->heap[at] = sw->heap[child];
		at = child;
	}
	sw->heap[at] = last;
	return first;
}

/* NULL, and counted, if there is no memory for it. */
static struct frame *keep(struct lab_switch *sw, unsigned from, unsigned to,
			  const unsigned char *data, size_t size, uint64_t due, unsigned overtakers)
{
	struct frame *frame = sw->kept + size > MAX_KEPT ? NULL : malloc(sizeof(*frame) + size);

	if (frame) {
		*frame = (struct frame){ .due = due,
					 .order = sw->order++,
					 .from = from,
					 .to = to,
					 .overtakers = overtakers,
					 .size = size };
		memcpy(frame->data, data, size);
		if (heap_add(sw, frame)) {
			sw->kept += size;
			return frame;
		}
	}
	free(frame);
	sw->counts->unkept++;
	return NULL;
}

static void deliver(struct lab_switch *sw, unsigned to, const unsigned char *data, size_t size)
{
	/* What a host does not take (its interface is down) is lost, as on a wire. */
	if (write(sw->lab->hosts[to].tap, data, size) == (ssize_t)size)
		sw->counts->carried++;
}

/* Through the queue, and along the wire. */
static void carry(struct lab_switch *sw, unsigned from, unsigned to, const unsigned char *data,
		  size_t size)
{
	const struct trouble *trouble = sw->trouble;
	struct flow *flow = &sw->flows[from * sw->lab->count + to];
	uint64_t due = sw->now;

	if (trouble->rate) {
		uint64_t start = sw->free_at[to] > sw->now ? sw->free_at[to] : sw->now;
		double waiting = (double)(start - sw->now) * (double)trouble->rate / 8e9;

		if (waiting + (double)size > (double)trouble->queue) {
			sw->counts->overflowed++;
			return;
		}
		due = start + (uint64_t)((double)size * 8e9 / (double)trouble->rate);
		sw->free_at[to] = due;
	}
	due += trouble->delay - trouble->jitter;
	if (trouble->jitter)
		due += dice_below(&flow->dice, 2 * trouble->jitter + 1);
	if (due < flow->arrival)
		due = flow->arrival;
	flow->arrival = due;

	if (due > sw->now)
		keep(sw, from, to, data, size, due, 0);
	else
		deliver(sw, to, data, size);
}

/* One has gone by: those that have waited for it go on, in the order in which they came. */
static void overtake(struct lab_switch *sw, struct flow *flow)
{
	unsigned left = 0;

	for (unsigned i = 0; i < flow->held; i++) {
		struct frame *frame = flow->frames[i];

		if (--frame->overtakers) {
			flow->frames[left++] = frame;
			continue;
		}
		carry(sw, frame->from, frame->to, frame->data, frame->size);
		frame->gone = true;
	}
	flow->held = left;
}

static void hold(struct lab_switch *sw, struct flow *flow, unsigned from, unsigned to,
		 const unsigned char *data, size_t size)
{
	unsigned overtakers = 1 + (unsigned)dice_below(&flow->dice, MAX_OVERTAKERS);
	struct frame *frame;

	if (flow->held == MAX_HELD) {
		carry(sw, from, to, data, size);
		return;
	}
	frame = keep(sw, from, to, data, size, sw->now + HOLD_NS, overtakers);
	if (frame) {
		flow->frames[flow->held++] = frame;
		sw->counts->reordered++;
	}
}

/* No more frames have come to overtake it. */
static void let_go(struct lab_switch *sw, struct frame *frame)
{
	struct flow *flow = &sw->flows[frame->from * sw->lab->count + frame->to];

	for (unsigned i = 0; i < flow->held; i++) {
		if (flow->frames[i] != frame)
			continue;
		flow->held--;
		memmove(&flow->frames[i], &flow->frames[i + 1],
			(flow->held - i) * sizeof(flow->frames[0]));
		break;
	}
	carry(sw, frame->from, frame->to, frame->data, frame->size);
}

static bool is_discovery(const unsigned char *data, size_t size)
{
	const struct ether_header *ether = (const void *)data;
	const unsigned char *ip = data + sizeof(*ether), *icmp = ip + sizeof(struct ip6_hdr);
	uint16_t type = ntohs(ether->ether_type);
	uint8_t next;

	if (type == ETHERTYPE_ARP)
		return true;
	if (type == ETHERTYPE_IP)
		return size > sizeof(*ether) + 9 && ip[9] == IPPROTO_IGMP;
	if (type != ETHERTYPE_IPV6 || size < sizeof(*ether) + sizeof(struct ip6_hdr) + 9)
		return false;
	next = ip[6];
	/* Listener reports carry a router alert: a hop-by-hop header of 8 bytes. */
	if (next == IPPROTO_HOPOPTS) {
		next = icmp[0];
		icmp += 8;
	}
	return next == IPPROTO_ICMPV6 && ((*icmp >= MLD_LISTENER_QUERY && *icmp <= ND_REDIRECT) ||
					  *icmp == MLD2_LISTENER_REPORT);
}

static void send_over(struct lab_switch *sw, unsigned from, unsigned to, const unsigned char *data,
		      size_t size)
{
	const struct trouble *trouble = sw->trouble;
	struct flow *flow = &sw->flows[from * sw->lab->count + to];
	static unsigned char damaged[MAX_FRAME];
	int copies = 1;

	if (is_discovery(data, size)) {
		deliver(sw, to, data, size);
		return;
	}
	if (dice_chance(&flow->dice, trouble->loss)) {
		sw->counts->lost++;
		return;
	}
	if (dice_chance(&flow->dice, trouble->duplicate)) {
		sw->counts->duplicated++;
		copies = 2;
	}
	for (; copies; copies--) {
		const unsigned char *copy = data;

		if (dice_chance(&flow->dice, trouble->corrupt)) {
			memcpy(damaged, data, size);
			dice_corrupt(&flow->dice, damaged + ETHER_HDR_LEN, size - ETHER_HDR_LEN);
			sw->counts->corrupted++;
			copy = damaged;
		}
		if (dice_chance(&flow->dice, trouble->reorder)) {
			hold(sw, flow, from, to, copy, size);
			continue;
		}
		carry(sw, from, to, copy, size);
		overtake(sw, flow);
	}
}

static void forward(struct lab_switch *sw, unsigned from, const unsigned char *data, size_t size)
{
	unsigned number = network_number_of(data);

	/* Addresses that are no host's own are flooded, as those of groups are. */
	if (number && number <= sw->lab->count) {
		if (number - 1 != from)
			send_over(sw, from, number - 1, data, size);
		return;
	}
	for (unsigned to = 0; to < sw->lab->count; to++)
		if (to != from)
			send_over(sw, from, to, data, size);
}

static void read_host(struct lab_switch *sw, unsigned from)
{
	static unsigned char data[MAX_FRAME];

	for (int i = 0; i < BATCH; i++) {
		ssize_t size = read(sw->lab->hosts[from].tap, data, sizeof(data));

		if (size < ETHER_HDR_LEN)
			return;
		forward(sw, from, data, (size_t)size);
	}
}

static void run_due(struct lab_switch *sw)
{
	while (sw->heap_used && sw->heap[0]->due <= sw->now) {
		struct frame *frame = heap_take(sw);

		if (frame->overtakers)
			let_go(sw, frame);
		else if (!frame->gone)
			deliver(sw, frame->to, frame->data, frame->size);
		sw->kept -= frame->size;
		free(frame);
	}
}

static bool set_up(struct lab_switch *sw, int epoll)
{
	unsigned count = sw->lab->count;

	sw->flows = calloc((size_t)count * count, sizeof(*sw->flows));
	sw->free_at = calloc(count, sizeof(*sw->free_at));
	if (!sw->flows || !sw->free_at)
		return false;
	for (unsigned from = 0; from < count; from++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = from };

		if (epoll_ctl(epoll, EPOLL_CTL_ADD, sw->lab->hosts[from].tap, &event))
			return false;
		for (unsigned to = 0; to < count; to++)
			dice_seed(&sw->flows[from * count + to].dice, sw->trouble->seed, from, to);
	}
	return true;
}

void switch_run(const struct lab *lab, struct switch_counts *counts)
{
	struct lab_switch sw = { .lab = lab, .trouble = &lab->trouble, .counts = counts };
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event events[LAB_MAX_HOSTS];

	/* Waits end when they are to, and not up to 50 us later. */
	prctl(PR_SET_TIMERSLACK, 1);
	prctl(PR_SET_NAME, "lab switch");
	if (epoll < 0 || !set_up(&sw, epoll)) {
		complain(lab->name, "the switch cannot start: %s", strerror(errno));
		_exit(LAB_FAILED);
	}
	for (;;) {
		struct timespec timeout = { 0 };
		int ready;

		if (sw.heap_used && sw.heap[0]->due > sw.now) {
			timeout.tv_sec = (time_t)((sw.heap[0]->due - sw.now) / 1000000000);
			timeout.tv_nsec = (long)((sw.heap[0]->due - sw.now) % 1000000000);
		}
		ready = epoll_pwait2(epoll, events, LAB_MAX_HOSTS, sw.heap_used ? &timeout : NULL,
				     NULL);
		if (ready < 0 && errno != EINTR) {
			complain(lab->name, "the switch cannot wait: %s", strerror(errno));
			_exit(LAB_FAILED);
		}
		sw.now = clock_ns();
		run_due(&sw);
		for (int i = 0; i < ready; i++)
			read_host(&sw, events[i].data.u32);
		sw.now = clock_ns();
		run_due(&sw);
	}
}
