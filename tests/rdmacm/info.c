/* SPDX-License-Identifier: MIT */
/* rdma_getaddrinfo(3): names, hints and contradictions. */
#include "meet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>

static void a_destination_is_found(void **state)
{
	struct rdma_addrinfo *info;
	const struct sockaddr_in *address;

	(void)state;
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", NULL, &info), 0);
	assert_int_equal(info->ai_family, AF_INET);
	assert_int_equal(info->ai_qp_type, IBV_QPT_RC);
	assert_int_equal(info->ai_port_space, RDMA_PS_TCP);
	assert_int_equal(info->ai_dst_len, sizeof(*address));
	assert_int_equal(info->ai_src_len, 0);
	assert_int_equal(info->ai_route_len, 0);
	assert_null(info->ai_next);
	address = (const struct sockaddr_in *)info->ai_dst_addr;
	assert_int_equal(address->sin_port, htons(7471));
	assert_int_equal(address->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	rdma_freeaddrinfo(info);
}

static void a_passive_side_without_a_name_is_the_wildcard(void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE | RAI_FAMILY, .ai_family = AF_INET6, .ai_port_space = RDMA_PS_TCP };
	const struct sockaddr_in6 *address;
	struct rdma_addrinfo *info;

	(void)state;
	assert_int_equal(rdma_getaddrinfo(NULL, "7471", &hints, &info), 0);
	assert_int_equal(info->ai_flags & RAI_PASSIVE, RAI_PASSIVE);
	assert_int_equal(info->ai_src_len, sizeof(*address));
	assert_int_equal(info->ai_dst_len, 0);
	address = (const struct sockaddr_in6 *)info->ai_src_addr;
	assert_int_equal(address->sin6_port, htons(7471));
	assert_memory_equal(&address->sin6_addr, &in6addr_any, sizeof(in6addr_any));
	rdma_freeaddrinfo(info);
}

static void port_space_and_type_complete_each_other(void **state)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_UDP };
	struct rdma_addrinfo *info;

	(void)state;
	assert_int_equal(rdma_getaddrinfo("::1", "7", &hints, &info), 0);
	assert_int_equal(info->ai_qp_type, IBV_QPT_UD);
	assert_int_equal(info->ai_family, AF_INET6);
	rdma_freeaddrinfo(info);
	hints = (struct rdma_addrinfo){ .ai_qp_type = IBV_QPT_UD };
	assert_int_equal(rdma_getaddrinfo("::1", "7", &hints, &info), 0);
	assert_int_equal(info->ai_port_space, RDMA_PS_UDP);
	rdma_freeaddrinfo(info);
	hints = (struct rdma_addrinfo){ .ai_port_space = RDMA_PS_IB, .ai_qp_type = IBV_QPT_UC };
	assert_int_equal(rdma_getaddrinfo("::1", "7", &hints, &info), 0);
	assert_int_equal(info->ai_port_space, RDMA_PS_IB);
	assert_int_equal(info->ai_qp_type, IBV_QPT_UC);
	rdma_freeaddrinfo(info);
}

static void a_source_is_taken_from_the_hints(void **state)
{
	struct sockaddr_in source;
	struct rdma_addrinfo hints = { .ai_src_addr = (struct sockaddr *)&source, .ai_src_len = sizeof(source) };
	struct rdma_addrinfo *info;

	(void)state;
	set_loopback(&source, 0);
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7", &hints, &info), 0);
	assert_int_equal(info->ai_src_len, sizeof(source));
	assert_memory_equal(info->ai_src_addr, &source, sizeof(source));
	assert_ptr_not_equal(info->ai_src_addr, &source);
	rdma_freeaddrinfo(info);
	/* With hints only */
	hints.ai_dst_addr = (struct sockaddr *)&source;
	hints.ai_dst_len = sizeof(source);
	assert_int_equal(rdma_getaddrinfo(NULL, NULL, &hints, &info), 0);
	assert_int_equal(info->ai_dst_len, sizeof(source));
	assert_int_equal(info->ai_qp_type, IBV_QPT_RC);
	rdma_freeaddrinfo(info);
}

static void what_cannot_be_is_refused(void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST }, *info;

	(void)state;
	assert_int_equal(failure(rdma_getaddrinfo(NULL, NULL, NULL, &info)), EINVAL);
	assert_int_equal(rdma_getaddrinfo("localhost", NULL, &hints, &info), EAI_NONAME);
	hints = (struct rdma_addrinfo){ .ai_flags = 0x100 };
	assert_int_equal(rdma_getaddrinfo("::1", NULL, &hints, &info), EAI_BADFLAGS);
	hints = (struct rdma_addrinfo){ .ai_port_space = RDMA_PS_TCP, .ai_qp_type = IBV_QPT_UD };
	assert_int_equal(rdma_getaddrinfo("::1", NULL, &hints, &info), EAI_SOCKTYPE);
	hints = (struct rdma_addrinfo){ .ai_flags = RAI_FAMILY, .ai_family = AF_UNIX };
	assert_int_equal(rdma_getaddrinfo("::1", NULL, &hints, &info), EAI_FAMILY);
	hints = (struct rdma_addrinfo){ .ai_flags = RAI_FAMILY, .ai_family = AF_INET };
	assert_int_not_equal(rdma_getaddrinfo("::1", NULL, &hints, &info), 0);
	rdma_freeaddrinfo(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_destination_is_found),
		cmocka_unit_test(a_passive_side_without_a_name_is_the_wildcard),
		cmocka_unit_test(port_space_and_type_complete_each_other),
		cmocka_unit_test(a_source_is_taken_from_the_hints),
		cmocka_unit_test(what_cannot_be_is_refused),
	};

	return cmocka_run_group_tests_name("info", tests, NULL, NULL);
}
