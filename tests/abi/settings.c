/* SPDX-License-Identifier: MIT */
/* What the environment says about devices: each case is a process of its own, as the settings are read once. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

/* Not in the public headers */
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *text, size_t size);

#define EXPECT(condition)                                                                       \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			_exit(1);                                                               \
		}                                                                               \
	} while (0)

static void with(const char *variable, const char *value, void (*check)(void))
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (!child) {
		unsetenv("UROCE_DEVICES");
		unsetenv("UROCE_PROFILE");
		setenv(variable, value, 1);
		check();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
}

static struct ibv_context *open_device(unsigned index)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	EXPECT(list);
	for (unsigned i = 0; i < index; i++)
		EXPECT(list[i]);

	struct ibv_context *context = ibv_open_device(list[index]);

	EXPECT(context);
	ibv_free_device_list(list);
	return context;
}

static void no_device(void)
{
	int count = -1;

	/* twice: the second answer must not be kinder */
	for (int i = 0; i < 2; i++) {
		errno = 0;
		EXPECT(!ibv_get_device_list(&count));
		EXPECT(errno == EINVAL);
		EXPECT(count == 0);
	}
}

static void unknown_profile_leaves_no_device(void **state)
{
	(void)state;
	with("UROCE_PROFILE", "connectx-99", no_device);
}

static void unknown_timing_leaves_no_device(void **state)
{
	static const char *const wrong[] = { "radnom:7", "random", "random:", "random:7x",
					     "later" };

	(void)state;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		with("UROCE_TIMING", wrong[i], no_device);
}

/* One that is not there or others' is another matter: the device does without. */
static void relative_directory_leaves_no_device(void **state)
{
	(void)state;
	with("UROCE_RUNTIME_DIR", "somewhere", no_device);
}

static void wrong_names_leave_no_device(void **state)
{
	static const char *const wrong[] = { "a,a", ":lo", "a:",   "a:lo+", "a b",
					     ".a",  "a/b", "a,,b", "a,",    "a:a-name-of-16-long" };

	(void)state;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		with("UROCE_DEVICES", wrong[i], no_device);
}

