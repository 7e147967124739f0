/* SPDX-License-Identifier: MIT */
/*
 * The files that programs read beside the verbs: what a kernel shows of a device in /sys/class/infiniband, in a directory
 * of ours that ibdev_path and ibv_get_sysfs_path name.
 *
 *	$UROCE_RUNTIME_DIR (or /dev/shm/uroce-UID)/sys/
 *		devices/NAME-HASH/...			the files of a device; HASH is that of their contents
 *		class/infiniband/NAME			→ ../../devices/NAME-HASH
 *		class/infiniband_verbs/uverbsN		→ ../../devices/NAME-HASH/infiniband_verbs/uverbsN
 *
 * All processes of a user share the tree. A device's directory is written under another name and renamed when complete,
 * and a link is replaced by renaming, so nobody sees half a tree; who finds the right link has nothing to do. Where the
 * directory cannot be made, is not ours alone or is full there is no tree, which is no failure.
 *
 * There are no counters (hw_counters): files that many processes share are the same until they are written, and these change all the
 * time, in each process its own. `uroce stat` shows them.
 */
#include "nic/keep_errno.h"
#include "verbs/verbs.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "observe/runtime.h"

#define BOARD_ID "uroce"

/* Called for each file, path relative to the device's directory. An empty text makes a directory. */
typedef void emit_file(void *arg, const char *path, const char *text);

static void format_guid(char *text, size_t size, __be64 guid)
{
	uint64_t value = be64toh(guid);

	snprintf(text, size, "%04x:%04x:%04x:%04x", (unsigned)(value >> 48),
		 (unsigned)(value >> 32 & 0xffff), (unsigned)(value >> 16 & 0xffff),
		 (unsigned)(value & 0xffff));
}

static void format_gid(char *text, size_t size, const union ibv_gid *gid)
{
	int length = 0;

	for (int i = 0; i < 16; i += 2)
		length += snprintf(text + length, size - (size_t)length, "%s%02x%02x", i ? ":" : "",
				   gid->raw[i], gid->raw[i + 1]);
}

static void emit_gid(const struct gid_table *gids, uint32_t index, emit_file *emit, void *arg)
{
	char path[64], text[64], name[IF_NAMESIZE] = "";

	if_indextoname(gids->ifindex[index], name);
	snprintf(path, sizeof(path), "ports/1/gids/%u", index);
	format_gid(text, sizeof(text), &gids->gids[index]);
	emit(arg, path, text);
	snprintf(path, sizeof(path), "ports/1/gid_attrs/types/%u", index);
	emit(arg, path, "RoCE v2");
	snprintf(path, sizeof(path), "ports/1/gid_attrs/ndevs/%u", index);
	emit(arg, path, name);
	snprintf(path, sizeof(path), "device/net/%s", name);
	emit(arg, path, "");
}

/* All files of a device. */
static void describe(const struct verbs_device *device, emit_file *emit, void *arg)
{
	bool up = device->gids.present;
	char path[128], guid[32];

	emit(arg, "node_type", "1: CA");
	emit(arg, "node_desc", device->dev.name);
	format_guid(guid, sizeof(guid), device->node_guid);
	emit(arg, "node_guid", guid);
	format_guid(guid, sizeof(guid), device->sys_image_guid);
	emit(arg, "sys_image_guid", guid);
	emit(arg, "fw_ver", UROCE_VERSION);
	emit(arg, "board_id", BOARD_ID);
	emit(arg, "ports/1/state", up ? "4: ACTIVE" : "1: DOWN");
	emit(arg, "ports/1/phys_state", up ? "5: LinkUp" : "3: Disabled");
	emit(arg, "ports/1/link_layer", "Ethernet");
	emit(arg, "ports/1/rate", "100 Gb/sec (4X EDR)");
	emit(arg, "ports/1/lid", "0x0");
	emit(arg, "ports/1/sm_lid", "0x0");
	emit(arg, "ports/1/cap_mask", "0x04000000");
	emit(arg, "ports/1/pkeys/0", "0xffff");
	for (uint32_t i = 0; i < device->gids.count; i++)
		emit_gid(&device->gids, i, emit, arg);
	snprintf(path, sizeof(path), "infiniband_verbs/%s/ibdev", device->dev.dev_name);
	emit(arg, path, device->dev.name);
}

