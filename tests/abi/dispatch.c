/* SPDX-License-Identifier: MIT */
/* What inline functions, old programs and provider libraries find in a device, a context and behind their descriptors. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <infiniband/verbs.h>

/* Not in the public headers */
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *text, size_t size);

static struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	assert_non_null(list);
	assert_non_null(list[0]);
	context = ibv_open_device(list[0]);
	assert_non_null(context);
	ibv_free_device_list(list);
	return context;
}

static int open_context(void **state)
{
	*state = open_first();
	return 0;
}

static int close_context(void **state)
{
	return ibv_close_device(*state);
}

static void device_is_the_same_in_every_list(void **state)
{
	int count = -1;
	struct ibv_device **first = ibv_get_device_list(&count),
			  **second = ibv_get_device_list(NULL);

	(void)state;
	assert_int_equal(count, 1);
	assert_ptr_equal(first[0], second[0]);
	assert_null(first[1]);
	ibv_free_device_list(first);
	assert_string_equal(ibv_get_device_name(second[0]), "uroce0");
	ibv_free_device_list(second);
}

static void device_is_a_channel_adapter(void **state)
{
	const struct ibv_context *context = *state;
	const struct ibv_device *device = context->device;

	assert_int_equal(device->node_type, IBV_NODE_CA);
	assert_int_equal(device->transport_type, IBV_TRANSPORT_IB);
	assert_string_equal(device->dev_name, "uverbs0");
	assert_true(ibv_get_device_guid(context->device) != 0);
	assert_int_equal(ibv_get_device_index(context->device), 0);
}

/* libmlx5, libmlx4 and libefa compare what they find here with tables of their own. */
static void device_is_followed_by_zeroes(void **state)
{
	const struct ibv_context *context = *state;
	const uint8_t *behind = (const uint8_t *)(context->device + 1);

	for (unsigned i = 0; i < 720; i++)
		assert_int_equal(behind[i], 0);
}

static void context_is_extended(void **state)
{
	struct ibv_context *context = *state;
	struct verbs_context *vctx = verbs_get_ctx(context);

	assert_ptr_equal(context->abi_compat, (void *)UINTPTR_MAX);
	assert_non_null(vctx);
	assert_int_equal(vctx->sz, sizeof(*vctx));
	assert_non_null(vctx->query_port);
	assert_non_null(vctx->query_device_ex);
	assert_non_null(vctx->create_cq_ex);
	assert_non_null(vctx->create_qp_ex);
	assert_non_null(vctx->create_srq_ex);
	assert_non_null(vctx->query_rt_values);
	assert_true(context->num_comp_vectors >= 1);
}

static void old_programs_find_their_functions(void **state)
{
	struct ibv_context *context = *state;
	struct verbs_context *vctx = verbs_get_ctx(context);
	struct ibv_device_attr attr;

	assert_ptr_equal(vctx->ABI_placeholder1, (void (*)(void))vctx->ibv_create_flow);
	assert_ptr_equal(vctx->ABI_placeholder2, (void (*)(void))vctx->ibv_destroy_flow);
	assert_non_null(context->ops._compat_query_port);
	assert_int_equal(context->ops._compat_query_device(context, &attr), 0);
	assert_int_equal(attr.phys_port_cnt, 1);
}

