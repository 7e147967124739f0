/* SPDX-License-Identifier: MIT */
/*
 * uroce doctor: what of this machine limits uroce, and what to do about it. It tries things rather than guess from
 * versions. Each check reports one item:
 *
 *   ok       works as it should
 *   note     programs run, but slower, or not all of them; the action says what would change that
 *   problem  programs do not run until it is mended
 */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nic/abstract_name.h"
#include "nic/gid.h"
#include "nic/proc.h"
#include "nic/switch.h"
#include "roce/port.h"
#include "tools/libraries.h"
#include "tools/program.h"
#include "tools/tools.h"
#include "tools/verbs.h"

#define FEW_FILES 256
#define STD_FILES 3
#define OWN_FILES \
	8 /* of a program with an open device, and of each process that it is connected to */
#define PEER_FILES    5
#define NEEDED_FILES  (STD_FILES + OWN_FILES + PEER_FILES)
#define SEGMENT	      (16ull << 30) /* bytes of address space, and of a sparse file */
#define SEGMENT_MIN   (128ull << 20)
#define SPACE_PARTS   8 /* of a limit on address space, for a segment */
#define LITTLE_SPACE  (512ull << 20)
#define LITTLE_MEMORY (256ull << 20)

enum verdict { OK, NOTE, PROBLEM };

struct patient {
	const char *name; /* of the subcommand */
	struct libraries libs;
	unsigned problems;
};

static const char doc[] =
	"Say what of this machine limits uroce, and what to do about it.\v"
	"Each item is ok, a note (programs run, but something is slower or left out) or a problem "
	"(programs do not run). The exit status is 1 if there is a problem, else 0.";

static error_t parse(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	if (key != ARGP_KEY_ARG)
		return ARGP_ERR_UNKNOWN;
	argp_error(state, "no arguments are taken");
	return EINVAL;
}

/* Prints an item. action says what to do, NULL where nothing has to be done. */
static void __attribute__((format(printf, 5, 6)))
report(struct patient *patient, enum verdict verdict, const char *subject, const char *action,
       const char *format, ...)
{
	static const char *const words[] = { "ok", "note", "problem" };
	va_list args;

	printf("%-8s %-14s ", words[verdict], subject);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	if (action)
		printf("%-8s %-14s   -> %s\n", "", "", action);
	patient->problems += verdict == PROBLEM;
}

/* What to do about the errno of a call: a limit of this process is no filter. */
static const char *action_for(int err, const char *otherwise)
{
	switch (err) {
	case EMFILE:
		return "see open files above";
	case EFBIG:
		return "see file size above";
	default:
		return otherwise;
	}
}

/* The number in a file of one line, or -1. */
static long read_number(const char *path)
{
	unsigned long numbers[2];

	return proc_numbers(path, numbers) ? (long)numbers[0] : -1;
}

static void check_kernel(struct patient *patient)
{
	struct utsname system;

	uname(&system);
	report(patient, OK, "kernel", NULL, "%s %s, %s", system.sysname, system.release,
	       system.machine);
}

static void check_cores(struct patient *patient)
{
	cpu_set_t set;
	int cores = sched_getaffinity(0, sizeof(set), &set) ? 0 : CPU_COUNT(&set);

	if (cores == 1)
		report(patient, NOTE, "cores",
		       "allow two or more (taskset, docker run --cpuset-cpus) to measure latencies",
		       "only one may be used: two programs take turns, and latencies are the "
		       "scheduler's");
	else
		report(patient, OK, "cores", NULL, "%d may be used", cores);
}

