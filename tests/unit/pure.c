/* SPDX-License-Identifier: MIT */
/* Functions without a device: timers, settings, slices, headers, causes. */
#include "unit.h"

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <pthread.h>

#include "local/grh.h"
#include "local/memory.h"
#include "nic/responder.h"
#include "nic/timing.h"
#include "observe/cause.h"

/* Specification table 45, in ms. */
static void rnr_timers_are_those_of_the_table(void **state)
{
	static const double ms[32] = {
		655.36, 0.01,  0.02,  0.03,  0.04,  0.06,   0.08,   0.12,   0.16,   0.24,  0.32,
		0.48,	0.64,  0.96,  1.28,  1.92,  2.56,   3.84,   5.12,   7.68,   10.24, 15.36,
		20.48,	30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52
	};

	(void)state;
	for (uint32_t code = 0; code < 32; code++)
		assert_int_equal(rnr_timer(code), (uint64_t)(ms[code] * 1e6 + 0.5));
}

static void timing_settings_are_understood_or_refused(void **state)
{
	enum timing_mode mode;
	uint64_t seed;

	(void)state;
	assert_true(timing_parse(NULL, &mode, &seed));
	assert_int_equal(mode, TIMING_PROMPT);
	assert_true(timing_parse("", &mode, &seed));
	assert_int_equal(mode, TIMING_PROMPT);
	assert_true(timing_parse("late", &mode, &seed));
	assert_int_equal(mode, TIMING_LATE);
	assert_true(timing_parse("random:42", &mode, &seed));
	assert_int_equal(mode, TIMING_RANDOM);
	assert_int_equal(seed, 42);
	assert_true(timing_parse("random:0x10", &mode, &seed));
	assert_int_equal(seed, 16);
	for (const char **wrong = (const char *[]){ "random", "random:", "random:x", "random:1x",
						    "random:-1", "random: 1",
						    "random:18446744073709551616", "LATE", "late ",
						    "prompt", NULL };
	     *wrong; wrong++) {
		assert_false(timing_parse(*wrong, &mode, &seed));
		assert_int_equal(mode, TIMING_PROMPT);
	}
}

static void slice_is_the_bytes_asked_for(void **state)
{
	static uint8_t bytes[64];
	const struct piece pieces[] = { piece_ours(bytes, 10), piece_ours(bytes + 20, 0),
					piece_ours(bytes + 20, 5), piece_ours(bytes + 40, 7) };
	uint8_t *flat[22], **to = flat;

	(void)state;
	for (int i = 0; i < 4; i++) {
		for (size_t j = 0; j < pieces[i].length; j++)
			*to++ = (uint8_t *)(uintptr_t)pieces[i].addr + j;
	}
	for (uint64_t offset = 0; offset <= 22; offset++) {
		for (uint64_t length = 0; offset + length <= 22; length++) {
			struct piece slice[4];
			uint32_t n = memory_slice(pieces, 4, offset, length, slice);
			uint64_t at = offset;

			for (uint32_t i = 0; i < n; i++) {
				assert_true(slice[i].length > 0);
				for (size_t j = 0; j < slice[i].length; j++)
					assert_ptr_equal((uint8_t *)(uintptr_t)slice[i].addr + j,
							 flat[at++]);
			}
			assert_int_equal(at, offset + length);
		}
	}
}

static union ibv_gid gid_of(const char *text)
{
	union ibv_gid gid = { .raw = { 0 } };

	if (inet_pton(AF_INET6, text, gid.raw) == 1)
		return gid;
	gid.raw[10] = gid.raw[11] = 0xff;
	assert_int_equal(inet_pton(AF_INET, text, gid.raw + 12), 1);
	return gid;
}

/* UDP, BTH, DETH, payload padded to words, ICRC. */
static uint16_t datagram(uint64_t length)
{
	return (uint16_t)(8 + 12 + 8 + (length + 3) / 4 * 4 + 4);
}