/* verbs.h calls these without asking. */
static void unchecked_operations_are_there(void **state)
{
	struct ibv_context *context = *state;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mw *mw;
	struct ibv_xrcd xrcd = { .context = context };

	assert_non_null(context->ops.poll_cq);
	assert_non_null(context->ops.req_notify_cq);
	assert_non_null(context->ops.post_send);
	assert_non_null(context->ops.post_recv);
	assert_non_null(context->ops.post_srq_recv);
	assert_non_null(context->ops.bind_mw);
	assert_int_equal(ibv_close_xrcd(&xrcd), EOPNOTSUPP);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	assert_non_null(mw);
	assert_ptr_equal(mw->context, context);
	assert_ptr_equal(mw->pd, pd);
	assert_int_equal(mw->type, IBV_MW_TYPE_1);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void what_is_not_there_is_not_supported(void **state)
{
	struct ibv_context *context = *state;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = 0 };
	struct ibv_alloc_dm_attr dm = { .length = 64 };
	struct ibv_td_init_attr td = { .comp_mask = 0 };
	struct ibv_parent_domain_init_attr parent = { .pd = pd };
	struct ibv_wq_init_attr wq = { .pd = pd };
	struct ibv_counters_init_attr counters = { .comp_mask = 0 };

#define NOT_SUPPORTED(call)                          \
	do {                                         \
		errno = 0;                           \
		assert_null(call);                   \
		assert_int_equal(errno, EOPNOTSUPP); \
	} while (0)
	NOT_SUPPORTED(ibv_open_xrcd(context, &xrcd));
	NOT_SUPPORTED(ibv_alloc_dm(context, &dm));
	NOT_SUPPORTED(ibv_alloc_td(context, &td));
	NOT_SUPPORTED(ibv_alloc_parent_domain(context, &parent));
	NOT_SUPPORTED(ibv_create_wq(context, &wq));
	NOT_SUPPORTED(ibv_create_counters(context, &counters));
	NOT_SUPPORTED(ibv_alloc_null_mr(pd));
	NOT_SUPPORTED(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE));
	NOT_SUPPORTED(ibv_import_device(context->cmd_fd));
	NOT_SUPPORTED(ibv_import_pd(context, 1));
	assert_int_equal(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0), EOPNOTSUPP);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* Programs duplicate, stat, poll and set O_NONBLOCK on them. */
static void descriptors_behave(void **state)
{
	struct ibv_context *context = *state;
	struct pollfd polled = { .fd = context->async_fd, .events = POLLIN };
	int copy = dup(context->cmd_fd);
	struct ibv_async_event event;
	struct stat stat;

	assert_true(copy >= 0);
	assert_int_equal(fstat(copy, &stat), 0);
	assert_int_equal(close(copy), 0);
	assert_int_equal(poll(&polled, 1, 0), 0);
	assert_int_equal(fcntl(context->async_fd, F_SETFL,
			       fcntl(context->async_fd, F_GETFL) | O_NONBLOCK),
			 0);
	errno = 0;
	assert_int_equal(ibv_get_async_event(context, &event), -1);
	assert_int_equal(errno, EAGAIN);
}

