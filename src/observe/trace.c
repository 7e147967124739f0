/* SPDX-License-Identifier: MIT */
/* The ring of a trace, as its writers and its reader use it. See trace.h; what an interruption leaves: docs/protocols.md. */
#include "observe/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "nic/nic.h"
#include "nic/prefetch.h"
#include "nic/segment.h"
#include "observe/pass.h"

#define SLOTS (1u << 21) /* 64 MiB */

#define LAP_SHIFT 49
#define LAPS	  0x7fffu
#define MORE	  (1ull << 48)
#define LOW_MASK  (MORE - 1)
#define WORDS	  3 /* of a slot, behind the stamp */
#define BODY	  24u

/* Writers ask for a line so many slots ahead. */
#define AHEAD 8

/* ms: how long a process waits for its observer, who may have no CPU; ns: how long a slot that was claimed is waited for. */
#define PATIENCE      10000
#define SLOT_PATIENCE 1000000000ull

/* Of a conversion: ns, from the first look at the clock to the second. */
#define MEASURED 20000000

/* Ticks by which a processor's counter may be before another's, generously. */
#define SLACK (1ull << 32)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a slot is written as words");
_Static_assert(sizeof(struct trace_event) == 32 && SLOTS > 4 * TRACE_MOST_SLOTS, "");
_Static_assert((TRACE_SNAP + sizeof(struct trace_message)) / BODY + 2 <= TRACE_MOST_SLOTS, "");

struct trace_now trace_now;

/* ---- Time ---- */

static inline uint64_t processor_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return 0;
#endif
}

static inline uint64_t ticks_now(uint32_t clock)
{
	return clock == TRACE_CLOCK_PROCESSOR ? processor_ticks() : nic_now();
}

/* The processor's counter is the same everywhere, and never stands still, where the kernel trusts it. */
static enum trace_clock choose_clock(void)
{
#if defined(__x86_64__)
	static const char trusted[] = "tsc\n";
	int allowed;

	if (prctl(PR_GET_TSC, &allowed) || allowed != PR_TSC_ENABLE)
		return TRACE_CLOCK_MONOTONIC;
#elif defined(__aarch64__)
	static const char trusted[] = "arch_sys_counter\n";
#else
	static const char trusted[] = "";
#endif
	char source[32] = "";
	int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return TRACE_CLOCK_MONOTONIC;
	if (read(fd, source, sizeof(source) - 1) < 0)
		*source = '\0';
	close(fd);
	return *trusted && !strcmp(source, trusted) ? TRACE_CLOCK_PROCESSOR : TRACE_CLOCK_MONOTONIC;
}

/* From ticks of a clock to CLOCK_REALTIME: one line, for all that this observer reads. */
static struct line {
	uint64_t ticks, time;
	uint64_t rate; /* ns a tick, times 2^32 */
} lines[2];

/* Both clocks at one moment: of several looks the quickest. */
static void look(enum trace_clock clock, clockid_t other, uint64_t *ticks, uint64_t *time)
{
	uint64_t best = UINT64_MAX;

	*ticks = *time = 0;
	for (int i = 0; i < 32; i++) {
		struct timespec now;
		uint64_t before = ticks_now(clock), took;

		clock_gettime(other, &now);
		took = ticks_now(clock) - before;
		if (took >= best)
			continue;
		best = took;
		*ticks = before + took / 2;
		*time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	}
}

static void measure(void)
{
	struct line *line = &lines[TRACE_CLOCK_PROCESSOR];
	uint64_t ticks, time, ticks_then, time_then;

	lines[TRACE_CLOCK_MONOTONIC].rate = 1ull << 32;
	look(TRACE_CLOCK_MONOTONIC, CLOCK_REALTIME, &lines[TRACE_CLOCK_MONOTONIC].ticks, &lines[TRACE_CLOCK_MONOTONIC].time);
	if (choose_clock() != TRACE_CLOCK_PROCESSOR)
		return;
	look(TRACE_CLOCK_PROCESSOR, CLOCK_REALTIME, &line->ticks, &line->time);
	look(TRACE_CLOCK_PROCESSOR, CLOCK_MONOTONIC, &ticks, &time);
	nanosleep(&(struct timespec){ .tv_nsec = MEASURED }, NULL);
	look(TRACE_CLOCK_PROCESSOR, CLOCK_MONOTONIC, &ticks_then, &time_then);
	if (ticks_then != ticks)
		line->rate = (uint64_t)(((unsigned __int128)(time_then - time) << 32) / (ticks_then - ticks));
}

