/* SPDX-License-Identifier: MIT */
/*
 * A filter that refuses each system call of the library in turn, as the seccomp profiles of containers and services do.
 * What is refused is either done in another way, or a verb or a completion says that it could not be done; nothing ends,
 * hangs, spins, or harms the process at the other end.
 *
 * The calls are those that strace sees (refuse.sh compares). With "assisted" in a case's name the copying between processes
 * is refused as well, so that the calls of the other way are the ones that matter.
 */
#include "cases.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define IDLE_MS	      100
#define IDLE_CPU_MS   40
#define MESSAGE_BYTES 4096u

struct call {
	const char *name;
	int number;
};

#define CALL(name)                \
	{                         \
#name, SYS_##name \
	}
static const struct call calls[] = {
	CALL(accept4),
	CALL(bind),
	CALL(brk),
	CALL(clock_nanosleep),
	CALL(clone),
	CALL(clone3),
	CALL(close),
	CALL(connect),
	CALL(epoll_create1),
	CALL(epoll_ctl),
	CALL(epoll_pwait2),
	CALL(eventfd2),
	CALL(faccessat),
	CALL(faccessat2),
	CALL(fallocate),
	CALL(fcntl),
	CALL(ftruncate),
	CALL(get_mempolicy),
	CALL(get_robust_list),
	CALL(getdents64),
	CALL(getegid),
	CALL(geteuid),
	CALL(getpid),
	CALL(getrandom),
	CALL(getresuid),
	CALL(getsockname),
	CALL(getsockopt),
	CALL(gettid),
	CALL(ioctl),
	CALL(listen),
	CALL(lseek),
	CALL(madvise),
	CALL(membarrier),
	CALL(memfd_create),
	CALL(mkdirat),
	CALL(mmap),
	CALL(mprotect),
	CALL(mremap),
	CALL(munlock),
	CALL(munmap),
	CALL(newfstatat),
	CALL(openat),
	CALL(prctl),
	CALL(pread64),
	CALL(preadv),
	CALL(preadv2),
	CALL(prlimit64),
	CALL(process_vm_readv),
	CALL(process_vm_writev),
	CALL(pwrite64),
	CALL(pwritev),
	CALL(read),
	CALL(readlinkat),
	CALL(recvmsg),
	CALL(renameat),
	CALL(rt_sigprocmask),
	CALL(sched_getaffinity),
	CALL(sched_yield),
	CALL(sendmsg),
	CALL(sendto),
	CALL(set_robust_list),
	CALL(socket),
	CALL(symlinkat),
	CALL(sysinfo),
	CALL(unlinkat),
	CALL(userfaultfd),
	CALL(write),
#ifdef __x86_64__
	CALL(epoll_wait),
	CALL(mkdir),
	CALL(readlink),
#endif
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

/* What a request waits for: a slow machine, but not for ever. */
static const struct link_attr tolerant = {
	.mtu = IBV_MTU_1024,
	.timeout = 15, /* 134 ms */
	.retry_cnt = 1,
	.rnr_retry = 7,
	.min_rnr_timer = 1,
	.rd_atomic = 16,
	.dest_rd_atomic = 16,
	.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
};

static int refusal;   /* errno of what is refused */
static bool assisted; /* so is copying between processes */
static const struct call *refused;

/* For all threads to come. What goes to the test's own line passes. */
static void refuse_calls(int line)
{
	unsigned answer = SECCOMP_RET_ERRNO | ((unsigned)refusal & SECCOMP_RET_DATA);
	int copying = assisted ? SYS_process_vm_readv : refused->number;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refused->number, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)copying, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
			 (unsigned)(assisted ? SYS_process_vm_writev : copying), 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)line, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, answer),
	};
	struct sock_fprog program = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

	CHECK_EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
		SKIP("no filter: %s", strerror(errno));
}

/* What became of the filtered process, sent to its peer, who can print it. */
struct report {
	char text[160];
	unsigned idle_cpu_ms;
};

static void tell(struct report *report, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(report->text, sizeof(report->text), format, args);
	va_end(args);
}