static void grh_of_ipv4_is_a_correct_header_in_the_last_20_bytes(void **state)
{
	const struct nic_ah ah = { .sgid = gid_of("10.1.2.3"),
				   .dgid = gid_of("10.255.254.253"),
				   .hop_limit = 17,
				   .traffic_class = 0x2e };
	uint8_t grh[GRH_BYTES];
	struct iphdr ip;

	(void)state;
	for (uint64_t length = 0; length <= 4096; length += 1 + length / 3) {
		uint32_t sum = 0;

		memset(grh, 0xff, sizeof(grh));
		grh_write(grh, &ah, length);
		for (int i = 0; i < 20; i++)
			assert_int_equal(grh[i], 0);
		memcpy(&ip, grh + 20, sizeof(ip));
		assert_int_equal(ip.version, 4);
		assert_int_equal(ip.ihl, 5);
		assert_int_equal(ip.tos, 0x2e);
		assert_int_equal(ip.ttl, 17);
		assert_int_equal(ip.protocol, IPPROTO_UDP);
		assert_int_equal(ntohs(ip.tot_len), 20 + datagram(length));
		assert_memory_equal(&ip.saddr, ah.sgid.raw + 12, 4);
		assert_memory_equal(&ip.daddr, ah.dgid.raw + 12, 4);
		/* The sum of all words with the checksum among them is all ones. */
		for (int i = 20; i < 40; i += 2)
			sum += (uint32_t)grh[i] << 8 | grh[i + 1];
		assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
	}
}

static void grh_of_ipv6_is_its_header(void **state)
{
	const struct nic_ah ah = { .sgid = gid_of("fd00::1"),
				   .dgid = gid_of("fd00::2"),
				   .flow_label = 0xfabcde,
				   .traffic_class = 0x91 };
	uint8_t grh[GRH_BYTES];
	struct ip6_hdr ip6;

	(void)state;
	grh_write(grh, &ah, 33);
	memcpy(&ip6, grh, sizeof(ip6));
	assert_int_equal(ntohl(ip6.ip6_flow), 6u << 28 | 0x91u << 20 | 0xabcde);
	assert_int_equal(ntohs(ip6.ip6_plen), datagram(33));
	assert_int_equal(ip6.ip6_nxt, IPPROTO_UDP);
	assert_int_equal(ip6.ip6_hlim, 64);
	assert_memory_equal(&ip6.ip6_src, &ah.sgid, 16);
	assert_memory_equal(&ip6.ip6_dst, &ah.dgid, 16);
}

static void causes_keep_the_newest_of_a_ring(void **state)
{
	struct cause_ring *ring = calloc(1, sizeof(*ring));

	(void)state;
	for (uint64_t i = 0; i < NIC_CAUSES + 100; i++)
		assert_int_equal(
			cause_record(ring,
				     &(struct cause){ .code = CAUSE_RNR, .value = i, .seq = 99 }),
			CAUSE_RNR);
	assert_int_equal(ring->next, NIC_CAUSES + 100);
	for (uint64_t position = 100; position < NIC_CAUSES + 100; position++) {
		const struct cause *cause = &ring->slots[position % NIC_CAUSES];

		assert_int_equal(cause->seq, position + 1);
		assert_int_equal(cause->value, position);
		assert_int_not_equal(cause->time, 0);
		assert_int_equal(cause->tid, gettid());
	}
	free(ring);
}