static void know_clocks(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, measure);
}

static uint64_t time_of(enum trace_clock clock, uint64_t ticks)
{
	const struct line *line = &lines[clock];

	return line->time + (uint64_t)(((__int128)(int64_t)(ticks - line->ticks) * (__int128)line->rate) >> 32);
}

/* ---- Making ---- */

static size_t ring_bytes(uint32_t slots)
{
	return sizeof(struct trace_ring) + (size_t)slots * sizeof(struct trace_event);
}

int trace_make(struct trace_ring **made, int *fd, uint64_t instance)
{
	const size_t bytes = ring_bytes(SLOTS);
	struct trace_ring *ring = MAP_FAILED;
	int error = EFBIG;

	if (!segment_file_fits(bytes))
		return error;
	*fd = segment_memfd("uroce-trace");
	if (*fd < 0)
		return errno;
	if (ftruncate(*fd, (off_t)bytes) || fallocate(*fd, 0, 0, (off_t)bytes) ||
	    fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
		error = errno == ENOSPC ? ENOMEM : errno;
		goto refused;
	}
	ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, *fd, 0);
	if (ring == MAP_FAILED) {
		error = errno;
		goto refused;
	}
	segment_keep_apart(ring, bytes);
	ring->magic = TRACE_MAGIC;
	ring->version = TRACE_VERSION;
	ring->slots = SLOTS;
	ring->clock = choose_clock();
	ring->start_ticks = ticks_now(ring->clock);
	ring->start = nic_wall_clock();
	ring->pid = (uint32_t)getpid();
	ring->instance = instance;
	prctl(PR_GET_NAME, ring->comm);
	*made = ring;
	return 0;

refused:
	descriptor_close(*fd);
	*fd = -1;
	return error;
}

void trace_unmake(struct trace_ring *ring, int fd)
{
	munmap(ring, ring_bytes(SLOTS)); /* which does nothing in a forked child: it is not there */
	descriptor_close(fd);
}

void trace_renew(struct trace_ring *ring)
{
	ring->first = atomic_load(&ring->next);
}

void trace_begin(struct trace_ring *ring, uint32_t snap)
{
	atomic_store(&ring->snap, snap < TRACE_SNAP ? snap : TRACE_SNAP);
	atomic_store_explicit(&trace_now.ring, ring, memory_order_release);
}

void trace_end(void)
{
	atomic_store(&trace_now.ring, NULL);
}

/* ---- Writing ---- */

static inline uint32_t lap_of(const struct trace_ring *ring, uint64_t position)
{
	return (uint32_t)(position >> __builtin_ctz(ring->slots)) % LAPS + 1;
}

static inline _Atomic uint64_t *words_of(struct trace_event *slot)
{
	return (_Atomic uint64_t *)slot + 1;
}

/* Somebody wrote here a lap or more after us: we have stood still since we claimed the slot, and it is not ours any more. */
static __attribute__((cold, noinline)) bool is_lost(uint64_t old, uint32_t lap)
{
	uint32_t ahead = ((uint32_t)(old >> LAP_SHIFT) + LAPS - lap) % LAPS;

	return ahead && ahead < LAPS / 2;
}

/* low: of the stamp, with MORE. */
static inline void put_slot(struct trace_ring *ring, uint64_t position, uint64_t low, const uint64_t words[WORDS])
{
	struct trace_event *slot = &ring->events[position & (ring->slots - 1)];
	_Atomic uint64_t *to = words_of(slot);
	uint32_t lap = lap_of(ring, position);
	uint64_t old = atomic_load_explicit(&slot->stamp, memory_order_relaxed);

	if (old && old >> LAP_SHIFT != lap - 1 && is_lost(old, lap))
		return;
	atomic_store_explicit(&slot->stamp, 0, memory_order_relaxed);
	/* Pairs with the reader's fence: who has read one of the words that follow finds another stamp than before. */
	atomic_thread_fence(memory_order_release);
	for (int i = 0; i < WORDS; i++)
		atomic_store_explicit(&to[i], words[i], memory_order_relaxed);
	atomic_store_explicit(&slot->stamp, (uint64_t)lap << LAP_SHIFT | low, memory_order_release);
}

