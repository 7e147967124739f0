/* SPDX-License-Identifier: MIT */
/*
 * Datagrams to a multicast group, by processes of one host or of several, and to an address that comes later.
 *
 * usage: datagrams send GROUP COUNT    sends until COUNT receivers have answered that they are content
 *        datagrams receive GROUP       checks DATAGRAMS datagrams, answers
 *        datagrams rules GROUP         what one process can see alone
 *        datagrams members GROUP       two queue pairs in a group, one not
 *        datagrams appear ADDRESS      to an address that the host gets meanwhile
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

#define QKEY	   0x11223344u
#define GROUP_QPN  0xffffffu
#define GRH_BYTES  40
#define DATAGRAMS  5
#define RECEIVES   64
#define PAYLOAD	   256
#define PATIENCE   30.0 /* s */
#define PAUSE	   0.02 /* s between datagrams: multicast has no flow control */

#define CHECK(condition)                                                                   \
	do {                                                                               \
		if (!(condition)) {                                                        \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, \
				strerror(errno));                                          \
			exit(1);                                                           \
		}                                                                          \
	} while (0)

/* A datagram's payload: every byte follows from the number. */
struct payload {
	uint32_t number;
	uint8_t bytes[PAYLOAD - 4];
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid group; /* or the address */
static int sgid_index;

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t memory[RECEIVES + 1][GRH_BYTES + PAYLOAD];
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool is_mapped(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, prefix, sizeof(prefix));
}

/* The device, and its first GID of the group's family. */
static void open_device(const char *address)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct in_addr v4;
	union ibv_gid gid;

	if (inet_pton(AF_INET, address, &v4) == 1) {
		group.raw[10] = group.raw[11] = 0xff;
		memcpy(group.raw + 12, &v4, 4);
	} else {
		CHECK(inet_pton(AF_INET6, address, group.raw) == 1);
	}
	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	do
		CHECK(!ibv_query_gid(context, 1, sgid_index, &gid) && gid.global.interface_id);
	while (is_mapped(&gid) != is_mapped(&group) && ++sgid_index);
}

static void post_receive(struct end *end, uint64_t i)
{
	struct ibv_sge sge = { (uintptr_t)end->memory[i], GRH_BYTES + PAYLOAD, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(end->qp, &wr, &bad));
}

static struct end *make_end(enum ibv_qp_type type)
{
	static struct end ends[3];
	static unsigned made;
	struct end *end = &ends[made++];
	struct ibv_qp_init_attr init = {
		.qp_type = type,
		.cap = { .max_send_wr = 8, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	CHECK(made <= 3);
	end->cq = ibv_create_cq(context, 2 * RECEIVES, NULL, NULL, 0);
	CHECK(end->cq);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(pd, &init);
	CHECK(end->qp);
	if (type != IBV_QPT_UD)
		return end;
	end->mr = ibv_reg_mr(pd, end->memory, sizeof(end->memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(end->mr);
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	for (uint64_t i = 0; i < RECEIVES; i++)
		post_receive(end, i);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return end;
}

static struct ibv_ah *make_ah(const union ibv_gid *to)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh = { .dgid = *to, .sgid_index = (uint8_t)sgid_index, .hop_limit = 1 }
	};
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);

	CHECK(ah);
	return ah;
}

static void send_to(struct end *end, struct ibv_ah *ah, uint32_t qpn, uint32_t number)
{
	struct payload *payload = (struct payload *)end->memory[RECEIVES];
	struct ibv_sge sge = { (uintptr_t)payload, sizeof(*payload), end->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = RECEIVES,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY },
	}, *bad;

	payload->number = number;
	for (uint32_t i = 0; i < sizeof(payload->bytes); i++)
		payload->bytes[i] = (uint8_t)(number * 7 + i);
	CHECK(!ibv_post_send(end->qp, &wr, &bad));
}

/* The next datagram that arrives within `seconds`, posted again when the next is asked for; NULL: none. */
static const struct payload *receive(struct end *end, double seconds, struct ibv_wc *wc)
{
	double until = now() + seconds;

	do {
		if (ibv_poll_cq(end->cq, 1, wc) != 1)
			continue;
		CHECK(wc->status == IBV_WC_SUCCESS);
		if (wc->wr_id == RECEIVES)
			continue;
		const struct payload *payload = (const void *)(end->memory[wc->wr_id] + GRH_BYTES);

		CHECK(wc->byte_len == GRH_BYTES + PAYLOAD && wc->wc_flags & IBV_WC_GRH);
		for (uint32_t i = 0; i < sizeof(payload->bytes); i++)
			CHECK(payload->bytes[i] == (uint8_t)(payload->number * 7 + i));
		return payload;
	} while (now() < until);
	return NULL;
}

/* Whom the datagram came from and went to, from its network header. */
static void read_header(const struct end *end, const struct ibv_wc *wc, union ibv_gid *from, union ibv_gid *to)
{
	const uint8_t *grh = end->memory[wc->wr_id];

	memset(from, 0, sizeof(*from));
	memset(to, 0, sizeof(*to));
	if (is_mapped(&group)) {
		from->raw[10] = from->raw[11] = to->raw[10] = to->raw[11] = 0xff;
		memcpy(from->raw + 12, grh + 32, 4);
		memcpy(to->raw + 12, grh + 36, 4);
	} else {
		memcpy(from, grh + 8, sizeof(*from));
		memcpy(to, grh + 24, sizeof(*to));
	}
}

