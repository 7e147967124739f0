/* SPDX-License-Identifier: MIT */
/*
 * Memory that the system does not give: a program that uses every verb, or the connection manager, runs again and again, and each
 * time one more allocation of the libraries passes before one fails, or all from there on. What is refused, a verb says or a
 * completion; nothing crashes or hangs, and what was made can be destroyed.
 *
 * An allocation is a call of malloc and its kin or of mmap from a library, by whichever thread; the program's own and the
 * loader's pass.
 */
#include "cases.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define RUN_SECONDS  20
#define COMPLETES_MS 8000
#define MAY_COME_MS  100
#define BYTES	     65536u
#define QPS	     6

/* ---- What fails ---- */

struct plan {
	bool for_ever;
	long nth;
	_Atomic bool on;
	_Atomic long count;
	char text[160]; /* what the program was refused first */
};

static struct plan *plan;
static uintptr_t exempt[4][2];
static unsigned exempts;

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

/* The program itself, and the loader: it ends a process that has no memory for a thread's storage. */
static int find_exempt(struct dl_phdr_info *info, size_t size, void *arg)
{
	bool loader = strstr(info->dlpi_name, "/ld-");

	(void)size;
	(void)arg;
	if (*info->dlpi_name && !loader)
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];

		if (part->p_type != PT_LOAD || !(part->p_flags & PF_X) ||
		    exempts == sizeof(exempt) / sizeof(exempt[0]))
			continue;
		exempt[exempts][0] = info->dlpi_addr + part->p_vaddr;
		exempt[exempts++][1] = info->dlpi_addr + part->p_vaddr + part->p_memsz;
	}
	return 0;
}

static bool fails(const void *caller)
{
	if (!plan || !atomic_load(&plan->on))
		return false;
	for (unsigned i = 0; i < exempts; i++) {
		if ((uintptr_t)caller >= exempt[i][0] && (uintptr_t)caller < exempt[i][1])
			return false;
	}
	long count = atomic_fetch_add(&plan->count, 1) + 1;

	return plan->for_ever ? count >= plan->nth : count == plan->nth;
}

#define REFUSE(answer)                                    \
	do {                                              \
		if (fails(__builtin_return_address(0))) { \
			errno = ENOMEM;                   \
			return answer;                    \
		}                                         \
	} while (0)

void *malloc(size_t size)
{
	REFUSE(NULL);
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	REFUSE(NULL);
	return __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
	REFUSE(NULL);
	return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	REFUSE(NULL);
	return __libc_memalign(alignment, size);
}

void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	REFUSE(MAP_FAILED);
	return (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
}

/* ---- What the program says ---- */

static void refused(const char *what, int error)
{
	if (!*plan->text)
		snprintf(plan->text, sizeof(plan->text), "%s: %s", what, strerror(error));
}

/* Of a call that may be refused: whether it was not. */
static bool worked(const char *what, int error)
{
	if (!error)
		return true;
	refused(what, error);
	/* Not reached: what is on the way has no memory. No device: there is none for its list. */
	CHECK(error == ENOMEM || error == ENODEV);
	return false;
}

/* The same of one that answers with a pointer, or with -1 and errno. */
#define MADE(what, pointer) worked(what, (errno = 0, (pointer)) ? 0 : errno ? errno : ENOENT)
#define DONE(what, call)    worked(what, (errno = 0, call) ? errno : 0)

/* ---- Verbs ---- */

struct things {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr, *again;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
	struct ibv_qp *qp[QPS]; /* pairs: RC, of which the second has the SRQ; UC; UD */
	union ibv_gid gid;
	uint8_t *buf;
	unsigned receives; /* completed */
};

static enum ibv_qp_type type_of(unsigned i)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	return types[i / 2];
}

static bool opens(struct things *t)
{
	int count = 0;
	struct ibv_device **list = NULL;

	if (!MADE("the list of devices", list = ibv_get_device_list(&count)))
		return false;
	if (count)
		t->ctx = (errno = 0, ibv_open_device(list[0]));
	int error = !count ? ENODEV : t->ctx ? 0 : errno;

	ibv_free_device_list(list);
	return worked("opening", error);
}