static void two_devices(void)
{
	static const uint8_t loopback[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	struct ibv_context *one = open_device(0), *two = open_device(1);
	union ibv_gid gid;

	EXPECT(!strcmp(ibv_get_device_name(one->device), "one"));
	EXPECT(!strcmp(ibv_get_device_name(two->device), "two"));
	EXPECT(!strcmp(two->device->dev_name, "uverbs1"));
	EXPECT(ibv_get_device_index(two->device) == 1);
	EXPECT(ibv_get_device_guid(one->device) != ibv_get_device_guid(two->device));
	EXPECT(!ibv_query_gid(one, 1, 0, &gid) && !memcmp(&gid, loopback, sizeof(gid)));

	/* Objects of different devices do not go together. */
	struct ibv_pd *pd = ibv_alloc_pd(one);
	struct ibv_cq *cq = ibv_create_cq(two, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };

	EXPECT(pd && cq);
	EXPECT(!ibv_create_qp(pd, &attr) && errno == EINVAL);
	EXPECT(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(one) &&
	       !ibv_close_device(two));
}

static void devices_are_bound_to_their_interfaces(void **state)
{
	(void)state;
	with("UROCE_DEVICES", "one:lo,two", two_devices);
}

static void port_is_down(void)
{
	struct ibv_context *context = open_device(0);
	struct ibv_port_attr attr;

	EXPECT(!ibv_query_port(context, 1, &attr));
	EXPECT(attr.state == IBV_PORT_DOWN);
	EXPECT(!ibv_close_device(context));
}

static void device_without_an_address_has_its_port_down(void **state)
{
	(void)state;
	with("UROCE_DEVICES", "a:no-such-if", port_is_down);
}

static void limits_of_an_e810(void)
{
	struct ibv_context *context = open_device(0);
	struct ibv_device_attr limits;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 6, .max_recv_sge = 6 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_init_attr_ex extended = { 0 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD }, *bad;
	struct ibv_qp *qp;

	EXPECT(!ibv_query_device(context, &limits));
	EXPECT(limits.max_sge == 6 && limits.max_srq == 0 && limits.max_cqe == 1048574 &&
	       limits.max_qp == 4092);
	EXPECT(limits.atomic_cap == IBV_ATOMIC_NONE);
	EXPECT(!ibv_create_srq(pd, &srq) && errno == EOPNOTSUPP);
	EXPECT(!ibv_create_cq(context, limits.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
	qp = ibv_create_qp(pd, &attr);
	EXPECT(qp);
	EXPECT(ibv_post_send(qp, &wr, &bad) == EOPNOTSUPP && bad == &wr);
	EXPECT(!ibv_destroy_qp(qp));
	attr.cap.max_send_sge = 7;
	EXPECT(!ibv_create_qp(pd, &attr) && errno == EINVAL);
	attr.cap.max_send_sge = 1;
	attr.cap.max_inline_data = 102;
	EXPECT(!ibv_create_qp(pd, &attr) && errno == EINVAL);
	attr.cap.max_inline_data = 0;
	memcpy(&extended, &attr, sizeof(attr));
	extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	extended.pd = pd;
	extended.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	EXPECT(!ibv_create_qp_ex(context, &extended) && errno == EOPNOTSUPP);
	EXPECT(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

static void profile_is_reported_and_enforced(void **state)
{
	(void)state;
	with("UROCE_PROFILE", "e810", limits_of_an_e810);
}

static char directory[] = "/tmp/uroce-settings-XXXXXX";

static void tree_is_there(void)
{
	struct ibv_context *context = open_device(0);
	const struct ibv_device *device = context->device;
	char path[512], text[64];
	struct stat stat;
	FILE *file;

	EXPECT(!strncmp(ibv_get_sysfs_path(), directory, strlen(directory)));
	snprintf(path, sizeof(path), "%s/class/infiniband", ibv_get_sysfs_path());
	EXPECT(!lstat(path, &stat) && S_ISDIR(stat.st_mode));
	snprintf(path, sizeof(path), "%s/ports/1/link_layer", device->ibdev_path);
	file = fopen(path, "r");
	EXPECT(file && fgets(text, sizeof(text), file) && !strcmp(text, "Ethernet\n"));
	fclose(file);
	snprintf(path, sizeof(path), "%s/ibdev", device->dev_path);
	file = fopen(path, "r");
	EXPECT(file && fgets(text, sizeof(text), file) && !strcmp(text, "uroce0\n"));
	fclose(file);
	EXPECT(!ibv_close_device(context));
}

static void tree_of_files_is_rendered_and_rendered_again(void **state)
{
	char first[512], again[512], path[512];
	ssize_t length;

	(void)state;
	assert_non_null(mkdtemp(directory));
	with("UROCE_RUNTIME_DIR", directory, tree_is_there);
	snprintf(path, sizeof(path), "%s/sys/class/infiniband/uroce0", directory);
	length = readlink(path, first, sizeof(first));
	assert_true(length > 0);
	with("UROCE_RUNTIME_DIR", directory, tree_is_there);
	assert_int_equal(readlink(path, again, sizeof(again)), length);
	assert_memory_equal(first, again, (size_t)length);
	snprintf(path, sizeof(path), "rm -r %s", directory);
	assert_int_equal(system(path), 0);
}

static void device_without_a_tree(void)
{
	struct ibv_context *context = open_device(0);
	char text[64];

	EXPECT(ibv_read_sysfs_file(context->device->ibdev_path, "board_id", text, sizeof(text)) >
	       0);
	EXPECT(!strcmp(text, "uroce"));
	EXPECT(!ibv_close_device(context));
}

static void directory_of_others_is_not_used(void **state)
{
	char shared[] = "/tmp/uroce-settings-XXXXXX", path[512];

	(void)state;
	assert_non_null(mkdtemp(shared));
	assert_int_equal(chmod(shared, 0777), 0);
	with("UROCE_RUNTIME_DIR", shared, device_without_a_tree);
	with("UROCE_RUNTIME_DIR", "/proc/no/such", device_without_a_tree);
	snprintf(path, sizeof(path), "%s/sys", shared);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(rmdir(shared), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unknown_profile_leaves_no_device),
		cmocka_unit_test(unknown_timing_leaves_no_device),
		cmocka_unit_test(relative_directory_leaves_no_device),
		cmocka_unit_test(wrong_names_leave_no_device),
		cmocka_unit_test(devices_are_bound_to_their_interfaces),
		cmocka_unit_test(device_without_an_address_has_its_port_down),
		cmocka_unit_test(profile_is_reported_and_enforced),
		cmocka_unit_test(tree_of_files_is_rendered_and_rendered_again),
		cmocka_unit_test(directory_of_others_is_not_used),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