struct trace_claim trace_claim(unsigned slots)
{
	struct trace_ring *ring = atomic_load_explicit(&trace_now.ring, memory_order_acquire);
	struct trace_claim claim = { .ring = ring };

	if (!ring)
		return claim;
	claim.ticks = ticks_now(ring->clock) - ring->start_ticks;
	claim.position = atomic_fetch_add_explicit(&ring->next, slots, memory_order_relaxed);
	prefetch_to_write(&ring->events[(claim.position + AHEAD) & (ring->slots - 1)]);
	return claim;
}

static inline void put_head(struct trace_claim *claim, uint64_t position, enum trace_kind kind, uint8_t opcode, uint8_t flags,
			    unsigned more, uint32_t qpn, uint32_t index, uint32_t length, uint64_t arg)
{
	const uint64_t words[WORDS] = { (uint64_t)qpn << 32 | more << 24 | (uint32_t)flags << 16 | (uint32_t)opcode << 8 | kind,
					(uint64_t)length << 32 | index, arg };

	put_slot(claim->ring, position, claim->ticks & LOW_MASK, words);
}

void trace_put(struct trace_claim *claim, enum trace_kind kind, uint8_t opcode, uint8_t flags, uint32_t qpn, uint32_t index,
	       uint32_t length, uint64_t arg)
{
	if (claim->ring)
		put_head(claim, claim->position++, kind, opcode, flags, 0, qpn, index, length, arg);
}

void trace_write(enum trace_kind kind, uint8_t opcode, uint8_t flags, uint32_t qpn, uint32_t index, uint32_t length, uint64_t arg)
{
	struct trace_claim claim = trace_claim(1);

	trace_put(&claim, kind, opcode, flags, qpn, index, length, arg);
}

/* Bytes [at, at + BODY) of what follows. */
static void cut(uint64_t words[WORDS], size_t at, const uint8_t *head, size_t head_bytes, const uint8_t *body, size_t body_bytes)
{
	uint8_t *to = (uint8_t *)words;
	size_t room = BODY, part;

	memset(words, 0, BODY);
	if (at < head_bytes) {
		part = head_bytes - at < room ? head_bytes - at : room;
		memcpy(to, head + at, part);
		to += part;
		at += part;
		room -= part;
	}
	at -= head_bytes;
	if (room && at < body_bytes)
		memcpy(to, body + at, body_bytes - at < room ? body_bytes - at : room);
}

void trace_put_more(struct trace_claim *claim, enum trace_kind kind, uint8_t opcode, uint8_t flags, uint32_t qpn, uint32_t index,
		    uint32_t length, uint64_t arg, const void *head, size_t head_bytes, const void *body, size_t body_bytes)
{
	unsigned more = trace_slots(head_bytes + body_bytes) - 1;
	uint64_t position = claim->position, words[WORDS];

	if (!claim->ring)
		return;
	claim->position += more + 1;
	/* The first one last: who sees it finds the rest. */
	for (unsigned i = 0; i < more; i++) {
		cut(words, (size_t)i * BODY, head, head_bytes, body, body_bytes);
		put_slot(claim->ring, position + 1 + i, MORE | (more - 1 - i), words);
	}
	put_head(claim, position, kind, opcode, flags, more, qpn, index, length, arg);
}

uint32_t trace_kept(uint64_t length, uint32_t least)
{
	struct trace_ring *ring = atomic_load_explicit(&trace_now.ring, memory_order_acquire);
	uint32_t snap = ring ? atomic_load_explicit(&ring->snap, memory_order_relaxed) : 0;

	snap = snap + least < TRACE_SNAP ? snap + least : TRACE_SNAP;
	return length < snap ? (uint32_t)length : snap;
}

/* ---- Reading ---- */