/* The segment is such a file: sealed, and its pages made before they are used. */
static int try_memfd(void)
{
	int fd = memfd_create("uroce-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int err = 0;

	if (fd < 0)
		return errno;
	if (ftruncate(fd, 4096) || fallocate(fd, 0, 0, 4096) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		err = errno;
	close(fd);
	return err;
}

static void check_shared_memory(struct patient *patient)
{
	int err = try_memfd();

	if (err)
		report(patient, PROBLEM, "shared memory",
		       action_for(err,
				  "allow memfd_create in the seccomp profile of the container or "
				  "service, and memory in its cgroup"),
		       "memfd_create and fallocate: %s", strerror(err));
	else
		report(patient, OK, "shared memory", NULL, "memfd_create works");
}

/* What the library takes of so much address space; see segment_create(). */
static unsigned long long segment_of(unsigned long long space)
{
	unsigned long long size = SEGMENT;

	while (size > SEGMENT_MIN && size > space / SPACE_PARTS)
		size /= size > 256ull << 20 ? 4 : 2;
	return size;
}

static void check_address_space(struct patient *patient)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		report(patient, OK, "address space", NULL, "not limited");
	else
		report(patient, limit.rlim_cur < LITTLE_SPACE ? PROBLEM : NOTE, "address space",
		       "ulimit -v unlimited",
		       "limited to %llu MiB: a program takes %llu MiB of it for itself, and for each "
		       "process that it is connected to what that one takes; one that is not limited "
		       "as this takes %llu MiB",
		       (unsigned long long)limit.rlim_cur >> 20,
		       (unsigned long long)segment_of(limit.rlim_cur) >> 20, SEGMENT >> 20);
}

/* A segment is a file, though in memory. */
static void check_file_size(struct patient *patient)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= SEGMENT)
		report(patient, OK, "file size", NULL, "room for a segment");
	else
		report(patient, limit.rlim_cur < SEGMENT_MIN ? PROBLEM : NOTE, "file size",
		       "ulimit -f unlimited",
		       "limited to %llu KiB; the segment of a program takes %llu to %llu MiB",
		       (unsigned long long)limit.rlim_cur >> 10, SEGMENT_MIN >> 20, SEGMENT >> 20);
}

/* What the cgroup that we see allows, bytes; 0: no limit that matters. */
static unsigned long long read_memory_limit(void)
{
	static const char *const paths[] = { "/sys/fs/cgroup/memory.max",
					     "/sys/fs/cgroup/memory/memory.limit_in_bytes" };
	long limit;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		limit = read_number(paths[i]);
		if (limit > 0 && limit < 1ll << 50)
			return (unsigned long long)limit;
	}
	return 0;
}

static void check_memory(struct patient *patient)
{
	unsigned long long limit = read_memory_limit();

	if (!limit || limit >= LITTLE_MEMORY)
		report(patient, OK, "memory", NULL, "not limited, or not much");
	else
		report(patient, NOTE, "memory", "a higher limit of the container or service",
		       "limited to %llu MiB: queues take their memory when they are made, and past the "
		       "limit the kernel kills the program instead of refusing",
		       limit >> 20);
}

static void *end_at_once(void *arg)
{
	return arg;
}

/* The library has one of its own in every program. */
static void check_threads(struct patient *patient)
{
	pthread_t thread;
	int err = pthread_create(&thread, NULL, end_at_once, NULL);

	if (err) {
		report(patient, PROBLEM, "threads",
		       "raise ulimit -u; in a container, a seccomp profile that allows clone3 or "
		       "answers ENOSYS to it",
		       "a program cannot start one: %s", strerror(err));
		return;
	}
	pthread_join(thread, NULL);
	report(patient, OK, "threads", NULL, "can be started");
}

/* Sends a descriptor from `from` and receives it at `to`. 0, or errno. */
static int pass_descriptor(int from, int to)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	char byte = 0;
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data,
				  .msg_iovlen = 1,
				  .msg_control = control.space,
				  .msg_controllen = sizeof(control.space) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int fd;

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &from, sizeof(int));
	if (sendmsg(from, &message, MSG_NOSIGNAL) < 0 ||
	    recvmsg(to, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) < 0)
		return errno;
	header = CMSG_FIRSTHDR(&message);
	/* Without room for it the kernel drops it, and says no more. */
	if (!header || header->cmsg_type != SCM_RIGHTS)
		return dup(from) < 0 ? errno : EPERM;
	memcpy(&fd, CMSG_DATA(header), sizeof(int));
	close(fd);
	return 0;
}

