/* SPDX-License-Identifier: MIT */
/* CM MADs as bytes: what Linux's rdma_cm sent over rxe is read, has the fields that it must have, and is written again. */
#include "unit.h"

#include "cm/cm.h"
#include "cm/mad.h"
#include "pcaps/capture.h"

static struct capture capture;

/* The next MAD of the capture. */
static bool next_mad(uint8_t *bytes, struct mad *mad, struct captured *captured)
{
	struct roce_packet packet;

	while (capture_next(&capture, captured)) {
		if (!roce_parse(captured->packet, captured->bytes - ROCE_ICRC_BYTES, &packet) || packet.qpn != 1)
			continue;
		assert_int_equal(packet.length, MAD_BYTES);
		memcpy(bytes, packet.payload, MAD_BYTES);
		assert_true(mad_decode(bytes, mad));
		return true;
	}
	return false;
}

static void open_capture(const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s.pcap", PCAPS, name);
	capture_open(&capture, path);
}

/* The next one of the capture that is open. */
static struct mad expect(enum mad_attribute attribute)
{
	struct captured captured;
	uint8_t bytes[MAD_BYTES];
	struct mad mad;

	assert_true(next_mad(bytes, &mad, &captured));
	assert_int_equal(mad.attribute, attribute);
	return mad;
}

static void every_captured_mad_is_written_as_it_was_read(void **state)
{
	unsigned seen[MAD_APR + 1] = { 0 };
	glob_t list;

	(void)state;
	capture_list(PCAPS, &list);
	for (size_t i = 0; i < list.gl_pathc; i++) {
		uint8_t bytes[MAD_BYTES], again[MAD_BYTES];
		struct captured captured;
		struct mad mad;

		capture_open(&capture, list.gl_pathv[i]);
		while (next_mad(bytes, &mad, &captured)) {
			mad_encode(&mad, again);
			assert_memory_equal(bytes, again, MAD_BYTES);
			seen[mad.attribute]++;
		}
	}
	globfree(&list);
	assert_true(seen[MAD_REQ] && seen[MAD_REP] && seen[MAD_RTU] && seen[MAD_REJ] && seen[MAD_DREQ] && seen[MAD_DREP]);
	assert_true(seen[MAD_SIDR_REQ] && seen[MAD_SIDR_REP]);
}

static void the_fields_of_a_connection_are_where_they_belong(void **state)
{
	struct mad req, rep, rtu, dreq, drep;
	const union ibv_gid source = gid_from_ipv4(htobe32(0x0a63000b));
	struct mad_ip ip;

	(void)state;
	open_capture("cm-rping-v4");
	req = expect(MAD_REQ);
	assert_int_equal(req.tid, 0x24325add8);
	assert_int_equal(req.local_id, 0xd8ad2543);
	assert_int_equal(req.req.service_id, MAD_SERVICE_ID(RDMA_PS_TCP, 7174));
	assert_int_equal(req.req.ca_guid, 0x505400fffe990011);
	assert_int_equal(req.req.qpn, 0x59);
	assert_int_equal(req.req.responder_resources, 1);
	assert_int_equal(req.req.initiator_depth, 1);
	assert_int_equal(req.req.remote_timeout, 20);
	assert_int_equal(req.req.local_timeout, 20);
	assert_int_equal(req.req.transport, MAD_RC);
	assert_int_equal(req.req.psn, 0xd6241e);
	assert_int_equal(req.req.retry_count, 7);
	assert_int_equal(req.req.rnr_retry_count, 7);
	assert_int_equal(req.req.max_retries, 15);
	assert_int_equal(req.req.pkey, 0xffff);
	assert_int_equal(req.req.mtu, IBV_MTU_4096);
	assert_int_equal(req.req.primary.local_lid, 0xffff);
	assert_int_equal(req.req.primary.hop_limit, 64);
	assert_int_equal(req.req.primary.ack_timeout, 19);
	assert_true(mad_ip_decode(req.req.private_data, &ip));
	assert_int_equal(ip.version, 4);
	assert_int_equal(ip.source_port, 0x87fb);
	assert_memory_equal(&ip.source, &source, 16);
	assert_memory_equal(&ip.source, &req.req.primary.local_gid, 16);
	assert_memory_equal(&ip.destination, &req.req.primary.remote_gid, 16);
	rep = expect(MAD_REP);
	assert_int_equal(rep.tid, req.tid);
	assert_int_equal(rep.remote_id, req.local_id);
	assert_int_equal(rep.local_id, 0x800a5be0);
	assert_int_equal(rep.rep.qpn, 0x59);
	assert_int_equal(rep.rep.psn, 0x2d2ba9);
	assert_int_equal(rep.rep.responder_resources, 1);
	assert_int_equal(rep.rep.target_ack_delay, 15);
	assert_int_equal(rep.rep.rnr_retry_count, 7);
	assert_int_equal(rep.rep.ca_guid, 0x505400fffe990012);
	rtu = expect(MAD_RTU);
	assert_int_equal(rtu.local_id, req.local_id);
	assert_int_equal(rtu.remote_id, rep.local_id);
	dreq = expect(MAD_DREQ);
	assert_int_equal(dreq.dreq.qpn, rep.rep.qpn);
	drep = expect(MAD_DREP);
	assert_int_equal(drep.tid, dreq.tid);
	assert_int_equal(drep.remote_id, dreq.local_id);
	fclose(capture.file);
}

