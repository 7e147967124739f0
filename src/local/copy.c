/* SPDX-License-Identifier: MIT */
/* The ordered copy. See copy.h. */
#include "local/copy.h"

#include <stdatomic.h>
#include <string.h>

#define LINE 64u
#define WORD 8u

/* As all copies, of a NIC too, these are seen by no tool (local/dma.h). */
#define UNSEEN __attribute__((no_sanitize("thread")))

/* A store that is not torn, of a power of two that the target is aligned to. */
#define STORE(type)                                                            \
	do {                                                                   \
		type value;                                                    \
		memcpy(&value, from, sizeof(value));                           \
		__atomic_store_n((type *)(void *)to, value, __ATOMIC_RELAXED); \
		to += sizeof(value);                                           \
		from += sizeof(value);                                         \
		length -= sizeof(value);                                       \
	} while (0)

/* In ascending order; fewer than a word's bytes, or up to where a word begins. */
UNSEEN static inline void copy_part(uint8_t *to, const uint8_t *from, uint64_t length)
{
	while (length) {
		if ((uintptr_t)to % 2 || length < 2)
			STORE(uint8_t);
		else if ((uintptr_t)to % 4 || length < 4)
			STORE(uint16_t);
		else
			STORE(uint32_t);
	}
}

/* In ascending order, word by word. */
UNSEEN static void copy_words(uint8_t *to, const uint8_t *from, uint64_t length)
{
	uint64_t head = -(uintptr_t)to % WORD;

	if (head) {
		if (head > length)
			head = length;
		copy_part(to, from, head);
		to += head;
		from += head;
		length -= head;
	}
	while (length > WORD)
		STORE(uint64_t);
	/* What a program waits for comes after the rest, for readers on other CPUs too. */
	atomic_thread_fence(memory_order_release);
	if (length == WORD)
		STORE(uint64_t);
	else
		copy_part(to, from, length);
}

/* Whole cache lines, in any order; the target is aligned. */
typedef void copy_lines(uint8_t *to, const uint8_t *from, uint64_t length);

#define COPY_LINES(name, bytes, target)                                                     \
	target UNSEEN static void name(uint8_t *to, const uint8_t *from, uint64_t length)   \
	{                                                                                   \
		typedef uint64_t whole __attribute__((vector_size(bytes), may_alias));      \
		typedef whole any __attribute__((aligned(1)));                              \
		const uint8_t *end = from + length;                                         \
                                                                                            \
		for (; end - from >= 4 * (bytes); from += 4 * (bytes), to += 4 * (bytes)) { \
			whole a = ((const any *)from)[0], b = ((const any *)from)[1],       \
			      c = ((const any *)from)[2], d = ((const any *)from)[3];       \
                                                                                            \
			((whole *)to)[0] = a;                                               \
			((whole *)to)[1] = b;                                               \
			((whole *)to)[2] = c;                                               \
			((whole *)to)[3] = d;                                               \
		}                                                                           \
		for (; from < end; from += (bytes), to += (bytes))                          \
			*(whole *)to = *(const any *)from;                                  \
	}

COPY_LINES(copy_lines_16, 16, )
#ifdef __x86_64__
COPY_LINES(copy_lines_32, 32, __attribute__((target("avx2"))))
COPY_LINES(copy_lines_64, 64, __attribute__((target("avx512f"))))
#endif

static inline copy_lines *best(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f"))
		return copy_lines_64;
	if (__builtin_cpu_supports("avx2"))
		return copy_lines_32;
#endif
	return copy_lines_16;
}

UNSEEN void copy_ordered(void *to, const void *from, uint64_t length)
{
	uint8_t *target = to;
	const uint8_t *source = from;
	uint64_t head = -(uintptr_t)target % LINE, lines;

	if (length > head + LINE) {
		copy_words(target, source, head);
		target += head;
		source += head;
		length -= head;
		lines = (length - 1) & ~(uint64_t)(LINE - 1);
		best()(target, source, lines);
		atomic_thread_fence(memory_order_release);
		target += lines;
		source += lines;
		length -= lines;
	}
	copy_words(target, source, length);
}
