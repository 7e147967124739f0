/* SPDX-License-Identifier: MIT */
/*
 * The devices as librdmacm uses them: contexts that all ids share, and on each a default protection domain while ids are bound.
 *
 * The list is made once. A forked child begins with none: its parent's contexts are of no use to it.
 */
#include "rdmacm/rdmacm.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static struct {
	pthread_mutex_t lock;
	struct device *list;
	unsigned count;
	bool begun;
} devices = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Atomic unsigned generation;

static void lock_devices(void)
{
	pthread_mutex_lock(&devices.lock);
}

static void unlock_devices(void)
{
	pthread_mutex_unlock(&devices.lock);
}

/*
 * In the child. What the parent had is not freed: inherited ids point to it. The lock is made anew: somebody may have held it. To take
 * it before the fork would be no way: whoever opens a device takes the NIC's under it, and whoever forks may have that one already.
 */
static void forget_devices(void)
{
	pthread_mutex_init(&devices.lock, NULL);
	devices.list = NULL;
	devices.count = 0;
	devices.begun = false;
	generation++;
}

__attribute__((constructor)) static void watch_fork(void)
{
	pthread_atfork(NULL, NULL, forget_devices);
}

unsigned fork_generation(void)
{
	return generation;
}

static uint8_t at_most_255(int value)
{
	return value < 0 ? 0 : value > UINT8_MAX ? UINT8_MAX : (uint8_t)value;
}

static int open_device(struct ibv_device *ibdev, struct device *device)
{
	struct ibv_device_attr attr;
	int error;

	device->verbs = ibv_open_device(ibdev);
	if (!device->verbs)
		return errno;
	error = ibv_query_device(device->verbs, &attr);
	if (error) {
		ibv_close_device(device->verbs);
		return error;
	}
	device->initiator_depth = at_most_255(attr.max_qp_init_rd_atom);
	device->responder_resources = at_most_255(attr.max_qp_rd_atom);
	return 0;
}

int devices_begin(void)
{
	struct ibv_device **list = NULL;
	int error = 0;

	lock_devices();
	if (!devices.begun) {
		list = ibv_get_device_list(NULL);
		error = list ? 0 : errno;
		devices.begun = list;
	}
	unlock_devices();
	if (list)
		ibv_free_device_list(list);
	return error;
}

/* Opens all that there are. Under the lock. ENODEV: none. */
static int open_devices(void)
{
	struct ibv_device **list;
	struct device *opened;
	unsigned done = 0;
	int count, error = 0;

	if (devices.list)
		return 0;
	list = ibv_get_device_list(&count);
	if (!list)
		return errno;
	opened = calloc((size_t)count + 1, sizeof(*opened));
	if (!opened)
		error = ENOMEM;
	for (; !error && done < (unsigned)count; done++) {
		error = open_device(list[done], &opened[done]);
		if (error)
			break;
	}
	ibv_free_device_list(list);
	if (!error && !done)
		error = ENODEV;
	if (error) {
		while (done)
			ibv_close_device(opened[--done].verbs);
		free(opened);
		return error;
	}
	devices.list = opened;
	devices.count = done;
	return 0;
}

int device_gid_index(const struct device *device, const union ibv_gid *gid)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry *entries;
	ssize_t count;
	int index = -1;

	if (ibv_query_port(device->verbs, 1, &port))
		return -1;
	entries = calloc((size_t)port.gid_tbl_len, sizeof(*entries));
	if (!entries)
		return -1;
	count = ibv_query_gid_table(device->verbs, entries, (size_t)port.gid_tbl_len, 0);
	for (ssize_t i = 0; i < count && index < 0; i++) {
		if (entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(&entries[i].gid, gid, sizeof(*gid)))
			index = (int)entries[i].gid_index;
	}
	free(entries);
	return index;
}

/* Under the lock. */
static int find_device(const union ibv_gid *gid, struct device **device)
{
	int error = open_devices();

	if (error)
		return error;
	for (unsigned i = 0; i < devices.count; i++) {
		if (device_gid_index(&devices.list[i], gid) < 0)
			continue;
		*device = &devices.list[i];
		return 0;
	}
	return ENODEV;
}

int device_hold(const union ibv_gid *gid, struct device **device)
{
	struct device *found = NULL;
	int error;

	lock_devices();
	error = find_device(gid, &found);
	if (!error && !found->pd) {
		found->pd = ibv_alloc_pd(found->verbs);
		if (!found->pd)
			error = errno;
	}
	if (!error) {
		found->users++;
		*device = found;
	}
	unlock_devices();
	return error;
}

void device_release(struct device *device)
{
	lock_devices();
	/* What the program has left on it keeps it, for the next id. */
	if (!--device->users && !ibv_dealloc_pd(device->pd))
		device->pd = NULL;
	unlock_devices();
}

PUBLIC struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct ibv_context **list = NULL;
	int error;

	lock_devices();
	error = open_devices();
	if (!error) {
		list = calloc(devices.count + 1, sizeof(struct ibv_context *));
		if (!list)
			error = ENOMEM;
	}
	for (unsigned i = 0; !error && i < devices.count; i++)
		list[i] = devices.list[i].verbs;
	if (num_devices)
		*num_devices = error ? 0 : (int)devices.count;
	unlock_devices();
	if (error)
		errno = error;
	return list;
}

PUBLIC void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