static void the_fields_of_a_rejection_are_where_they_belong(void **state)
{
	struct mad req, rej;

	(void)state;
	open_capture("cm-reject-v6");
	req = expect(MAD_REQ);
	rej = expect(MAD_REJ);
	assert_int_equal(rej.tid, req.tid);
	assert_int_equal(rej.remote_id, req.local_id);
	assert_int_equal(rej.rej.about, MAD_ABOUT_REQ);
	assert_int_equal(rej.rej.reason, MAD_REJ_SERVICE_ID);
	fclose(capture.file);
}

static void the_fields_of_sidr_are_where_they_belong(void **state)
{
	struct mad req, rep;
	struct mad_ip ip;

	(void)state;
	open_capture("cm-udaddy-v6");
	req = expect(MAD_SIDR_REQ);
	assert_int_equal(req.sidr_req.service_id, MAD_SERVICE_ID(RDMA_PS_UDP, 7174));
	assert_int_equal(req.sidr_req.pkey, 0xffff);
	assert_true(mad_ip_decode(req.sidr_req.private_data, &ip));
	assert_int_equal(ip.version, 6);
	rep = expect(MAD_SIDR_REP);
	assert_int_equal(rep.local_id, req.local_id);
	assert_int_equal(rep.sidr_rep.status, MAD_SIDR_VALID);
	assert_int_equal(rep.sidr_rep.qkey, RDMA_UDP_QKEY);
	assert_int_equal(rep.sidr_rep.service_id, req.sidr_req.service_id);
	assert_true(rep.sidr_rep.qpn);
	fclose(capture.file);
}

/* Every field of every message, with all its bits. */
static void nothing_is_lost_on_the_way(void **state)
{
	(void)state;
	for (unsigned attribute = MAD_REQ; attribute <= MAD_SIDR_REP; attribute++) {
		uint8_t all[MAD_BYTES], once[MAD_BYTES], twice[MAD_BYTES];
		struct mad mad;

		memset(all, 0xff, sizeof(all));
		memcpy(all, (uint8_t[]){ 1, 7, 2, 3 }, 4);
		all[16] = 0;
		all[17] = (uint8_t)attribute;
		assert_true(mad_decode(all, &mad));
		mad_encode(&mad, once);
		assert_true(mad_decode(once, &mad));
		mad_encode(&mad, twice);
		assert_memory_equal(once, twice, MAD_BYTES);
	}
}

static void what_is_no_message_of_the_cm_is_refused(void **state)
{
	uint8_t bytes[MAD_BYTES] = { 1, 7, 2, 3, [17] = MAD_REQ };
	struct mad mad;

	(void)state;
	assert_true(mad_decode(bytes, &mad));
	for (unsigned i = 0; i < 4; i++) {
		bytes[i] ^= 0x40;
		assert_false(mad_decode(bytes, &mad));
		bytes[i] ^= 0x40;
	}
	bytes[17] = MAD_LAP; /* one that has no layout here */
	assert_true(mad_decode(bytes, &mad));
	assert_int_equal(mad.attribute, MAD_LAP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_captured_mad_is_written_as_it_was_read),
		cmocka_unit_test(the_fields_of_a_connection_are_where_they_belong),
		cmocka_unit_test(the_fields_of_a_rejection_are_where_they_belong),
		cmocka_unit_test(the_fields_of_sidr_are_where_they_belong),
		cmocka_unit_test(nothing_is_lost_on_the_way),
		cmocka_unit_test(what_is_no_message_of_the_cm_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