int trace_open(struct trace_reader *reader, int fd, int connection)
{
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS), error = EPROTO;
	struct trace_ring *ring;

	know_clocks();
	*reader = (struct trace_reader){ .connection = connection };
	if (fstat(fd, &stat) || seals < 0 || !(seals & F_SEAL_SHRINK) || (size_t)stat.st_size < sizeof(*ring))
		goto refused;
	ring = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring == MAP_FAILED) {
		error = errno;
		goto refused;
	}
	if (ring->magic != TRACE_MAGIC || ring->version != TRACE_VERSION || !ring->slots || ring->slots & (ring->slots - 1) ||
	    ring_bytes(ring->slots) != (size_t)stat.st_size || ring->clock > TRACE_CLOCK_PROCESSOR) {
		munmap(ring, (size_t)stat.st_size);
		goto refused;
	}
	reader->ring = ring;
	reader->bytes = (size_t)stat.st_size;
	reader->position = ring->first;
	close(fd);
	return 0;

refused:
	close(fd);
	return error;
}

void trace_close(struct trace_reader *reader)
{
	if (reader->ring)
		munmap(reader->ring, reader->bytes);
	if (reader->connection >= 0)
		close(reader->connection);
	reader->ring = NULL;
	reader->connection = -1;
}

/* A copy of the slot at a position, if it is there and stays until it was copied. */
static bool copy_slot(const struct trace_ring *ring, uint64_t position, struct trace_event *to)
{
	struct trace_event *slot = (struct trace_event *)&ring->events[position & (ring->slots - 1)];
	uint64_t stamp = atomic_load_explicit(&slot->stamp, memory_order_acquire), words[WORDS];

	if (stamp >> LAP_SHIFT != lap_of(ring, position))
		return false;
	for (int i = 0; i < WORDS; i++)
		words[i] = atomic_load_explicit(&words_of(slot)[i], memory_order_relaxed);
	/* Pairs with the writer's, in put_slot(). */
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&slot->stamp, memory_order_relaxed) != stamp)
		return false;
	memcpy((uint8_t *)to + sizeof(stamp), words, sizeof(words));
	atomic_store_explicit(&to->stamp, stamp, memory_order_relaxed);
	return true;
}

