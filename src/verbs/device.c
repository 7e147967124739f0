/* SPDX-License-Identifier: MIT */
/*
 * The devices of this process: which there are, what they are called, whose addresses they have.
 *
 * UROCE_DEVICES names them (nic/device_list.h). A device has the addresses of its interfaces, or of all interfaces when
 * none is named. Without the variable there is uroce0 with all of them. Settings that make no sense leave no device and
 * EINVAL, and a line in the log (log.c).
 *
 * Devices are made once and stay, so that a pointer from one list is good in the next. Their GID tables follow the host
 * until a context is opened, and stand still while one is open.
 */
#include "verbs/verbs.h"

#include <dlfcn.h>
#include <endian.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "local/memory.h"
#include "nic/device_list.h"
#include "nic/guid.h"
#include "nic/timing.h"
#include "nic/transport.h"
#include "observe/report.h"
#include "observe/runtime.h"
#include "roce/port.h"

EXPORT(get_device_list, 1.1);
EXPORT(free_device_list, 1.1);
EXPORT(get_device_name, 1.1);
EXPORT(get_device_index, 1.9);
EXPORT(get_device_guid, 1.1);

static struct {
	pthread_mutex_t lock;
	struct verbs_device *list;
	unsigned count;
	struct device_list settings; /* which list points into */
	int error;		     /* of making them; the settings do not get better */
} devices = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void lock_devices(void)
{
	pthread_mutex_lock(&devices.lock);
}

static void unlock_devices(void)
{
	pthread_mutex_unlock(&devices.lock);
}

static void watch_fork(void)
{
	pthread_atfork(lock_devices, unlock_devices, unlock_devices);
}

/* Fills devices. The settings stay: they hold the names of interfaces. */
static int parse_devices(const char *setting)
{
	struct device_list settings;
	char fault[256];
	int error = device_list_parse(&settings, setting, fault, sizeof(fault));

	if (error == EINVAL)
		verbs_log_error("UROCE_DEVICES: %s", fault);
	if (error)
		return error;
	devices.list = calloc(settings.count, sizeof(*devices.list));
	if (!devices.list) {
		device_list_free(&settings);
		return ENOMEM;
	}
	devices.settings = settings;
	devices.count = settings.count;
	for (unsigned i = 0; i < devices.count; i++) {
		devices.list[i].index = i;
		strcpy(devices.list[i].dev.name, settings.entries[i].name);
		devices.list[i].interfaces = settings.entries[i].interfaces;
	}
	return 0;
}

static __be64 make_guid(uint64_t hash)
{
	return htobe64(guid_make(hash));
}

static void identify(struct verbs_device *device)
{
	uint64_t host = guid_hash_host(device->gids.ifindex[0]);

	device->sys_image_guid = make_guid(host);
	device->node_guid = make_guid(guid_hash(host, device->dev.name, strlen(device->dev.name)));
}

static int refresh(struct verbs_device *device)
{
	int error;

	if (device->contexts)
		return 0;
	error = gid_table_read(&device->gids, device->interfaces);
	if (error)
		return error;
	identify(device);
	sysfs_render(device);
	return 0;
}

/* Has causes told if UROCE_EXPLAIN says so. Their translations stand beside the library. */
static void start_report(const char *setting)
{
	char path[PATH_MAX] = "", *slash;
	int kept = runtime_open();
	Dl_info library;

	if (dladdr(&devices, &library) && library.dli_fname && realpath(library.dli_fname, path) &&
	    (slash = strrchr(path, '/')) && slash - path < PATH_MAX - 8)
		strcpy(slash, "/locale");
	report_start(setting, path, kept < 0 ? NULL : runtime_directory());
	if (kept >= 0)
		close(kept);
}

static int make_devices(void)
{
	const char *timing = getenv("UROCE_TIMING"), *memory = getenv("UROCE_MEMORY");
	const char *transport = getenv("UROCE_TRANSPORT"), *port = getenv("UROCE_PORT");
	const char *runtime = getenv("UROCE_RUNTIME_DIR");
	/* It can name a file: not to be believed in a program that has gained privileges. */
	const char *explain = secure_getenv("UROCE_EXPLAIN");
	enum report_way report;
	enum timing_mode mode;
	enum memory_way way;
	bool wire_only;
	uint16_t number;
	uint64_t seed;
	int error;

	/* A program that thinks it ran with unkind timing, or a real card's limits, and did not. */
	if (!nic_limits()) {
		verbs_log_error("UROCE_PROFILE: there is no profile '%s'", getenv("UROCE_PROFILE"));
		return EINVAL;
	}
	if (!timing_parse(timing, &mode, &seed)) {
		verbs_log_error("UROCE_TIMING: '%s' is not understood", timing);
		return EINVAL;
	}
	if (!memory_parse(memory, &way)) {
		verbs_log_error("UROCE_MEMORY: '%s' is not understood", memory);
		return EINVAL;
	}
	if (!transport_parse(transport, &wire_only)) {
		verbs_log_error("UROCE_TRANSPORT: '%s' is not understood", transport);
		return EINVAL;
	}
	if (!port_number(port, &number)) {
		verbs_log_error("UROCE_PORT: '%s' is not understood", port);
		return EINVAL;
	}
	if (!runtime_parse(runtime)) {
		verbs_log_error("UROCE_RUNTIME_DIR: '%s' is not an absolute path", runtime);
		return EINVAL;
	}
	if (!report_parse(explain, &report)) {
		verbs_log_error("UROCE_EXPLAIN: '%s' cannot be appended to: %s", explain, strerror(errno));
		return EINVAL;
	}
	if (report != REPORT_OFF)
		start_report(explain);
	error = parse_devices(getenv("UROCE_DEVICES"));
	if (error)
		return error;
	for (unsigned i = 0; i < devices.count; i++) {
		devices.list[i].dev.node_type = IBV_NODE_CA;
		devices.list[i].dev.transport_type = IBV_TRANSPORT_IB;
		sysfs_name_paths(&devices.list[i]);
	}
	return 0;
}

struct verbs_device *devices_get(unsigned *count, bool fresh)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int error;

	pthread_once(&once, watch_fork);
	lock_devices();
	if (!devices.list && !devices.error)
		devices.error = make_devices();
	error = devices.error;
	for (unsigned i = 0; fresh && !error && i < devices.count; i++)
		error = refresh(&devices.list[i]);
	*count = error ? 0 : devices.count;
	unlock_devices();
	if (!error)
		return devices.list;
	errno = error;
	return NULL;
}

void device_hold(struct verbs_device *device)
{
	lock_devices();
	device->contexts++;
	unlock_devices();
}

void device_release(struct verbs_device *device)
{
	lock_devices();
	device->contexts--;
	unlock_devices();
}

struct ibv_device **verb_get_device_list(int *num_devices)
{
	unsigned count;
	struct verbs_device *list = devices_get(&count, true);
	struct ibv_device **pointers = NULL;

	if (list)
		pointers = calloc(count + 1, sizeof(struct ibv_device *));
	if (!pointers)
		count = 0;
	for (unsigned i = 0; i < count; i++)
		pointers[i] = &list[i].dev;
	if (num_devices)
		*num_devices = (int)count;
	return pointers;
}

void verb_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *verb_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int verb_get_device_index(struct ibv_device *device)
{
	return (int)to_device(device)->index;
}

__be64 verb_get_device_guid(struct ibv_device *device)
{
	return to_device(device)->node_guid;
}