static void first_cause_of_each_kind_is_kept_and_counted(void **state)
{
	struct cause_ring *ring = calloc(1, sizeof(*ring));
	const struct cause_kinds *kinds = &ring->kinds;

	(void)state;
	cause_record(ring, &(struct cause){ .code = CAUSE_RKEY_UNKNOWN, .qpn = 7, .value = 1 });
	for (uint64_t i = 0; i < NIC_CAUSES + 100; i++)
		cause_record(ring, &(struct cause){ .code = CAUSE_SQ_FULL, .qpn = 7, .value = i });
	/* Of another argument. */
	cause_record(ring, &(struct cause){ .code = CAUSE_CREATE_LIMIT, .thing = CAUSE_THING_CQ_CQE });
	cause_record(ring, &(struct cause){ .code = CAUSE_CREATE_LIMIT, .thing = CAUSE_THING_QP_INLINE });
	assert_int_equal(kinds->firsts[0].code, CAUSE_RKEY_UNKNOWN);
	assert_int_equal(kinds->firsts[0].seq, 1);
	assert_int_equal(kinds->firsts[1].code, CAUSE_SQ_FULL);
	assert_int_equal(kinds->firsts[1].value, 0);
	assert_int_equal(kinds->counts[1], NIC_CAUSES + 100);
	assert_int_equal(kinds->firsts[2].thing, CAUSE_THING_CQ_CQE);
	assert_int_equal(kinds->firsts[3].thing, CAUSE_THING_QP_INLINE);
	/* Of many objects some are told apart, the others are counted; and other codes have their places still. */
	for (uint32_t qpn = 1; qpn <= 100; qpn++)
		cause_record(ring, &(struct cause){ .code = CAUSE_RNR, .qpn = qpn });
	assert_int_equal(kinds->others[CAUSE_RNR], 100 - CAUSE_OF_ONE_CODE);
	cause_record(ring, &(struct cause){ .code = CAUSE_PEER_DIED, .qpn = 3 });
	assert_int_equal(kinds->firsts[4 + CAUSE_OF_ONE_CODE].code, CAUSE_PEER_DIED);
	free(ring);
}

static void cause_without_a_ring_is_only_its_code(void **state)
{
	(void)state;
	assert_int_equal(cause_record(NULL, &(struct cause){ .code = CAUSE_FLUSHED }),
			 CAUSE_FLUSHED);
}

#define WRITERS 3
#define EACH	20000

static void *keep_recording(void *arg)
{
	struct cause_ring *ring = arg;

	for (uint64_t i = 1; i <= EACH; i++)
		cause_record(ring, &(struct cause){ .code = CAUSE_RNR, .addr = i, .length = ~i });
	return NULL;
}

static void causes_of_several_writers_have_each_a_place(void **state)
{
	struct cause_ring *ring = calloc(1, sizeof(*ring));
	pthread_t threads[WRITERS];

	(void)state;
	for (int i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, keep_recording, ring), 0);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	/* More when one that was late had its place passed over by the others: that place is then
	 * of an earlier round. */
	assert_true(ring->next >= WRITERS * EACH);
	for (uint64_t position = ring->next - NIC_CAUSES; position < ring->next; position++) {
		const struct cause *cause = &ring->slots[position % NIC_CAUSES];

		assert_true(cause->seq <= position + 1);
		assert_int_equal((cause->seq - 1) % NIC_CAUSES, position % NIC_CAUSES);
		assert_int_equal(cause->length, ~cause->addr);
	}
	free(ring);
}

static void every_code_has_a_text_of_its_own(void **state)
{
	static const uint32_t codes[] = {
#define CAUSE(name, number, text) number,
#include "observe/cause_codes.h"
#undef CAUSE
	};

	(void)state;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		assert_string_not_equal(cause_text(codes[i]), cause_text(0xffff));
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(cause_text(codes[i]), cause_text(codes[j]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rnr_timers_are_those_of_the_table),
		cmocka_unit_test(timing_settings_are_understood_or_refused),
		cmocka_unit_test(slice_is_the_bytes_asked_for),
		cmocka_unit_test(grh_of_ipv4_is_a_correct_header_in_the_last_20_bytes),
		cmocka_unit_test(grh_of_ipv6_is_its_header),
		cmocka_unit_test(causes_keep_the_newest_of_a_ring),
		cmocka_unit_test(first_cause_of_each_kind_is_kept_and_counted),
		cmocka_unit_test(cause_without_a_ring_is_only_its_code),
		cmocka_unit_test(causes_of_several_writers_have_each_a_place),
		cmocka_unit_test(every_code_has_a_text_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
