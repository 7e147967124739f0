/* SPDX-License-Identifier: MIT */
/* The ICRC: rxe's as judge of what it covers, and of the identification every possible value as judge of which is found. */
#include "unit.h"

#include <pthread.h>

#include "pcaps/capture.h"

static struct capture capture;

static const struct icrc_path ipv4 = {
	.sgid.raw = { [10] = 0xff, 0xff, 10, 99, 0, 11 },
	.dgid.raw = { [10] = 0xff, 0xff, 10, 99, 0, 12 },
	.sport = 0xc1b9,
	.dport = ROCE_PORT,
};

static const struct icrc_path ipv6 = {
	.sgid.raw = { 0xfd, 0x99, [15] = 0x11 },
	.dgid.raw = { 0xfd, 0x99, [15] = 0x12 },
	.sport = 0xc1b9,
	.dport = ROCE_PORT,
};

static void fill(uint8_t *packet, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		packet[i] = rand() >> 8;
}

static void put_icrc(uint8_t *packet, size_t bytes, uint32_t icrc)
{
	icrc = htole32(icrc);
	memcpy(packet + bytes, &icrc, sizeof(icrc));
}

/* In the probe captures a plain socket tries what rxe takes; the fifth frame of either has a wrong ICRC on purpose. */
static bool is_spoilt(const struct capture *from)
{
	return strncmp(from->name, "probe-", strlen("probe-")) == 0 && from->frames == 5;
}

static void captured_icrcs_are_right_but_for_two_that_were_spoilt(void **state)
{
	int good = 0, spoilt = 0;
	glob_t list;

	(void)state;
	capture_list(PCAPS, &list);
	for (size_t i = 0; i < list.gl_pathc; i++) {
		struct captured captured;

		capture_open(&capture, list.gl_pathv[i]);
		while (capture_next(&capture, &captured)) {
			const size_t bytes = captured.bytes - ROCE_ICRC_BYTES;
			uint32_t icrc;
			uint16_t id;
			bool solved = icrc_solve(&captured.path, captured.packet, captured.bytes, &id);

			memcpy(&icrc, captured.packet + bytes, sizeof(icrc));
			if (is_spoilt(&capture)) {
				assert_false(solved);
				assert_int_not_equal(icrc_of(&captured.path, captured.id, captured.packet, bytes),
						     le32toh(icrc));
				spoilt++;
				continue;
			}
			assert_true(solved);
			assert_int_equal(id, captured.id);
			assert_int_equal(icrc_of(&captured.path, captured.id, captured.packet, bytes), le32toh(icrc));
			good++;
		}
	}
	globfree(&list);
	assert_int_equal(good, 3637);
	assert_int_equal(spoilt, 2);
}

/* Of all 65,536 identifications those with which the ICRC is right: one or none. */
static int solutions(const uint8_t *packet, size_t bytes, uint32_t icrc, uint16_t *id)
{
	int count = 0;

	for (uint32_t i = 0; i <= UINT16_MAX; i++) {
		if (icrc_of(&ipv4, i, packet, bytes) == icrc) {
			*id = i;
			count++;
		}
	}
	return count;
}

static void the_identification_found_is_the_one_of_all_with_which_it_is_right(void **state)
{
	static const size_t lengths[] = { 12, 76, 1036, ROCE_MAX_HEADERS + 4100 };
	uint8_t packet[ROCE_MAX_HEADERS + 4100 + ROCE_ICRC_BYTES];
	uint16_t id, found;

	(void)state;
	srand(2);
	for (int i = 0; i < 4; i++) {
		const size_t bytes = lengths[i];
		uint32_t icrc;

		fill(packet, sizeof(packet));
		icrc = icrc_of(&ipv4, rand() >> 8, packet, bytes);
		put_icrc(packet, bytes, icrc);
		assert_int_equal(solutions(packet, bytes, icrc, &id), 1);
		assert_true(icrc_solve(&ipv4, packet, bytes + ROCE_ICRC_BYTES, &found));
		assert_int_equal(found, id);

		/* One that none of them gives. */
		icrc ^= 1u << i * 8;
		put_icrc(packet, bytes, icrc);
		assert_int_equal(solutions(packet, bytes, icrc, &id), 0);
		assert_false(icrc_solve(&ipv4, packet, bytes + ROCE_ICRC_BYTES, &found));
	}
}