static void hash_file(void *arg, const char *path, const char *text)
{
	uint64_t *value = arg;

	/* FNV-1a over both strings with their ends */
	for (int i = 0; i < 2; i++) {
		const char *byte = i ? text : path;

		do
			*value = (*value ^ (uint8_t)*byte) * 0x100000001b3;
		while (*byte++);
	}
}

struct writing {
	int dir;
	bool failed;
};

/* Bytes of a path within the directory of the devices' files, whose parts are names of devices. */
#define PATH_BYTES 384

static void make_parents(int dir, const char *path)
{
	char part[PATH_BYTES];

	for (const char *slash = path; (slash = strchr(slash, '/')); slash++) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		mkdirat(dir, part, 0700);
	}
}

static void write_file(void *arg, const char *path, const char *text)
{
	struct writing *writing = arg;
	size_t length = strlen(text);
	char line[128];
	int fd;

	make_parents(writing->dir, path);
	if (!length) {
		mkdirat(writing->dir, path, 0700);
		return;
	}
	fd = descriptor_above(openat(writing->dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
	snprintf(line, sizeof(line), "%s\n", text);
	if (fd < 0 || write(fd, line, length + 1) != (ssize_t)length + 1)
		writing->failed = true;
	if (fd >= 0)
		close(fd);
}

/* Removes a directory and what is in it. */
static void remove_tree(int dir, const char *path)
{
	int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);

	if (!stream) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (struct dirent *entry; (entry = readdir(stream));) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (unlinkat(fd, entry->d_name, 0))
			remove_tree(fd, entry->d_name);
	}
	closedir(stream);
	unlinkat(dir, path, AT_REMOVEDIR);
}