static void send_until(unsigned receivers)
{
	struct end *end = make_end(IBV_QPT_UD);
	struct ibv_ah *ah = make_ah(&group);
	double until = now() + PATIENCE;
	struct ibv_wc wc;

	for (uint32_t number = 1; receivers && now() < until; number++) {
		send_to(end, ah, GROUP_QPN, number);
		if (receive(end, PAUSE, &wc))
			receivers--;
	}
	CHECK(!receivers);
}

static void receive_some(void)
{
	struct end *end = make_end(IBV_QPT_UD);
	union ibv_gid from, to;
	uint32_t last = 0;
	struct ibv_wc wc;

	CHECK(!ibv_attach_mcast(end->qp, &group, 0));
	for (int i = 0; i < DATAGRAMS; i++) {
		const struct payload *payload = receive(end, PATIENCE, &wc);

		CHECK(payload && payload->number > last); /* none twice */
		last = payload->number;
		read_header(end, &wc, &from, &to);
		CHECK(!memcmp(&to, &group, sizeof(to)));
	}
	CHECK(!ibv_detach_mcast(end->qp, &group, 0));
	send_to(end, make_ah(&from), wc.src_qp, 0);
	while (!ibv_poll_cq(end->cq, 1, &wc) || wc.wr_id != RECEIVES)
		continue;
}

static void check_rules(void)
{
	struct end *end = make_end(IBV_QPT_UD), *rc = make_end(IBV_QPT_RC);
	union ibv_gid own;
	struct ibv_device_attr device;

	CHECK(!ibv_query_gid(context, 1, sgid_index, &own));
	CHECK(ibv_attach_mcast(end->qp, &own, 0) == EINVAL);
	CHECK(ibv_attach_mcast(rc->qp, &group, 0) == EINVAL);
	CHECK(ibv_detach_mcast(end->qp, &group, 0) == EINVAL);
	CHECK(!ibv_attach_mcast(end->qp, &group, 0));
	CHECK(!ibv_attach_mcast(end->qp, &group, 0)); /* once in is in */
	CHECK(ibv_destroy_qp(end->qp) == EBUSY);
	CHECK(!ibv_detach_mcast(end->qp, &group, 0));
	CHECK(ibv_detach_mcast(end->qp, &group, 0) == EINVAL);
	/* As many groups as the device says. */
	CHECK(!ibv_query_device(context, &device) && device.max_mcast_grp > 0);
	for (int i = 0; i <= device.max_mcast_grp; i++) {
		union ibv_gid other = group;

		other.raw[14] = (uint8_t)(i >> 8);
		other.raw[15] = (uint8_t)i;
		CHECK(ibv_attach_mcast(end->qp, &other, 0) == (i < device.max_mcast_grp ? 0 : ENOMEM));
	}
	CHECK(!ibv_close_device(context)); /* with all of them */
}

static void check_members(void)
{
	struct end *in[2] = { make_end(IBV_QPT_UD), make_end(IBV_QPT_UD) }, *out = make_end(IBV_QPT_UD);
	struct ibv_ah *ah = make_ah(&group);
	struct ibv_wc wc;

	for (int i = 0; i < 2; i++)
		CHECK(!ibv_attach_mcast(in[i]->qp, &group, 0));
	/* Who sends is a member like others. */
	send_to(in[0], ah, GROUP_QPN, 1);
	for (int i = 0; i < 2; i++) {
		CHECK(receive(in[i], PATIENCE, &wc));
		CHECK(wc.src_qp == in[0]->qp->qp_num && wc.qp_num == in[i]->qp->qp_num);
	}
	/* Not to who has left, while the other has it. */
	CHECK(!ibv_detach_mcast(in[0]->qp, &group, 0));
	send_to(out, ah, GROUP_QPN, 2);
	CHECK(receive(in[1], PATIENCE, &wc));
	CHECK(!receive(in[0], 0.1, &wc) && !receive(out, 0, &wc) && !receive(in[1], 0, &wc));
}

/* The receiver was ready before its host had the address. Waits for the event, on which it shall be there. */
static void check_appearance(void)
{
	struct end *in = make_end(IBV_QPT_UD), *out = make_end(IBV_QPT_UD);
	double until = now() + PATIENCE;
	struct ibv_async_event event;
	union ibv_gid gid;
	struct ibv_wc wc;
	int index = 0;

	puts("ready");
	fflush(stdout);
	do {
		CHECK(!ibv_get_async_event(context, &event));
		ibv_ack_async_event(&event);
		for (index = 0; index < 32 && !ibv_query_gid(context, 1, index, &gid) && memcmp(&gid, &group, sizeof(gid));)
			index++;
	} while (index == 32);
	for (uint32_t number = 1; now() < until; number++) {
		send_to(out, make_ah(&group), in->qp->qp_num, number);
		if (receive(in, PAUSE, &wc))
			return;
	}
	CHECK(!"it arrived");
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: datagrams send|receive|rules|members|appear ADDRESS [COUNT]\n");
		return 2;
	}
	open_device(argv[2]);
	if (!strcmp(argv[1], "send"))
		send_until(argc > 3 ? (unsigned)atoi(argv[3]) : 1);
	else if (!strcmp(argv[1], "receive"))
		receive_some();
	else if (!strcmp(argv[1], "rules"))
		check_rules();
	else if (!strcmp(argv[1], "members"))
		check_members();
	else
		check_appearance();
	puts("ok");
	return 0;
}
