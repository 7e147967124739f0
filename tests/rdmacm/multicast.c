/* SPDX-License-Identifier: MIT */
/* Groups: joining, their events, leaving (rdma_join_multicast(3)). */
#include "meet.h"

#include <arpa/inet.h>
#include <errno.h>

struct member {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct sockaddr_in group;
};

static void bind_member(struct member *member)
{
	struct sockaddr_in address;

	member->channel = rdma_create_event_channel();
	assert_non_null(member->channel);
	member->group = (struct sockaddr_in){ .sin_family = AF_INET };
	assert_int_equal(inet_pton(AF_INET, "239.1.2.3", &member->group.sin_addr), 1);
	set_loopback(&address, 0);
	assert_int_equal(failure(rdma_create_id(member->channel, &member->id, NULL, RDMA_PS_UDP)), 0);
	assert_int_equal(failure(rdma_join_multicast(member->id, (struct sockaddr *)&member->group, NULL)), EINVAL);
	assert_int_equal(failure(rdma_bind_addr(member->id, (struct sockaddr *)&address)), 0);
}

static void end(struct member *member)
{
	assert_int_equal(failure(rdma_destroy_id(member->id)), 0);
	rdma_destroy_event_channel(member->channel);
}

static void joining_tells_how_to_send(void **state)
{
	struct rdma_cm_event *event;
	struct member member;
	int context;

	(void)state;
	bind_member(&member);
	assert_int_equal(failure(rdma_join_multicast(member.id, (struct sockaddr *)&member.group, &context)), 0);
	event = expect(member.channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	assert_ptr_equal(event->id, member.id);
	assert_int_equal(event->status, 0);
	assert_ptr_equal(event->param.ud.private_data, &context);
	assert_int_equal(event->param.ud.qp_num, 0xffffff);
	assert_int_equal(event->param.ud.qkey, RDMA_UDP_QKEY);
	assert_int_equal(event->param.ud.ah_attr.is_global, 1);
	assert_int_equal(event->param.ud.ah_attr.port_num, 1);
	/* ::ffff:239.1.2.3 */
	assert_int_equal(event->param.ud.ah_attr.grh.dgid.raw[11], 0xff);
	assert_memory_equal(event->param.ud.ah_attr.grh.dgid.raw + 12, &member.group.sin_addr, 4);
	rdma_ack_cm_event(event);
	assert_int_equal(failure(rdma_leave_multicast(member.id, (struct sockaddr *)&member.group)), 0);
	assert_int_equal(failure(rdma_leave_multicast(member.id, (struct sockaddr *)&member.group)), EADDRNOTAVAIL);
	expect_none(member.channel);
	end(&member);
}

static void an_id_leaves_its_groups_when_it_goes(void **state)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
	};
	struct member member;

	(void)state;
	bind_member(&member);
	attr.addr = (struct sockaddr *)&member.group;
	assert_int_equal(failure(rdma_join_multicast_ex(member.id, &attr, NULL)), 0);
	expect_only(member.channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	member.group.sin_addr.s_addr ^= htonl(1);
	/* The event of this one is not read. */
	assert_int_equal(failure(rdma_join_multicast_ex(member.id, &attr, NULL)), 0);
	end(&member);
}

static void attributes_that_make_no_sense_are_refused(void **state)
{
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS };
	struct member member;

	(void)state;
	bind_member(&member);
	attr.addr = (struct sockaddr *)&member.group;
	assert_int_equal(failure(rdma_join_multicast_ex(member.id, &attr, NULL)), EINVAL);
	attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_ADDRESS;
	attr.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	assert_int_equal(failure(rdma_join_multicast_ex(member.id, &attr, NULL)), EINVAL);
	attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_RESERVED;
	assert_int_equal(failure(rdma_join_multicast_ex(member.id, &attr, NULL)), ENOTSUP);
	assert_int_equal(failure(rdma_leave_multicast(member.id, NULL)), EINVAL);
	expect_none(member.channel);
	end(&member);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(joining_tells_how_to_send),
		cmocka_unit_test(an_id_leaves_its_groups_when_it_goes),
		cmocka_unit_test(attributes_that_make_no_sense_are_refused),
	};

	return cmocka_run_group_tests_name("multicast", tests, NULL, NULL);
}