/* As a process claims a slot and its peers attach: an abstract name, and descriptors sent over the connection. */
static int try_sockets(void)
{
	int type = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
	struct sockaddr_un address;
	socklen_t length = abstract_name(&address, "uroce-doctor/%d", (int)getpid());
	int listener = socket(AF_UNIX, type, 0), client = socket(AF_UNIX, type, 0), server = -1;
	int err = 0;

	if (listener < 0 || client < 0 || bind(listener, (struct sockaddr *)&address, length) ||
	    listen(listener, 1) || connect(client, (struct sockaddr *)&address, length) ||
	    (server = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
		err = errno;
	else
		err = pass_descriptor(client, server);
	close(listener);
	close(client);
	close(server);
	return err;
}

static void check_sockets(struct patient *patient)
{
	int err = try_sockets();

	if (err)
		report(patient, PROBLEM, "unix sockets",
		       action_for(err, "allow abstract unix sockets (AppArmor, seccomp, Landlock)"),
		       "processes cannot meet: abstract sockets and passing descriptors: %s",
		       strerror(err));
	else
		report(patient, OK, "unix sockets", NULL,
		       "abstract names and passing of descriptors work");
}

/* What one process may do to another of the same user that is not its child: a child tries it on us. 0, or errno. */
static int try_memory_access(void)
{
	static volatile uint64_t word;
	int status;
	pid_t child = fork();

	if (child < 0)
		return errno;
	if (!child) {
		uint64_t copy = 1;
		struct iovec local = { &copy, sizeof(copy) };
		struct iovec remote = { (void *)&word, sizeof(word) };

		if (process_vm_readv(getppid(), &local, 1, &remote, 1, 0) != sizeof(copy) ||
		    process_vm_writev(getppid(), &local, 1, &remote, 1, 0) != sizeof(copy))
			_exit(errno);
		_exit(0);
	}
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return errno;
	/* A filter may kill instead of refuse. */
	return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
}

static void check_memory_access(struct patient *patient)
{
	long scope = read_number("/proc/sys/kernel/yama/ptrace_scope");
	int err = try_memory_access();

	if (!err)
		report(patient, OK, "memory access", NULL,
		       "processes of one user reach each other's memory (process_vm_readv)");
	else if (scope > 0)
		report(patient, NOTE, "memory access",
		       "sysctl kernel.yama.ptrace_scope=0 if that is acceptable on this machine",
		       "refused by kernel.yama.ptrace_scope=%ld: the target's helper thread "
		       "copies, which works but is slower",
		       scope);
	else
		report(patient, NOTE, "memory access",
		       "in a container: --cap-add SYS_PTRACE, or a seccomp profile that allows "
		       "process_vm_readv and process_vm_writev",
		       "refused (%s): the target's helper thread copies, which works but is "
		       "slower",
		       strerror(err));
}

static void check_files(struct patient *patient)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	if (limit.rlim_cur < FEW_FILES)
		report(patient, limit.rlim_cur < NEEDED_FILES ? PROBLEM : NOTE, "open files",
		       "ulimit -n 1024",
		       "%llu descriptors only: a program has %d of its own at least, a device takes "
		       "%d, each process that it is connected to %d, each event channel 1",
		       (unsigned long long)limit.rlim_cur, STD_FILES, OWN_FILES, PEER_FILES);
	else
		report(patient, OK, "open files", NULL, "%llu descriptors",
		       (unsigned long long)limit.rlim_cur);
}

/* Whose registered memory can be shared with peers (nic/switch.h). */
static void check_userfaultfd(struct patient *patient)
{
	static struct switcher switcher;

	if (!switch_init(&switcher, -1)) {
		report(patient, NOTE, "userfaultfd", action_for(errno, NULL),
		       "no memory to find out what it can do: %s", strerror(errno));
		return;
	}
	if (switcher.holds_all)
		report(patient, OK, "userfaultfd", NULL,
		       "works: registered memory is shared with peers");
	else if (switcher.uffd >= 0)
		report(patient, NOTE, "userfaultfd", "sysctl vm.unprivileged_userfaultfd=1",
		       "not for system calls: memory that is registered while other threads run is copied by the kernel");
	else
		report(patient, NOTE, "userfaultfd",
		       "needs Linux 6.8, and a container that allows userfaultfd",
		       "refused or too old: memory that is registered while other threads run is copied by the kernel");
	switch_destroy(&switcher);
}

static void check_addresses(struct patient *patient)
{
	struct ifaddrs *list;
	unsigned count = 0;

	if (getifaddrs(&list)) {
		report(patient, PROBLEM, "addresses", action_for(errno, "allow netlink sockets"),
		       "cannot read the machine's addresses: %s", strerror(errno));
		return;
	}
	for (struct ifaddrs *at = list; at; at = at->ifa_next) {
		int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;

		if ((family == AF_INET || family == AF_INET6) && (at->ifa_flags & IFF_UP) &&
		    !(at->ifa_flags & IFF_LOOPBACK))
			count++;
	}
	freeifaddrs(list);
	if (count)
		report(patient, OK, "addresses", NULL, "%u to make GIDs from", count);
	else
		report(patient, NOTE, "addresses",
		       "nothing has to be done for programs on one machine",
		       "only loopback: GID 0 is made from 127.0.0.1");
}

/* The value of a field of /proc/self/status, or -1. */
static int read_status(const char *field)
{
	FILE *file = fopen("/proc/self/status", "re");
	size_t length = strlen(field);
	char line[256];
	int value = -1;

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, field, length) && line[length] == ':')
			value = atoi(line + length + 1);
	if (file)
		fclose(file);
	return value;
}