static bool makes(struct things *t)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_ah_attr ah = { .is_global = 1, .grh.hop_limit = 3, .port_num = 1 };
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

	if (!MADE("a PD", t->pd = ibv_alloc_pd(t->ctx)) ||
	    !MADE("a channel", t->channel = ibv_create_comp_channel(t->ctx)) ||
	    !MADE("a CQ", t->cq = ibv_create_cq(t->ctx, 32, NULL, t->channel, 0)) ||
	    !MADE("a region", t->mr = ibv_reg_mr(t->pd, t->buf, BYTES, access)) ||
	    !MADE("another region", t->again = ibv_reg_mr(t->pd, t->buf, BYTES / 2, access)) ||
	    !worked("the GID", ibv_query_gid(t->ctx, 1, 0, &t->gid)) ||
	    !MADE("an SRQ", t->srq = ibv_create_srq(t->pd, &srq)) ||
	    !MADE("a window", t->mw = ibv_alloc_mw(t->pd, IBV_MW_TYPE_1)))
		return false;
	ah.grh.dgid = t->gid;
	if (!MADE("an address handle", t->ah = ibv_create_ah(t->pd, &ah)))
		return false;
	for (unsigned i = 0; i < QPS; i++) {
		struct ibv_qp_init_attr init = { .send_cq = t->cq,
						 .recv_cq = t->cq,
						 .srq = i == 1 ? t->srq : NULL,
						 .cap = { 8, 8, 2, 2, 16 },
						 .qp_type = type_of(i),
						 .sq_sig_all = 1 };

		if (!MADE("a QP", t->qp[i] = ibv_create_qp(t->pd, &init)))
			return false;
	}
	return worked("resizing", ibv_resize_cq(t->cq, 200));
}

static bool connects(struct things *t, struct ibv_qp *qp, uint32_t to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = 7,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = to,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 1,
		.timeout = 10,
		.retry_cnt = 2,
		.rnr_retry = 3,
		.ah_attr = { .is_global = 1,
			     .grh = { .dgid = t->gid, .hop_limit = 3 },
			     .port_num = 1 },
	};
	bool rc = qp->qp_type == IBV_QPT_RC, ud = qp->qp_type == IBV_QPT_UD;

	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
			       (rc ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0);
	if (!worked("INIT", ibv_modify_qp(qp, &attr,
					  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						  (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS))))
		return false;
	attr.qp_state = IBV_QPS_RTR;
	if (!worked("RTR",
		    ibv_modify_qp(qp, &attr,
				  IBV_QP_STATE |
					  (ud ? 0 :
						IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
							   IBV_QP_RQ_PSN) |
					  (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER :
						0)))) {
		CHECK_EQUAL(node_state(qp), IBV_QPS_INIT);
		return false;
	}
	attr.qp_state = IBV_QPS_RTS;
	return worked("RTS", ibv_modify_qp(qp, &attr,
					   IBV_QP_STATE | IBV_QP_SQ_PSN |
						   (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
								    IBV_QP_RNR_RETRY |
								    IBV_QP_MAX_QP_RD_ATOMIC :
							 0)));
}

/* A request ends, well or with an error. */
static bool ends_well(struct things *t, const char *what)
{
	struct ibv_wc wc;

	for (;;) {
		if (!node_poll(t->cq, &wc, COMPLETES_MS))
			refused(what, ETIMEDOUT);
		CHECK(!plan->text[0] || !strstr(plan->text, "timed out"));
		if (wc.opcode & IBV_WC_RECV && !wc.status) {
			t->receives++;
			continue;
		}
		if (!wc.status)
			return true;
		if (!*plan->text)
			snprintf(plan->text, sizeof(plan->text), "%s: %s, cause %u", what,
				 ibv_wc_status_str(wc.status), wc.vendor_err);
		CHECK(wc.vendor_err);
		return false;
	}
}

static bool sends(struct things *t, unsigned i, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)t->buf, length, t->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;

	if (type_of(i) == IBV_QPT_UD) {
		wr.wr.ud.ah = t->ah;
		wr.wr.ud.remote_qpn = t->qp[i + 1]->qp_num;
		wr.wr.ud.remote_qkey = 7;
	} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)t->buf + BYTES / 2;
		wr.wr.atomic.rkey = t->mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)t->buf + BYTES / 2;
		wr.wr.rdma.rkey = t->mr->rkey;
	}
	return worked("posting", ibv_post_send(t->qp[i], &wr, &bad)) && ends_well(t, "a request");
}

