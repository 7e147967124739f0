/* SPDX-License-Identifier: MIT */
/*
 * Where the library writes files: /dev/shm that is full, read-only or missing, and runtime directories that are not ours.
 * The device works all the same; only the files that show what the kernel would show of it are missing, and nobody else's
 * files change.
 */
#include "cases.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define NOBODY 65534

/* Mounts of our own from here on, in this process and its actors. */
static void own_mounts(void)
{
	become_root();
	if (unshare(CLONE_NEWNS))
		SKIP("no mount namespace: %s", strerror(errno));
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		SKIP("mounts cannot be made private: %s", strerror(errno));
}

static void mount_tmpfs(const char *path, unsigned long flags, const char *options)
{
	if (mount("uroce-test", path, "tmpfs", flags, options))
		SKIP("tmpfs cannot be mounted on %s: %s", path, strerror(errno));
}

/* Whether the files of the device can be read where it says that they are. */
static bool has_tree(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	char path[IBV_SYSFS_PATH_MAX + 16];
	bool found;

	CHECK(list && list[0]);
	snprintf(path, sizeof(path), "%s/node_guid", list[0]->ibdev_path);
	found = !access(path, R_OK);
	ibv_free_device_list(list);
	return found;
}

static void works_without_a_tree(int line)
{
	open_and_exchange(line);
	CHECK(!has_tree());
}

static void works_with_a_tree(int line)
{
	open_and_exchange(line);
	CHECK(has_tree());
}

static void ordinary(void)
{
	char dir[] = "/tmp/uroce-files-XXXXXX", command[64];

	CHECK(mkdtemp(dir));
	setenv("UROCE_RUNTIME_DIR", dir, 1);
	run_pair(works_with_a_tree, works_with_a_tree);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	CHECK_EQUAL(system(command), 0);
}

static void on_dev_shm(unsigned long flags, const char *options, bool fill)
{
	unsetenv("UROCE_RUNTIME_DIR");
	own_mounts();
	mount_tmpfs("/dev/shm", flags, options);
	if (fill) {
		static const char zeros[4096];
		int fd = open("/dev/shm/full", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

		CHECK(fd >= 0);
		while (write(fd, zeros, sizeof(zeros)) > 0)
			;
		CHECK_EQUAL(errno, ENOSPC);
		close(fd);
	}
	run_pair(works_without_a_tree, works_without_a_tree);
}

static void dev_shm_full(void)
{
	on_dev_shm(0, "size=64k", true);
}

static void dev_shm_without_inodes(void)
{
	on_dev_shm(0, "size=1m,nr_inodes=8", false);
}

static void dev_shm_read_only(void)
{
	on_dev_shm(MS_RDONLY, "size=64k", false);
}

static void dev_missing(void)
{
	unsetenv("UROCE_RUNTIME_DIR");
	own_mounts();
	mount_tmpfs("/dev", MS_RDONLY, "size=64k");
	CHECK(access("/dev/shm", F_OK));
	run_pair(works_without_a_tree, works_without_a_tree);
}

static unsigned count_entries(const char *dir)
{
	char command[96];
	unsigned count = 0;
	FILE *pipe;

	snprintf(command, sizeof(command), "ls -A %s | wc -l", dir);
	pipe = popen(command, "r");
	CHECK(pipe && fscanf(pipe, "%u", &count) == 1);
	pclose(pipe);
	return count;
}

/* Makes a directory and one in it, or a link to that; the second is the runtime directory. */
static void with_directory(bool link, mode_t mode, uid_t owner)
{
	char dir[] = "/tmp/uroce-files-XXXXXX", inner[64], runtime[64], command[64];

	CHECK(mkdtemp(dir));
	snprintf(inner, sizeof(inner), "%s/inner", dir);
	snprintf(runtime, sizeof(runtime), "%s/%s", dir, link ? "link" : "inner");
	CHECK(!mkdir(inner, 0700) && !chmod(inner, mode));
	if (owner != geteuid())
		CHECK_EQUAL(chown(inner, owner, owner), 0);
	if (link)
		CHECK_EQUAL(symlink("inner", runtime), 0);
	setenv("UROCE_RUNTIME_DIR", runtime, 1);
	run_pair(works_without_a_tree, works_without_a_tree);
	CHECK_EQUAL(count_entries(inner), 0);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	CHECK_EQUAL(system(command), 0);
}

static void runtime_directory_is_a_link(void)
{
	with_directory(true, 0700, geteuid());
}

static void runtime_directory_is_open_to_others(void)
{
	with_directory(false, 0777, geteuid());
}

static void runtime_directory_is_foreign(void)
{
	if (geteuid())
		SKIP("only root can give a directory away");
	with_directory(false, 0700, NOBODY);
}

static void runtime_directory_cannot_be_made(void)
{
	setenv("UROCE_RUNTIME_DIR", "/proc/uroce/none", 1);
	run_pair(works_without_a_tree, works_without_a_tree);
}

static void runtime_directory_is_a_file(void)
{
	char path[] = "/tmp/uroce-files-XXXXXX";
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	close(fd);
	setenv("UROCE_RUNTIME_DIR", path, 1);
	run_pair(works_without_a_tree, works_without_a_tree);
	CHECK_EQUAL(unlink(path), 0);
}

/* Longer than the public structure's fields: there are no paths then. */
static void runtime_directory_is_long(void)
{
	char path[1000] = "/";

	memset(path + 1, 'x', sizeof(path) - 2);
	setenv("UROCE_RUNTIME_DIR", path, 1);
	run_pair(works_without_a_tree, works_without_a_tree);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "runtime_directory_is_ours", ordinary },
		{ "dev_shm_full", dev_shm_full },
		{ "dev_shm_without_inodes", dev_shm_without_inodes },
		{ "dev_shm_read_only", dev_shm_read_only },
		{ "dev_shm_missing", dev_missing },
		{ "runtime_directory_is_a_link", runtime_directory_is_a_link },
		{ "runtime_directory_is_open_to_others", runtime_directory_is_open_to_others },
		{ "runtime_directory_is_foreign", runtime_directory_is_foreign },
		{ "runtime_directory_cannot_be_made", runtime_directory_cannot_be_made },
		{ "runtime_directory_is_a_file", runtime_directory_is_a_file },
		{ "runtime_directory_is_long", runtime_directory_is_long },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