static void empty_channel_that_does_not_block_says_eagain(void **state)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(*state);
	struct ibv_cq *cq;
	void *cq_context;

	assert_non_null(channel);
	assert_int_equal(channel->refcnt, 0);
	assert_int_equal(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), 0);
	errno = 0;
	assert_int_equal(ibv_get_cq_event(channel, &cq, &cq_context), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

static void device_attributes_are_honest(void **state)
{
	struct ibv_device_attr_ex attr;

	assert_int_equal(ibv_query_device_ex(*state, NULL, &attr), 0);
	assert_true(attr.orig_attr.node_guid && attr.orig_attr.sys_image_guid &&
		    attr.orig_attr.vendor_id);
	assert_true(attr.orig_attr.fw_ver[0]);
	assert_true(attr.orig_attr.max_qp >= 65536 && attr.orig_attr.max_cq >= 65536);
	assert_true(attr.orig_attr.max_mr >= 1 << 20);
	assert_true(attr.orig_attr.max_cqe >= 1 << 22);
	assert_true(attr.orig_attr.max_qp_wr >= 32768);
	assert_true(attr.orig_attr.max_sge >= 32);
	assert_true(attr.orig_attr.max_qp_rd_atom >= 128);
	assert_int_equal(attr.orig_attr.atomic_cap, IBV_ATOMIC_HCA);
	assert_true(attr.orig_attr.max_mw >= 65536);
	assert_int_equal(attr.orig_attr.device_cap_flags &
				 (IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
				  IBV_DEVICE_XRC | IBV_DEVICE_SRQ_RESIZE),
			 IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	assert_int_equal(attr.odp_caps.general_caps, 0);
	assert_int_equal(attr.hca_core_clock, 1000000);
	assert_int_equal(attr.phys_port_cnt_ex, 1);
}

static void device_query_fills_the_size_that_is_asked_for(void **state)
{
	struct ibv_context *context = *state;
	struct verbs_context *vctx = verbs_get_ctx(context);
	struct {
		struct ibv_device_attr_ex attr;
		uint8_t newer[64];
	} room;
	size_t shorter = offsetof(struct ibv_device_attr_ex, hca_core_clock);

	memset(&room, 0xee, sizeof(room));
	assert_int_equal(vctx->query_device_ex(context, NULL, &room.attr, shorter), 0);
	assert_int_equal(((uint8_t *)&room)[shorter], 0xee);
	assert_int_equal(vctx->query_device_ex(context, NULL, &room.attr, sizeof(room)), 0);
	for (unsigned i = 0; i < sizeof(room.newer); i++)
		assert_int_equal(room.newer[i], 0);
}

static void port_is_an_active_roce_port(void **state)
{
	struct ibv_port_attr attr;
	struct ibv_context *context = *state;
	__be16 pkey;

	assert_int_equal(ibv_query_port(context, 1, &attr), 0);
	assert_int_equal(attr.state, IBV_PORT_ACTIVE);
	assert_int_equal(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(attr.max_mtu, IBV_MTU_4096);
	assert_in_range(attr.active_mtu, IBV_MTU_256, attr.max_mtu);
	assert_int_equal(attr.lid, 0);
	assert_int_equal(attr.pkey_tbl_len, 1);
	assert_int_equal(ibv_query_pkey(context, 1, 0, &pkey), 0);
	assert_int_equal(pkey, 0xffff);
	assert_int_equal(ibv_query_pkey(context, 1, 1, &pkey), -1);
	assert_int_equal(ibv_get_pkey_index(context, 1, 0xffff), 0);
	assert_int_equal(ibv_query_port(context, 0, &attr), EINVAL);
	assert_int_equal(ibv_query_port(context, 2, &attr), EINVAL);
}

static void port_query_fills_the_size_that_is_asked_for(void **state)
{
	struct ibv_context *context = *state;
	struct {
		struct ibv_port_attr attr;
		uint8_t newer[4];
	} room;

	memset(&room, 0xee, sizeof(room));
	assert_int_equal((ibv_query_port)(context, 1, (struct _compat_ibv_port_attr *)&room.attr),
			 0);
	assert_int_equal(room.attr.state, IBV_PORT_ACTIVE);
	assert_int_equal(room.attr.port_cap_flags2, 0xeeee);
	assert_int_equal(verbs_get_ctx(context)->query_port(context, 1, &room.attr, sizeof(room)),
			 0);
	assert_int_equal(room.attr.port_cap_flags2, 0);
	assert_int_equal(room.newer[0], 0);
}

static void gid_table_has_room_and_its_gaps_are_told(void **state)
{
	struct ibv_context *context = *state;
	struct ibv_port_attr attr;
	struct ibv_gid_entry entries[256], entry;
	union ibv_gid gid, zero = { 0 };
	char name[IF_NAMESIZE];
	ssize_t count;

	assert_int_equal(ibv_query_port(context, 1, &attr), 0);
	count = ibv_query_gid_table(context, entries, 256, 0);
	assert_true(count > 0 && count < attr.gid_tbl_len);
	for (uint32_t i = 0; i < (uint32_t)count; i++) {
		assert_int_equal(entries[i].gid_index, i);
		assert_int_equal(entries[i].gid_type, IBV_GID_TYPE_ROCE_V2);
		assert_non_null(if_indextoname(entries[i].ndev_ifindex, name));
		assert_int_equal(ibv_query_gid(context, 1, (int)i, &gid), 0);
		assert_memory_equal(&gid, &entries[i].gid, sizeof(gid));
		assert_memory_not_equal(&gid, &zero, sizeof(gid));
	}
	assert_int_equal(ibv_query_gid(context, 1, attr.gid_tbl_len - 1, &gid), 0);
	assert_memory_equal(&gid, &zero, sizeof(gid));
	assert_int_equal(ibv_query_gid_ex(context, 1, (uint32_t)attr.gid_tbl_len - 1, &entry, 0),
			 ENODATA);
	assert_int_equal(ibv_query_gid_ex(context, 1, (uint32_t)attr.gid_tbl_len, &entry, 0),
			 EINVAL);
	assert_int_equal(ibv_query_gid(context, 1, attr.gid_tbl_len, &gid), -1);
	assert_int_equal(ibv_query_gid(context, 1, -1, &gid), -1);
	assert_int_equal(ibv_query_gid_table(context, entries, 0, 0), -EINVAL);
}

static void clock_is_that_of_the_timestamps(void **state)
{
	struct ibv_values_ex before = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK }, after = before;
	struct timespec now;

	assert_int_equal(ibv_query_rt_values_ex(*state, &before), 0);
	clock_gettime(CLOCK_REALTIME, &now);
	assert_int_equal(ibv_query_rt_values_ex(*state, &after), 0);
	assert_true(before.raw_clock.tv_nsec <= now.tv_sec * 1000000000 + now.tv_nsec);
	assert_true(after.raw_clock.tv_nsec >= now.tv_sec * 1000000000 + now.tv_nsec);
}

static void files_beside_the_verbs_can_be_read(void **state)
{
	const struct ibv_context *context = *state;
	const char *path = context->device->ibdev_path;
	char text[64];

	assert_int_equal(ibv_read_sysfs_file(path, "board_id", text, sizeof(text)),
			 strlen("uroce"));
	assert_string_equal(text, "uroce");
	assert_true(ibv_read_sysfs_file(path, "ports/1/gids/0", text, sizeof(text)) == 39);
	assert_int_equal(ibv_read_sysfs_file(path, "no such file", text, sizeof(text)), -1);
	assert_true(*ibv_get_sysfs_path() == '/');
}

static void several_contexts_are_independent(void **state)
{
	struct ibv_context *other = open_first();
	struct ibv_pd *ours, *theirs;

	assert_ptr_not_equal(other, *state);
	assert_int_not_equal(other->async_fd, ((struct ibv_context *)*state)->async_fd);
	ours = ibv_alloc_pd(*state);
	theirs = ibv_alloc_pd(other);
	assert_int_not_equal(ours->handle, theirs->handle);
	assert_int_equal(ibv_dealloc_pd(theirs), 0);
	assert_int_equal(ibv_close_device(other), 0);
	assert_int_equal(ibv_dealloc_pd(ours), 0);
}

#define ON_CONTEXT(test) cmocka_unit_test_setup_teardown(test, open_context, close_context)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_is_the_same_in_every_list),
		ON_CONTEXT(device_is_a_channel_adapter),
		ON_CONTEXT(device_is_followed_by_zeroes),
		ON_CONTEXT(context_is_extended),
		ON_CONTEXT(old_programs_find_their_functions),
		ON_CONTEXT(unchecked_operations_are_there),
		ON_CONTEXT(what_is_not_there_is_not_supported),
		ON_CONTEXT(descriptors_behave),
		ON_CONTEXT(empty_channel_that_does_not_block_says_eagain),
		ON_CONTEXT(device_attributes_are_honest),
		ON_CONTEXT(device_query_fills_the_size_that_is_asked_for),
		ON_CONTEXT(port_is_an_active_roce_port),
		ON_CONTEXT(port_query_fills_the_size_that_is_asked_for),
		ON_CONTEXT(gid_table_has_room_and_its_gaps_are_told),
		ON_CONTEXT(clock_is_that_of_the_timestamps),
		ON_CONTEXT(files_beside_the_verbs_can_be_read),
		ON_CONTEXT(several_contexts_are_independent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