static bool receives(struct things *t, unsigned i)
{
	struct ibv_sge sge = { (uintptr_t)t->buf + BYTES / 2, BYTES / 2, t->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	return worked("posting a receive", i == 1 ? ibv_post_srq_recv(t->srq, &wr, &bad) :
						    ibv_post_recv(t->qp[i], &wr, &bad));
}

/* RC: what was sent has arrived; else it may have got lost. */
static void arrives(struct things *t, unsigned i)
{
	struct ibv_wc wc;

	if (!t->receives &&
	    node_poll(t->cq, &wc, type_of(i) == IBV_QPT_RC ? COMPLETES_MS : MAY_COME_MS))
		t->receives += !wc.status;
	CHECK(t->receives || type_of(i) != IBV_QPT_RC);
	t->receives = 0;
}

static bool drains(struct things *t)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	return worked("SQD",
		      ibv_modify_qp(t->qp[0], &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
}

static bool uses(struct things *t)
{
	struct ibv_mw_bind bind = { .bind_info = { .mr = t->mr,
						   .addr = (uintptr_t)t->buf,
						   .length = 4096,
						   .mw_access_flags = IBV_ACCESS_REMOTE_WRITE } };

	for (unsigned i = 0; i < QPS; i++) {
		if (!connects(t, t->qp[i], t->qp[i ^ 1]->qp_num))
			return false;
	}
	for (unsigned i = 0; i < QPS; i += 2) {
		if (!receives(t, i + 1) || !worked("arming", ibv_req_notify_cq(t->cq, 0)) ||
		    !sends(t, i, IBV_WR_SEND, 1000))
			return false;
		arrives(t, i);
	}
	if (!sends(t, 0, IBV_WR_RDMA_WRITE, BYTES / 2) ||
	    !sends(t, 0, IBV_WR_RDMA_READ, BYTES / 2) ||
	    !sends(t, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 8) || !sends(t, 2, IBV_WR_RDMA_WRITE, 4000))
		return false;
	return worked("binding", ibv_bind_mw(t->qp[0], t->mw, &bind)) &&
	       ends_well(t, "a binding") && drains(t);
}

static void reads_events(struct things *t)
{
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;

	fcntl(t->ctx->async_fd, F_SETFL, O_NONBLOCK);
	while (!ibv_get_async_event(t->ctx, &event))
		ibv_ack_async_event(&event);
	if (!t->channel)
		return;
	fcntl(t->channel->fd, F_SETFL, O_NONBLOCK);
	while (!ibv_get_cq_event(t->channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
}

/* All of it: what could be made can be destroyed. */
static void clears(struct things *t)
{
	if (!t->ctx)
		return;
	reads_events(t);
	for (unsigned i = 0; i < QPS; i++)
		CHECK_EQUAL(t->qp[i] ? ibv_destroy_qp(t->qp[i]) : 0, 0);
	CHECK_EQUAL(t->ah ? ibv_destroy_ah(t->ah) : 0, 0);
	CHECK_EQUAL(t->mw ? ibv_dealloc_mw(t->mw) : 0, 0);
	CHECK_EQUAL(t->srq ? ibv_destroy_srq(t->srq) : 0, 0);
	CHECK_EQUAL(t->again ? ibv_dereg_mr(t->again) : 0, 0);
	CHECK_EQUAL(t->mr ? ibv_dereg_mr(t->mr) : 0, 0);
	CHECK_EQUAL(t->cq ? ibv_destroy_cq(t->cq) : 0, 0);
	CHECK_EQUAL(t->channel ? ibv_destroy_comp_channel(t->channel) : 0, 0);
	CHECK_EQUAL(t->pd ? ibv_dealloc_pd(t->pd) : 0, 0);
	CHECK_EQUAL(ibv_close_device(t->ctx), 0);
}

static void all_verbs(void)
{
	struct things t = { .buf = aligned_alloc(4096, BYTES) };

	memset(t.buf, 7, BYTES);
	atomic_store(&plan->on, true);
	if (opens(&t) && makes(&t))
		uses(&t);
	for (size_t i = 0; i < BYTES / 2; i++)
		CHECK(t.buf[i] == 7);
	clears(&t);
	for (size_t i = 0; i < BYTES / 2; i++)
		CHECK(t.buf[i] == 7);
	free(t.buf);
}

/* ---- The connection manager ---- */

struct meeting_ids {
	struct rdma_event_channel *server, *client;
	struct rdma_cm_id *listener, *to_client, *to_server;
};

/* What tells of it is a message, which without memory is lost, and sent again, slowly. */
static bool is_by_message(enum rdma_cm_event_type type)
{
	return type != RDMA_CM_EVENT_ADDR_RESOLVED && type != RDMA_CM_EVENT_ROUTE_RESOLVED;
}

/* The event that is due, or one of an error, which may come at the other end instead. */
static bool comes(struct rdma_event_channel *channel, enum rdma_cm_event_type due,
		  struct rdma_event_channel *other, struct rdma_cm_id **id)
{
	struct pollfd fd[] = { { .fd = channel->fd, .events = POLLIN },
			       { .fd = other ? other->fd : -1, .events = POLLIN } };
	bool may_be_lost = plan->for_ever && is_by_message(due);
	struct rdma_cm_event *event;
	enum rdma_cm_event_type came;
	int error;

	do {
		if (poll(fd, 2, may_be_lost ? MAY_COME_MS : COMPLETES_MS) < 1) {
			refused(rdma_event_str(due), ETIMEDOUT);
			CHECK(may_be_lost);
			return false;
		}
		error = rdma_get_cm_event(fd[0].revents ? channel : other, &event) ? errno : 0;
	} while (error == EAGAIN); /* it was not for us: there was no memory to tell of it */
	if (!worked("an event", error))
		return false;
	came = event->event;
	if (came != due && !*plan->text)
		snprintf(plan->text, sizeof(plan->text), "%s for %s: %d", rdma_event_str(came),
			 rdma_event_str(due), event->status);
	if (came == RDMA_CM_EVENT_CONNECT_REQUEST && id)
		*id = event->id;
	CHECK_EQUAL(rdma_ack_cm_event(event), 0);
	return came == due;
}

static struct rdma_event_channel *open_channel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	if (channel)
		fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	return channel;
}

static bool has_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { 4, 4, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	return DONE("rdma_create_qp", rdma_create_qp(id, NULL, &attr));
}

static bool meets(struct meeting_ids *m)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_conn_param param = { .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = 2,
					 .rnr_retry_count = 2 };

	if (!MADE("a channel", m->server = open_channel()) ||
	    !MADE("a channel", m->client = open_channel()) ||
	    !DONE("an id", rdma_create_id(m->server, &m->listener, NULL, RDMA_PS_TCP)) ||
	    !DONE("binding", rdma_bind_addr(m->listener, (struct sockaddr *)&address)) ||
	    !DONE("listening", rdma_listen(m->listener, 8)))
		return false;
	address.sin_port = rdma_get_src_port(m->listener);
	return DONE("an id", rdma_create_id(m->client, &m->to_server, NULL, RDMA_PS_TCP)) &&
	       DONE("rdma_resolve_addr",
		    rdma_resolve_addr(m->to_server, NULL, (struct sockaddr *)&address, 1000)) &&
	       comes(m->client, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL) &&
	       DONE("rdma_resolve_route", rdma_resolve_route(m->to_server, 1000)) &&
	       comes(m->client, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL) && has_qp(m->to_server) &&
	       DONE("connecting", rdma_connect(m->to_server, &param)) &&
	       comes(m->server, RDMA_CM_EVENT_CONNECT_REQUEST, m->client, &m->to_client) &&
	       has_qp(m->to_client) && DONE("accepting", rdma_accept(m->to_client, NULL)) &&
	       comes(m->client, RDMA_CM_EVENT_ESTABLISHED, NULL, NULL) &&
	       comes(m->server, RDMA_CM_EVENT_ESTABLISHED, NULL, NULL) &&
	       DONE("disconnecting", rdma_disconnect(m->to_server)) &&
	       comes(m->server, RDMA_CM_EVENT_DISCONNECTED, NULL, NULL) &&
	       DONE("disconnecting", rdma_disconnect(m->to_client)) &&
	       comes(m->client, RDMA_CM_EVENT_DISCONNECTED, NULL, NULL);
}

static void destroys(struct rdma_cm_id *id)
{
	if (!id)
		return;
	if (id->qp)
		rdma_destroy_qp(id);
	CHECK_EQUAL(rdma_destroy_id(id), 0);
}

static void connection_manager(void)
{
	struct meeting_ids m = { 0 };

	atomic_store(&plan->on, true);
	meets(&m);
	destroys(m.to_server);
	destroys(m.to_client);
	destroys(m.listener);
	if (m.client)
		rdma_destroy_event_channel(m.client);
	if (m.server)
		rdma_destroy_event_channel(m.server);
}

/* ---- Again and again ---- */

/* Whether the allocation that was to fail was reached. */
static bool runs(void (*program)(void))
{
	int status;
	pid_t child;

	atomic_store(&plan->on, false);
	atomic_store(&plan->count, 0);
	*plan->text = 0;
	child = fork();
	if (!child) {
		alarm(RUN_SECONDS);
		program();
		atomic_store(&plan->on, false);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	printf("%s %ld of %ld: %s\n", plan->for_ever ? "from" : "only", plan->nth,
	       atomic_load(&plan->count), *plan->text ? plan->text : "works");
	if (status)
		printf("  ended by %s %d\n", WIFSIGNALED(status) ? "signal" : "status",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	CHECK(!status);
	return atomic_load(&plan->count) >= plan->nth;
}

static void run_all(void (*program)(void), bool for_ever)
{
	const char *only = getenv("ONLY");

	plan = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(plan != MAP_FAILED);
	dl_iterate_phdr(find_exempt, NULL);
	plan->for_ever = for_ever;
	for (plan->nth = only ? atol(only) : 1; runs(program); plan->nth++) {
		if (only)
			return;
	}
	CHECK(plan->nth > 10);
}

static void verbs_once(void)
{
	run_all(all_verbs, false);
}

static void verbs_for_ever(void)
{
	run_all(all_verbs, true);
}

static void connections_once(void)
{
	run_all(connection_manager, false);
}

static void connections_for_ever(void)
{
	run_all(connection_manager, true);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "verbs_once", verbs_once },
		{ "verbs_for_ever", verbs_for_ever },
		{ "connections_once", connections_once },
		{ "connections_for_ever", connections_for_ever },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