static unsigned cpu_ms(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (unsigned)(used.tv_sec * 1000 + used.tv_nsec / 1000000);
}

/* Does nothing for a while, in a call that no filter here refuses. */
static void idle(struct report *report)
{
	unsigned before = cpu_ms();
	struct timespec time = { .tv_nsec = IDLE_MS * 1000000 };

	syscall(SYS_ppoll, NULL, 0, &time, NULL, 0);
	report->idle_cpu_ms = cpu_ms() - before;
}

static bool opens(struct node *node, struct report *report)
{
	const char *step = "opening";

	memset(node, 0, sizeof(*node));
	node->buf = aligned_alloc(4096, NODE_BYTES);
	errno = 0;
	node->ctx = node->buf ? open_device() : NULL;
	if (node->ctx && (step = "a PD"))
		node->pd = ibv_alloc_pd(node->ctx);
	if (node->pd && (step = "a channel"))
		node->channel = ibv_create_comp_channel(node->ctx);
	if (node->channel && (step = "a CQ"))
		node->cq = ibv_create_cq(node->ctx, NODE_DEPTH, NULL, node->channel, 0);
	if (node->cq && (step = "a region"))
		node->mr = ibv_reg_mr(node->pd, node->buf, NODE_BYTES,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
					      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	if (node->mr && (step = "a GID") && !ibv_query_gid(node->ctx, 1, 0, &node->gid))
		return true;
	tell(report, "%s: %s", step, strerror(errno));
	CHECK(errno);
	return false;
}

static void closes(struct node *node)
{
	if (node->mr)
		ibv_dereg_mr(node->mr);
	if (node->cq)
		ibv_destroy_cq(node->cq);
	if (node->channel)
		ibv_destroy_comp_channel(node->channel);
	if (node->pd)
		ibv_dealloc_pd(node->pd);
	if (node->ctx)
		ibv_close_device(node->ctx);
	free(node->buf);
}

static struct ibv_qp *makes_qp(struct node *node, struct report *report)
{
	struct ibv_qp_init_attr init = {
		.send_cq = node->cq,
		.recv_cq = node->cq,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(node->pd, &init);

	if (!qp)
		tell(report, "a QP: %s", strerror(errno));
	return qp;
}

/* Posts one request and waits for its end. */
static bool carries_out(struct node *node, struct ibv_qp *qp, enum ibv_wr_opcode opcode,
			const struct card *card, struct report *report)
{
	uint32_t length = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : MESSAGE_BYTES;
	int error = opcode == IBV_WR_SEND ? node_send(node, qp, 1, 0, length) :
					    node_rdma(node, qp, 1, opcode, 0, length,
						      card->addr + 2 * MESSAGE_BYTES, card->rkey);
	struct ibv_wc wc;

	if (error) {
		tell(report, "posting %d: %s", opcode, strerror(error));
		return false;
	}
	do
		CHECK(node_poll(node->cq, &wc, TIMEOUT_MS / 2));
	while (wc.opcode & IBV_WC_RECV);
	if (wc.status)
		tell(report, "%s: %s, cause %u", opcode == IBV_WR_SEND ? "SEND" : "RDMA",
		     ibv_wc_status_str(wc.status), wc.vendor_err);
	CHECK(!wc.status || wc.vendor_err);
	return !wc.status;
}

static bool carries_out_all(struct node *node, struct ibv_qp *qp, const struct card *card,
			    struct report *report)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };

	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++)
		if (!carries_out(node, qp, opcodes[i], card, report))
			return false;
	return true;
}

/* Both ends: swaps cards, carries out all in turn, tells each other how that went. No card (QPN 0): no QP. */
static void takes_part(struct node *node, struct ibv_qp *qp, int line, bool first,
		       struct report *mine, struct report *theirs)
{
	struct card own = { 0 }, card;