static void check_confinement(struct patient *patient)
{
	bool container = !access("/.dockerenv", F_OK) || !access("/run/.containerenv", F_OK);
	bool filtered = read_status("Seccomp") == 2;

	if (filtered)
		report(patient, NOTE, "seccomp", NULL,
		       "system calls are filtered; the items above say what that refuses");
	else
		report(patient, OK, "seccomp", NULL, "system calls are not filtered");
	if (container)
		report(patient, NOTE, "container",
		       "docker run --network container:NAME --pid container:NAME, or the host's",
		       "programs in different containers meet only in a common network "
		       "namespace, and copy fast only in a common PID namespace");
}

static void check_clients(struct patient *patient)
{
	static const char *const clients[] = { "ibv_devices",  "ibv_devinfo", "ibv_rc_pingpong",
					       "ib_write_lat", "ib_send_bw",  "qperf",
					       "rping",	       "ucmatose" };
	unsigned found = 0, asked = 0, unfit = 0;

	for (size_t i = 0; i < sizeof(clients) / sizeof(clients[0]); i++) {
		struct program program;
		struct loading loading;
		int err;

		if (program_find(&program, clients[i]))
			continue;
		found++;
		if (program.kind != PROGRAM_DYNAMIC)
			continue;
		err = program_loading(program.image, &patient->libs, PRELOAD_NOTHING, &loading);
		if (err) {
			report(patient, NOTE, "programs", action_for(err, NULL),
			       "cannot ask the loader about %s: %s", program.path, strerror(err));
			return;
		}
		asked++;
		if (!loading.missing[0])
			continue;
		unfit++;
		report(patient, NOTE, "programs", "use the package of rdma-core 39 to 56",
		       "%s is built for another rdma-core: it needs %s of %s",
		       program.path, loading.missing, loading.library);
	}
	if (!found)
		report(patient, NOTE, "programs", "apt install ibverbs-utils perftest",
		       "none of the usual RDMA programs is installed");
	else if (asked && !unfit)
		report(patient, OK, "programs", NULL,
		       "%u of the usual RDMA programs are installed, and find all that they need",
		       asked);
}

/* Where the library writes what the kernel would show of a device in /sys: some programs read that. */
static void check_runtime_directory(struct patient *patient, const struct ibv_device *device)
{
	if (!access(device->ibdev_path, F_OK))
		report(patient, OK, "device files", NULL, "in %s", device->ibdev_path);
	else
		report(patient, NOTE, "device files",
		       "set UROCE_RUNTIME_DIR to a directory of this user, mode 0700, with room",
		       "cannot be written to %s: programs that read more of a device than its "
		       "verbs tell find nothing",
		       device->ibdev_path);
}

/* Below this the window between hosts stays small. */
#define LITTLE_BUFFER (1 << 20)

