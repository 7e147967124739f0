/* SPDX-License-Identifier: MIT */
/*
 * The surroundings of a lab's processes. All of the lab is one PID namespace, so that it ends as a whole, and for an
 * ordinary user one user namespace, in which he stays who he is. Each host has its own network, host name, System V IPC,
 * POSIX shared memory (/dev/shm) and, where the kernel lets us, view of its interfaces in /sys. Files are everybody's.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/lab.h"
#include "tools/tools.h"

#define HOSTS_FILE "/dev/shm/hosts"

/* What an ordinary user may do in a host beyond what he may outside: administer its network. */
static const unsigned granted[] = { CAP_NET_ADMIN, CAP_NET_RAW, CAP_NET_BIND_SERVICE };

static bool get_capabilities(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return !syscall(SYS_capget, &header, data);
}

/* May we make namespaces, mount, and set up networks as we are? */
static bool privileged(void)
{
	struct __user_cap_data_struct data[2];
	const uint32_t needed = 1U << CAP_SYS_ADMIN | 1U << CAP_NET_ADMIN;

	return get_capabilities(data) && (data[0].effective & needed) == needed;
}

static bool write_file(const char *path, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static bool write_file(const char *path, const char *format, ...)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	va_list args;
	int length;

	if (fd < 0)
		return false;
	va_start(args, format);
	length = vdprintf(fd, format, args);
	va_end(args);
	close(fd);
	return length > 0;
}

static bool setting_is(const char *name, char value)
{
	char path[128], first = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/sys/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, &first, 1) != 1)
		first = 0;
	close(fd);
	return first == value;
}

/* The settings that are known to refuse namespaces to ordinary users. */
static bool refused(const struct lab *lab, const char *what, int error)
{
	const char *why =
		"; a container's runtime or a security module may refuse it; run it as root";

	if (setting_is("user/max_user_namespaces", '0'))
		why = " (sysctl user.max_user_namespaces is 0); set it to 1000, or run it as root";
	else if (setting_is("kernel/unprivileged_userns_clone", '0'))
		why = " (sysctl kernel.unprivileged_userns_clone is 0); set it to 1, or run it as root";
	else if (setting_is("kernel/apparmor_restrict_unprivileged_userns", '1'))
		why = " (sysctl kernel.apparmor_restrict_unprivileged_userns is 1); set it to 0, or run "
		      "it as root";
	complain(lab->name, "%s: %s%s", what, strerror(error), lab->unprivileged ? why : "");
	return false;
}

static bool enter_user_namespace(struct lab *lab)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(CLONE_NEWUSER))
		return refused(lab, "cannot make a user namespace", errno);
	/* An ordinary user may map only himself, and his group only once no process here can drop groups. */
	if (!write_file("/proc/self/uid_map", "%u %u 1\n", uid, uid) ||
	    !write_file("/proc/self/setgroups", "deny") ||
	    !write_file("/proc/self/gid_map", "%u %u 1\n", gid, gid))
		return refused(lab, "cannot be oneself in a user namespace", errno);
	return true;
}

pid_t namespaces_fork(struct lab *lab)
{
	pid_t pid;

	lab->unprivileged = !privileged();
	if (lab->unprivileged && !enter_user_namespace(lab))
		return -1;
	/* By unshare() all our children to come would belong to that namespace as well, and there are none after init. */
	pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid < 0)
		refused(lab, "cannot make a PID namespace", errno);
	return pid;
}

static bool mount_over(const struct lab *lab, const char *type, const char *path,
		       const char *options)
{
	if (!mount(type, path, type, MS_NOSUID | MS_NODEV | (strcmp(type, "proc") ? 0 : MS_NOEXEC),
		   options))
		return true;
	complain(lab->name, "cannot mount %s for the lab's processes: %s%s", path, strerror(errno),
		 errno == EPERM && !strcmp(type, "proc") ?
			 "; here parts of /proc are hidden, as in a container: start it with "
			 "--security-opt systempaths=unconfined" :
			 "");
	return false;
}

/* Names for the hosts, in the place of the machine's. */
static bool name_hosts(const struct lab *lab)
{
	FILE *file = fopen(HOSTS_FILE, "we");

	if (file) {
		fprintf(file, "127.0.0.1 localhost\n::1 localhost\n");
		for (unsigned i = 0; i < lab->count; i++) {
			const struct host *host = &lab->hosts[i];

			fprintf(file, "10.77.0.%u %s\nfd77::%u %s\n", host->number, host->name,
				host->number, host->name);
		}
		/* Without an /etc/hosts there are no names, only addresses. */
		if (!fclose(file) &&
		    (!mount(HOSTS_FILE, "/etc/hosts", NULL, MS_BIND, NULL) || errno == ENOENT))
			return true;
	}
	complain(lab->name, "cannot put the hosts' names into /etc/hosts: %s", strerror(errno));
	return false;
}

bool namespaces_enter(const struct lab *lab)
{
	if (unshare(CLONE_NEWNS | CLONE_NEWNET))
		return refused(lab, "cannot make namespaces of mounts and networks", errno);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		complain(lab->name, "cannot keep the lab's mounts apart: %s", strerror(errno));
		return false;
	}
	return mount_over(lab, "proc", "/proc", NULL) &&
	       mount_over(lab, "tmpfs", "/dev/shm", "mode=1777") && name_hosts(lab);
}

/* The right to administer the host's network outlives the execution of programs. */
static bool grant(const struct lab *lab)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	bool done = get_capabilities(data);

	for (size_t i = 0; i < sizeof(granted) / sizeof(granted[0]); i++)
		data[0].inheritable |= 1U << granted[i];
	done = done && !syscall(SYS_capset, &header, data);
	for (size_t i = 0; i < sizeof(granted) / sizeof(granted[0]) && done; i++)
		done = !prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, granted[i], 0, 0);
	if (!done)
		complain(lab->name, "cannot pass capabilities on: %s", strerror(errno));
	return done;
}

static bool describe(const struct lab *lab, const struct host *host)
{
	unsigned peer = host->number % lab->count + 1;
	char own[16], count[16], ipv4[32], ipv6[32], name[32];

	snprintf(own, sizeof(own), "%u", host->number);
	snprintf(count, sizeof(count), "%u", lab->count);
	snprintf(ipv4, sizeof(ipv4), "10.77.0.%u", host->number);
	snprintf(ipv6, sizeof(ipv6), "fd77::%u", host->number);
	snprintf(name, sizeof(name), "host%u", peer);
	/* The directory that it names would be all hosts'; each has its own in its /dev/shm. */
	return !unsetenv("UROCE_RUNTIME_DIR") && !setenv("UROCE_LAB_HOST", own, 1) &&
	       !setenv("UROCE_LAB_HOSTS", count, 1) && !setenv("UROCE_LAB_IPV4", ipv4, 1) &&
	       !setenv("UROCE_LAB_IPV6", ipv6, 1) && !setenv("UROCE_LAB_PEER", name, 1);
}

bool namespaces_enter_host(const struct lab *lab, const struct host *host)
{
	if (setns(host->netns, CLONE_NEWNET) ||
	    unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC) ||
	    sethostname(host->name, strlen(host->name)) || !describe(lab, host)) {
		complain(lab->name, "cannot enter the host: %s", strerror(errno));
		return false;
	}
	if (!mount_over(lab, "tmpfs", "/dev/shm", "mode=1777"))
		return false;
	/* The kernel shows it to an ordinary user only where all of /sys may be seen and written. */
	mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	return !lab->unprivileged || grant(lab);
}