	if (qp)
		own = node_card(node, qp);
	line_send(line, &own, sizeof(own));
	line_receive(line, &card, sizeof(card));
	if (qp && card.qpn) {
		node_init_qp(qp, tolerant.access);
		node_connect(qp, &card, &tolerant);
		CHECK_EQUAL(node_recv(node, qp, 2, MESSAGE_BYTES, MESSAGE_BYTES), 0);
	}
	say(line, 1);
	expect(line, 1);
	for (int turn = 0; turn < 2; turn++) {
		if (turn == first) {
			line_receive(line, theirs, sizeof(*theirs));
			continue;
		}
		if (qp && card.qpn && carries_out_all(node, qp, &card, mine))
			tell(mine, "works");
		line_send(line, mine, sizeof(*mine));
	}
}

static void filtered(int line)
{
	struct report report = { .text = "" }, theirs;
	struct ibv_qp *qp = NULL;
	struct node node;

	refuse_calls(line);
	if (opens(&node, &report))
		qp = makes_qp(&node, &report);
	takes_part(&node, qp, line, true, &report, &theirs);
	idle(&report);
	line_send(line, &report, sizeof(report));
	if (qp)
		ibv_destroy_qp(qp);
	closes(&node);
	say(line, 2);
	_exit(0);
}

static void unfiltered(int line)
{
	struct report report = { .text = "not tried" }, theirs;
	struct node node;
	struct ibv_qp *qp;

	CHECK(opens(&node, &report));
	qp = makes_qp(&node, &report);
	CHECK(qp);
	takes_part(&node, qp, line, false, &report, &theirs);
	line_receive(line, &theirs, sizeof(theirs));
	expect(line, 2);
	printf("%-18s %-70s peer: %s\n", refused->name, theirs.text, report.text);
	CHECK(theirs.idle_cpu_ms < IDLE_CPU_MS);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	closes(&node);
}

static void refuse_each(int error, bool without_copying)
{
	const char *only = getenv("ONLY");

	refusal = error;
	assisted = without_copying;
	for (size_t i = 0; i < CALLS; i++) {
		refused = &calls[i];
		if (only && strcmp(only, refused->name))
			continue;
		run_pair(filtered, unfiltered);
	}
}

static void not_permitted(void)
{
	refuse_each(EPERM, false);
}

static void not_implemented(void)
{
	refuse_each(ENOSYS, false);
}

static void not_permitted_assisted(void)
{
	refuse_each(EPERM, true);
}

static void not_implemented_assisted(void)
{
	refuse_each(ENOSYS, true);
}

static const struct call *call_of(int number)
{
	for (size_t i = 0; i < CALLS; i++)
		if (calls[i].number == number)
			return &calls[i];
	return NULL;
}

static char runtime[64];

static void filtered_with_its_own_files(int line)
{
	setenv("UROCE_RUNTIME_DIR", runtime, 1);
	filtered(line);
}

/* What answers a refused geteuid is nobody's number. */
static void unknown_user_leaves_no_directory(void)
{
	char parent[] = "/tmp/uroce-refuse-XXXXXX";

	CHECK(mkdtemp(parent));
	snprintf(runtime, sizeof(runtime), "%s/files", parent);
	refusal = EPERM;
	refused = call_of(SYS_geteuid);
	run_pair(filtered_with_its_own_files, unfiltered);
	CHECK(rmdir(runtime) && errno == ENOENT);
	CHECK_EQUAL(rmdir(parent), 0);
}

/* For refuse.sh: both ways of copying, with nothing else refused. */
static void nothing_refused(void)
{
	run_pair(open_and_exchange, open_and_exchange);
}

static void copying_refused(void)
{
	refusal = EPERM;
	assisted = true;
	refused = call_of(SYS_process_vm_readv);
	run_pair(filtered, unfiltered);
}

static void names(void)
{
	for (size_t i = 0; i < CALLS; i++)
		puts(calls[i].name);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "each_call_not_permitted", not_permitted },
		{ "each_call_not_implemented", not_implemented },
		{ "each_call_not_permitted_assisted", not_permitted_assisted },
		{ "each_call_not_implemented_assisted", not_implemented_assisted },
		{ "unknown_user_leaves_no_directory", unknown_user_leaves_no_directory },
		{ "nothing_refused", nothing_refused },
		{ "copying_refused", copying_refused },
		{ "names", names },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