/* Whether the process has let go of its ring: then nobody is writing. */
static bool has_gone(const struct trace_reader *reader)
{
	char byte;
	ssize_t n;

	if (reader->connection < 0)
		return false;
	n = recv(reader->connection, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void pass_over(struct trace_reader *reader, uint64_t to)
{
	reader->dropped += to - reader->position;
	reader->position = to;
	reader->waits_since = 0;
}

/* The slot at the reader's position is not what it should be. True: it has gone on. */
static bool get_on(struct trace_reader *reader, bool gone)
{
	const struct trace_ring *ring = reader->ring;
	uint64_t ahead = atomic_load_explicit(&ring->next, memory_order_acquire) - reader->position;

	/* It was written over. A part of what follows will be too, before we get there. */
	if (ahead >= ring->slots) {
		pass_over(reader, reader->position + ahead - ring->slots / 4 * 3);
		return true;
	}
	/* It is being written, or its writer is not any more. */
	if (!gone && ahead <= ring->slots / 2) {
		if (!reader->waits_since)
			reader->waits_since = nic_now();
		if (nic_now() - reader->waits_since < SLOT_PATIENCE)
			return false;
	}
	pass_over(reader, reader->position + 1);
	return true;
}

/* An event whose first slot was read into *to, with what follows. False: written over meanwhile. */
static bool copy_rest(const struct trace_reader *reader, struct trace_event *to)
{
	for (unsigned i = 1; i <= to->more; i++)
		if (!copy_slot(reader->ring, reader->position + i, to + i))
			return false;
	return true;
}

uint32_t trace_read(struct trace_reader *reader, struct trace_event *out, uint32_t max)
{
	struct trace_ring *ring = reader->ring;
	bool gone = has_gone(reader);
	uint64_t next = atomic_load_explicit(&ring->next, memory_order_acquire);
	uint64_t latest = ticks_now(ring->clock) + SLACK;
	uint32_t count = 0;

	while ((int64_t)(next - reader->position) > 0) {
		struct trace_event *to = out + count;
		uint64_t stamp;

		if (count == max)
			break;
		if (!copy_slot(ring, reader->position, to)) {
			if (!get_on(reader, gone))
				break;
			continue;
		}
		stamp = atomic_load_explicit(&to->stamp, memory_order_relaxed);
		if (stamp & MORE) { /* of an event whose beginning was lost */
			pass_over(reader, reader->position + 1);
			continue;
		}
		if (count + to->more >= max)
			break;
		if (!copy_rest(reader, to)) {
			if (!get_on(reader, gone))
				break;
			continue;
		}
		/* The last moment that has these low bits. */
		stamp = latest - ((latest - ring->start_ticks - stamp) & LOW_MASK);
		atomic_store_explicit(&to->stamp, time_of((enum trace_clock)ring->clock, stamp), memory_order_relaxed);
		reader->position += 1u + to->more;
		reader->waits_since = 0;
		count += 1u + to->more;
	}
	reader->ended = gone && !count && (int64_t)(next - reader->position) <= 0;
	return count;
}

size_t trace_more(const struct trace_event *event, void *to)
{
	for (unsigned i = 0; i < event->more; i++)
		memcpy((uint8_t *)to + i * BODY, (const uint8_t *)(event + 1 + i) + sizeof(uint64_t), BODY);
	return (size_t)event->more * BODY;
}

/* ---- Meeting ---- */

static int bind_to(int fd, const char *name)
{
	struct sockaddr_un address;
	socklen_t length = pass_address(&address, name);

	if (length && !bind(fd, (struct sockaddr *)&address, length))
		return 0;
	return -1;
}

int trace_listen(char *name)
{
	int fd = descriptor_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error;
	const char *temporary;
	uint64_t random;

	*name = '\0';
	if (fd < 0)
		return -1;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		goto refused;
	/* Not in the user's runtime directory: hosts of a lab have one each. */
	temporary = secure_getenv("TMPDIR");
	if (snprintf(name, TRACE_NAME, "%s/uroce-trace-%016llx", temporary && *temporary == '/' ? temporary : "/tmp",
		     (unsigned long long)random) >= TRACE_NAME ||
	    bind_to(fd, name)) {
		snprintf(name, TRACE_NAME, "uroce-trace-%016llx", (unsigned long long)random);
		if (bind_to(fd, name))
			goto refused;
	}
	know_clocks();
	if (!listen(fd, 64))
		return fd;
refused:
	error = errno;
	trace_stop_listening(fd, name);
	errno = error;
	return -1;
}

void trace_stop_listening(int socket, const char *name)
{
	if (*name == '/')
		unlink(name);
	close(socket);
}

/* Its message is there when it has connected, or will be in a moment. */
static int ring_from(int connection)
{
	struct pollfd readable = { .fd = connection, .events = POLLIN };

	return poll(&readable, 1, PATIENCE) == 1 ? pass_receive(connection, NULL) : -1;
}

bool trace_next(int socket, uint32_t snap, struct trace_reader *reader)
{
	for (;;) {
		int connection = accept4(socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), ring = -1;

		if (connection < 0)
			return false;
		if (pass_is_own_user(connection))
			ring = ring_from(connection);
		if (ring >= 0 && !trace_open(reader, ring, connection)) {
			/* Its answer, for which the process waits. */
			if (send(connection, &snap, sizeof(snap), MSG_NOSIGNAL) == sizeof(snap))
				return true;
			trace_close(reader);
			continue;
		}
		close(connection);
	}
}

int trace_give(const char *name, int ring, uint32_t *snap)
{
	int fd = descriptor_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	const struct timeval patience = { .tv_sec = PATIENCE / 1000 };
	struct sockaddr_un address;
	socklen_t length = pass_address(&address, name);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (length && !connect(fd, (struct sockaddr *)&address, length) && pass_is_own_user(fd) && !pass_send(fd, ring) &&
	    recv(fd, snap, sizeof(*snap), 0) == sizeof(*snap))
		return fd;
	descriptor_close(fd);
	return -1;
}