/* The specification's CRC over IPv4, bit by bit, with what flags and fragment offset one likes. */
static uint32_t icrc_with_fragment(uint16_t id, uint16_t fragment, const uint8_t *packet, size_t bytes)
{
	const uint16_t udp_bytes = 8 + bytes + ROCE_ICRC_BYTES, ip_bytes = 20 + udp_bytes;
	/* clang-format off */
	uint8_t input[36 + 256] = {
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0x45, 0xff, ip_bytes >> 8, ip_bytes, id >> 8, id, fragment >> 8, fragment, 0xff, 17, 0xff, 0xff,
		10, 99, 0, 11, 10, 99, 0, 12,
		0xc1, 0xb9, ROCE_PORT >> 8, ROCE_PORT & 0xff, udp_bytes >> 8, udp_bytes, 0xff, 0xff,
	};
	/* clang-format on */
	uint32_t crc = UINT32_MAX;

	assert_true(bytes <= 256);
	memcpy(input + 36, packet, bytes);
	input[36 + 4] = 0xff;
	for (size_t bit = 0; bit < (36 + bytes) * 8; bit++) {
		crc ^= input[bit / 8] >> bit % 8 & 1;
		crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

/* They stand behind the identification: a packet that differs in both is the nearest to one that differs in it alone. */
static void other_flags_or_a_fragment_are_no_solution(void **state)
{
	uint8_t packet[256 + ROCE_ICRC_BYTES];
	uint16_t found;

	(void)state;
	srand(6);
	fill(packet, 256);
	for (int i = 0; i < 64; i++) {
		const uint16_t id = rand() >> 8;

		assert_int_equal(icrc_with_fragment(id, IP_DF, packet, 256), icrc_of(&ipv4, id, packet, 256));
		put_icrc(packet, 256, icrc_with_fragment(id, IP_DF ^ 1 << i % 16, packet, 256));
		assert_false(icrc_solve(&ipv4, packet, sizeof(packet), &found));
	}
}

static void every_identification_is_found(void **state)
{
	uint8_t packet[64 + ROCE_ICRC_BYTES];
	uint16_t found;

	(void)state;
	srand(3);
	fill(packet, sizeof(packet));
	for (uint32_t id = 0; id <= UINT16_MAX; id++) {
		put_icrc(packet, 64, icrc_of(&ipv4, id, packet, 64));
		assert_true(icrc_solve(&ipv4, packet, sizeof(packet), &found));
		assert_int_equal(found, id);
	}
}

/* Up to a size of UDP datagram that no path MTU has. */
static void it_is_found_in_packets_of_any_length(void **state)
{
	const size_t most = 65000;
	uint8_t *packet = malloc(most + ROCE_ICRC_BYTES);
	uint16_t found;

	(void)state;
	srand(4);
	fill(packet, most);
	for (size_t bytes = ROCE_BTH_BYTES; bytes <= most; bytes += bytes < 5000 ? 4 : 5000) {
		/* Twice: the first time the factor is computed. */
		for (int i = 0; i < 2; i++) {
			const uint16_t id = rand() >> 8;

			put_icrc(packet, bytes, icrc_of(&ipv4, id, packet, bytes));
			assert_true(icrc_solve(&ipv4, packet, bytes + ROCE_ICRC_BYTES, &found));
			assert_int_equal(found, id);
			put_icrc(packet, bytes, icrc_of(&ipv6, 0, packet, bytes));
			assert_true(icrc_solve(&ipv6, packet, bytes + ROCE_ICRC_BYTES, &found));
			assert_int_equal(found, 0);
		}
	}
	free(packet);
}

static void what_has_no_room_for_bth_and_icrc_is_refused(void **state)
{
	const uint8_t packet[20] = { 0 };
	uint16_t id;

	(void)state;
	for (size_t bytes = 0; bytes < 16; bytes++)
		assert_false(icrc_solve(&ipv4, packet, bytes, &id) || icrc_solve(&ipv6, packet, bytes, &id));
	for (size_t bytes = 17; bytes < 20; bytes++)
		assert_false(icrc_solve(&ipv4, packet, bytes, &id) || icrc_solve(&ipv6, packet, bytes, &id));
}

/* Every bit of the packet, of the ICRC and of what names the path, but for those that routers change. */
static void one_wrong_bit_is_noticed_with_both_families(void **state)
{
	const size_t bytes = 12 + 256;
	uint8_t packet[12 + 256 + ROCE_ICRC_BYTES];
	uint16_t id;

	(void)state;
	srand(5);
	for (int family = 0; family < 2; family++) {
		const struct icrc_path *path = family ? &ipv6 : &ipv4;

		fill(packet, bytes);
		put_icrc(packet, bytes, icrc_of(path, 0, packet, bytes));
		for (size_t bit = 0; bit < sizeof(packet) * 8; bit++) {
			packet[bit / 8] ^= 1 << bit % 8;
			assert_int_equal(icrc_solve(path, packet, sizeof(packet), &id), bit / 8 == 4);
			packet[bit / 8] ^= 1 << bit % 8;
		}
		for (int bit = 0; bit < 128; bit++) {
			struct icrc_path other = *path;

			/* The prefix of mapped addresses makes the family. */
			if (!family && bit < 96)
				continue;
			other.sgid.raw[bit / 8] ^= 1 << bit % 8;
			assert_false(icrc_solve(&other, packet, sizeof(packet), &id));
			other = *path;
			other.dgid.raw[bit / 8] ^= 1 << bit % 8;
			assert_false(icrc_solve(&other, packet, sizeof(packet), &id));
		}
		for (int bit = 0; bit < 16; bit++) {
			struct icrc_path other = *path;

			other.sport ^= 1 << bit;
			assert_false(icrc_solve(&other, packet, sizeof(packet), &id));
			other = *path;
			other.dport ^= 1 << bit;
			assert_false(icrc_solve(&other, packet, sizeof(packet), &id));
		}
	}
}

static void *solve_all_lengths(void *seed)
{
	uint8_t packet[2048 + ROCE_ICRC_BYTES];

	memset(packet, (int)(intptr_t)seed, sizeof(packet));
	for (size_t bytes = ROCE_BTH_BYTES; bytes <= 2048; bytes += 4) {
		const uint16_t id = bytes + (intptr_t)seed;
		uint16_t found;

		put_icrc(packet, bytes, icrc_of(&ipv4, id, packet, bytes));
		THREAD_CHECK(icrc_solve(&ipv4, packet, bytes + ROCE_ICRC_BYTES, &found) && found == id);
	}
	return NULL;
}

/* First of all tests, so that all factors are still unknown. */
static void threads_need_no_lock(void **state)
{
	pthread_t threads[4];

	(void)state;
	for (intptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, solve_all_lengths, (void *)i), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_need_no_lock),
		cmocka_unit_test(captured_icrcs_are_right_but_for_two_that_were_spoilt),
		cmocka_unit_test(the_identification_found_is_the_one_of_all_with_which_it_is_right),
		cmocka_unit_test(other_flags_or_a_fragment_are_no_solution),
		cmocka_unit_test(every_identification_is_found),
		cmocka_unit_test(it_is_found_in_packets_of_any_length),
		cmocka_unit_test(what_has_no_room_for_bth_and_icrc_is_refused),
		cmocka_unit_test(one_wrong_bit_is_noticed_with_both_families),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