/* The directory, when it is one, is ours and nobody else's; -1 otherwise. */
/* Writes devices/target unless it is there. */
static bool write_device(int root, const struct verbs_device *device, const char *target)
{
	char final[PATH_MAX], partial[PATH_MAX];
	struct writing writing;

	snprintf(final, sizeof(final), "sys/devices/%s", target);
	snprintf(partial, sizeof(partial), "sys/devices/.%s.%d", target, getpid());
	if (!faccessat(root, final, F_OK, 0))
		return true;
	make_parents(root, partial);
	remove_tree(root, partial);
	if (mkdirat(root, partial, 0700))
		return false;
	writing = (struct writing){ .dir = openat(root, partial,
						  O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	if (writing.dir >= 0) {
		describe(device, write_file, &writing);
		close(writing.dir);
	}
	if (writing.dir >= 0 && !writing.failed && !renameat(root, partial, root, final))
		return true;
	remove_tree(root, partial);
	return !faccessat(root, final, F_OK, 0);
}

/* Makes path a link to content; says in old where it led before. */
static bool replace_link(int root, const char *path, const char *content, char old[PATH_BYTES])
{
	char partial[PATH_BYTES + 16];
	ssize_t length = readlinkat(root, path, old, PATH_BYTES - 1);

	old[length > 0 ? length : 0] = '\0';
	if (!strcmp(old, content))
		return true;
	snprintf(partial, sizeof(partial), "%s.%d", path, getpid());
	make_parents(root, path);
	unlinkat(root, partial, 0);
	if (symlinkat(content, root, partial))
		return false;
	if (!renameat(root, partial, root, path))
		return true;
	unlinkat(root, partial, 0);
	return false;
}

void sysfs_render(const struct verbs_device *device)
{
	KEEP_ERRNO;
	uint64_t value = 0xcbf29ce484222325;
	char target[96], link[PATH_BYTES], content[PATH_BYTES], old[PATH_BYTES], ignored[PATH_BYTES];
	int root = runtime_open();

	if (root < 0) {
		verbs_log_error("%s: the devices' files cannot be written there; UROCE_RUNTIME_DIR is to be a directory of this "
				"user, mode 0700",
				runtime_directory());
		return;
	}
	describe(device, hash_file, &value);
	snprintf(target, sizeof(target), "%s-%016llx", device->dev.name, (unsigned long long)value);
	if (write_device(root, device, target)) {
		snprintf(link, sizeof(link), "sys/class/infiniband_verbs/%s", device->dev.dev_name);
		snprintf(content, sizeof(content), "../../devices/%s/infiniband_verbs/%s", target,
			 device->dev.dev_name);
		replace_link(root, link, content, ignored);
		snprintf(link, sizeof(link), "sys/class/infiniband/%s", device->dev.name);
		snprintf(content, sizeof(content), "../../devices/%s", target);
		/* The tree that the name stood for is of settings or addresses that are no more. */
		if (replace_link(root, link, content, old) && *old && strcmp(old, content)) {
			snprintf(link, sizeof(link), "sys/devices/%s", strrchr(old, '/') + 1);
			remove_tree(root, link);
		}
	}
	close(root);
}

/* Empty when the public structure has no room for it. */
static void name_path(char *path, size_t size, const char *class, const char *name)
{
	if (snprintf(path, size, "%s/sys/class/%s/%s", runtime_directory(), class, name) >=
	    (int)size)
		*path = '\0';
}

void sysfs_name_paths(struct verbs_device *device)
{
	struct ibv_device *dev = &device->dev;

	snprintf(dev->dev_name, sizeof(dev->dev_name), "uverbs%u", device->index);
	name_path(dev->dev_path, sizeof(dev->dev_path), "infiniband_verbs", dev->dev_name);
	name_path(dev->ibdev_path, sizeof(dev->ibdev_path), "infiniband", dev->name);
}

/* As rdma-core's, SYSFS_PATH wins. */
EXPORTED const char *ibv_get_sysfs_path(void)
{
	static char path[PATH_MAX + 8];
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const char *setting = getenv("SYSFS_PATH");

	if (setting && *setting)
		return setting;
	pthread_mutex_lock(&lock);
	if (!*path)
		snprintf(path, sizeof(path), "%s/sys", runtime_directory());
	pthread_mutex_unlock(&lock);
	return path;
}

struct looking_up {
	const char *path;
	char *text;
	size_t size;
	bool found;
};

static void look_up(void *arg, const char *path, const char *text)
{
	struct looking_up *lookup = arg;

	if (lookup->found || strcmp(path, lookup->path))
		return;
	snprintf(lookup->text, lookup->size, "%s", text);
	lookup->found = true;
}

/* A device's own files are answered whether there is a tree or not. */
static bool read_own_file(const char *dir, const char *file, char *text, size_t size)
{
	struct looking_up lookup = { .path = file, .text = text, .size = size };
	unsigned count;
	struct verbs_device *devices = devices_get(&count, false);

	for (unsigned i = 0; i < count; i++)
		if (!strcmp(dir, devices[i].dev.ibdev_path))
			describe(&devices[i], look_up, &lookup);
	return lookup.found;
}

EXPORTED int ibv_read_sysfs_file(const char *dir, const char *file, char *text, size_t size)
{
	char path[PATH_MAX];
	ssize_t length;
	int fd;

	if (!size) {
		errno = EINVAL;
		return -1;
	}
	if (read_own_file(dir, file, text, size))
		return (int)strlen(text);
	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	length = read(fd, text, size - 1);
	close(fd);
	if (length < 0)
		return -1;
	if (length && text[length - 1] == '\n')
		length--;
	text[length] = '\0';
	return (int)length;
}
