/* SPDX-License-Identifier: MIT */
/*
 * The devices of this process: which there are, what they are called, whose addresses they have.
 *
 * UROCE_DEVICES names them: a list of name[:interface[+interface...]] separated by commas, as in
 * "uroce0:eth0+eth1,uroce1:lo". A device has the addresses of its interfaces, or of all interfaces when none is named.
 * Without the variable there is uroce0 with all of them. Settings that make no sense leave no device and EINVAL.
 *
 * Devices are made once and stay, so that a pointer from one list is good in the next. Their GID tables follow the host
 * until a context is opened, and stand still while one is open.
 */
#include "verbs/verbs.h"

#include <ctype.h>
#include <endian.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "local/memory.h"
#include "nic/timing.h"

EXPORT(get_device_list, 1.1);
EXPORT(free_device_list, 1.1);
EXPORT(get_device_name, 1.1);
EXPORT(get_device_index, 1.9);
EXPORT(get_device_guid, 1.1);

static struct {
	pthread_mutex_t lock;
	struct verbs_device *list;
	unsigned count;
	char *text; /* the setting, cut into the names that list points to */
	int error;  /* of making them; the settings do not get better */
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

/* A name becomes a file's name. */
static bool name_is_valid(const char *name)
{
	if (!*name || *name == '.' || strlen(name) >= sizeof(((struct ibv_device *)0)->name))
		return false;
	for (; *name; name++)
		if (!isalnum((unsigned char)*name) && !strchr("_-.", *name))
			return false;
	return true;
}

/* Cuts "eth0+eth1" into names, NULL at the end; they stay part of text. NULL when one is none, or without memory. */
static const char **parse_interfaces(char *text)
{
	unsigned count = 0;
	const char **interfaces = calloc(strlen(text) + 2, sizeof(*interfaces));

	for (char *name; interfaces && (name = strsep(&text, "+"));) {
		if (!*name || strlen(name) >= IF_NAMESIZE) {
			free(interfaces);
			return NULL;
		}
		interfaces[count++] = name;
	}
	return interfaces;
}

static bool parse_device(char *text, struct verbs_device *device)
{
	char *name = strsep(&text, ":");

	if (!name_is_valid(name))
		return false;
	strcpy(device->dev.name, name);
	for (unsigned i = 0; i < device->index; i++)
		if (!strcmp(device[-1 - (int)i].dev.name, name))
			return false;
	if (text)
		device->interfaces = parse_interfaces(text);
	return !text || device->interfaces;
}

static void free_devices(struct verbs_device *list, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		free(list[i].interfaces);
	free(list);
}

/* Fills devices. The text stays allocated: they point into it. */
static int parse_devices(const char *setting)
{
	char *text = strdup(setting), *rest = text;
	unsigned room = 1;

	if (!text)
		return ENOMEM;
	for (const char *c = text; *c; c++)
		room += *c == ',';
	struct verbs_device *list = calloc(room, sizeof(*list));
	int error = list ? 0 : ENOMEM;

	for (unsigned i = 0; !error && i < room; i++) {
		list[i].index = i;
		if (!parse_device(strsep(&rest, ","), &list[i]))
			error = EINVAL;
	}
	if (error) {
		free_devices(list, list ? room : 0);
		free(text);
		return error;
	}
	devices.text = text;
	devices.list = list;
	devices.count = room;
	return 0;
}

/* FNV-1a, 64 bits */
static uint64_t hash(uint64_t seed, const void *data, size_t length)
{
	for (const uint8_t *byte = data; length--; byte++)
		seed = (seed ^ *byte) * 0x100000001b3;
	return seed;
}

/* What tells this host from others: the hardware address of an interface, else the machine's id, else its name. */
static uint64_t hash_host(uint32_t ifindex)
{
	static const uint8_t no_address[6];
	uint64_t value = 0xcbf29ce484222325;
	struct ifaddrs *list = NULL;
	char text[256] = { 0 };
	bool found = false;

	if (getifaddrs(&list))
		list = NULL;
	for (struct ifaddrs *ifa = list; ifa && !found; ifa = ifa->ifa_next) {
		const struct sockaddr_ll *addr = (const struct sockaddr_ll *)ifa->ifa_addr;

		if (!addr || addr->sll_family != AF_PACKET || addr->sll_ifindex != (int)ifindex ||
		    addr->sll_halen != sizeof(no_address) ||
		    !memcmp(addr->sll_addr, no_address, sizeof(no_address)))
			continue;
		value = hash(value, addr->sll_addr, sizeof(no_address));
		found = true;
	}
	freeifaddrs(list);
	if (found)
		return value;

	FILE *file = fopen("/etc/machine-id", "re");

	if (!file || !fgets(text, sizeof(text), file) || !*text)
		gethostname(text, sizeof(text) - 1);
	if (file)
		fclose(file);
	return hash(value, text, strlen(text));
}

/* A GUID of ours: its first byte says "locally administered", so that no maker's number is taken. */
static __be64 make_guid(uint64_t value)
{
	return htobe64((value >> 8) | 0x0200000000000000);
}

static void identify(struct verbs_device *device)
{
	uint64_t host = hash_host(device->gids.ifindex[0]);

	device->sys_image_guid = make_guid(host);
	device->node_guid = make_guid(hash(host, device->dev.name, strlen(device->dev.name)));
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

static int make_devices(void)
{
	const char *setting = getenv("UROCE_DEVICES");
	int error;

	enum timing_mode mode;
	enum memory_way way;
	uint64_t seed;

	/* A program that thinks it ran with unkind timing, or a real card's limits, and did not. */
	if (!nic_limits() || !timing_parse(getenv("UROCE_TIMING"), &mode, &seed) ||
	    !memory_parse(getenv("UROCE_MEMORY"), &way))
		return EINVAL;
	error = parse_devices(setting && *setting ? setting : "uroce0");
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