/* UDP between hosts: whether the port of each address can be had, and how much a socket holds. */
static void check_wire(struct patient *patient)
{
	uint16_t number = port_configured();
	long buffer = read_number("/proc/sys/net/core/rmem_max");
	struct gid_table gids;
	unsigned taken = 0;
	char text[GID_TEXT_BYTES];

	if (gid_table_read(&gids, NULL))
		return;
	for (uint32_t i = 0; i < gids.count; i++) {
		const union ibv_gid *gid = &gids.gids[i];
		struct port *port = gid_is_loopback(gid) ? NULL : port_open(gid);
		int error = errno;
		uint32_t uid;

		if (gid_is_loopback(gid) || port) {
			if (port)
				port_close(port);
			continue;
		}
		taken++;
		gid_text(gid, text);
		if (error == EADDRINUSE && port_owner(gid, number, &uid))
			report(patient, NOTE, "wire", "use another address, or UROCE_PORT at both ends",
			       "UDP port %u of %s is that of user %u (root: perhaps the kernel's soft-RoCE)", number, text, uid);
		else
			report(patient, NOTE, "wire", "use another address", "UDP port %u of %s cannot be used: %s", number,
			       text, strerror(error));
	}
	if (buffer >= 0 && buffer < LITTLE_BUFFER && geteuid())
		report(patient, NOTE, "wire", "sysctl -w net.core.rmem_max=8388608",
		       "sockets hold %ld KiB: what comes faster than it is taken is lost, and sent again", buffer >> 10);
	else if (!taken)
		report(patient, OK, "wire", NULL, "UDP port %u can be had, for other hosts", number);
}

/* False if there is no device with these settings. */
static bool check_settings(struct patient *patient)
{
	struct settings_fault fault;

	if (settings_are_wrong(&fault)) {
		report(patient, PROBLEM, "settings", fault.remedy, "%s", fault.what);
		return false;
	}
	if (settings_name_absent_interfaces(&fault))
		report(patient, NOTE, "settings", fault.remedy, "%s", fault.what);
	return true;
}

static void check_port(struct patient *patient, const struct verbs *verbs,
		       struct ibv_context *context)
{
	const char *name = verbs->get_device_name(context->device);
	struct ibv_port_attr port;

	if (!verbs_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE)
		report(patient, OK, "device", NULL, "%s opens", name);
	else
		report(patient, PROBLEM, "device",
		       "give an interface of it an address and raise it (ip address, ip link), or "
		       "name others in UROCE_DEVICES",
		       "%s opens, but its port is down: no interface of it is up and has an address",
		       name);
}

/* The proof: a program's first calls. */
static void check_device(struct patient *patient)
{
	const char *mend = patient->problems ? "mend the problems above" : NULL;
	struct verbs verbs;
	struct ibv_device **list;
	int count = 0;

	if (!check_settings(patient))
		return;
	if (!verbs_load(&verbs, patient->libs.verbs, patient->name)) {
		report(patient, PROBLEM, "device", mend ? mend : "build or install uroce again",
		       "the library cannot be loaded");
		return;
	}
	if (!mend)
		mend = "with VERBS_LOG_LEVEL=1 the library says what was refused";
	list = verbs_list_devices(&verbs, &count, patient->name);
	if (!list) {
		report(patient, PROBLEM, "device", mend, "there is none");
		return;
	}
	check_runtime_directory(patient, list[0]);
	for (int i = 0; i < count; i++) {
		struct ibv_context *context = verbs.open_device(list[i]);

		if (!context) {
			report(patient, PROBLEM, "device", action_for(errno, mend),
			       "%s cannot be opened: %s", verbs.get_device_name(list[i]),
			       strerror(errno));
			continue;
		}
		check_port(patient, &verbs, context);
		verbs.close_device(context);
	}
	verbs.free_device_list(list);
}

int cmd_doctor(int argc, char **argv)
{
	static const struct argp argp = { .parser = parse, .doc = doc };
	static void (*const checks[])(struct patient *) = {
		check_kernel,	   check_cores,		check_address_space, check_file_size,
		check_files,	   check_shared_memory, check_memory,	     check_threads,
		check_sockets,	   check_wire,		check_memory_access, check_userfaultfd,   check_addresses,
		check_confinement, check_clients,	check_device,
	};
	struct patient patient = { .name = argv[0] };

	if (argp_parse(&argp, argc, argv, 0, NULL, NULL) ||
	    !libraries_find(&patient.libs, patient.name))
		return 1;
	/* What is too large is to be reported, and not to end us. */
	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		checks[i](&patient);
		fflush(stdout);
	}
	if (patient.problems)
		printf("\n%u problem%s: programs will not run until mended.\n", patient.problems,
		       patient.problems == 1 ? "" : "s");
	else
		puts("\nNothing prevents programs from running.");
	return patient.problems ? 1 : 0;
}
