/* SPDX-License-Identifier: MIT */
/*
 * Fuzzer of the connection manager: one with listeners and connections of its own, to which any letters come in any order, while
 * its program does what it likes. Its clock stands until it is moved, and what it sends goes nowhere.
 *
 * What must hold: no letter makes it send more than one answer (and, to whom a queue pair was connected that is used again, a
 * DREQ); what was made can be destroyed at any time, and then nothing is left.
 */
#include "fuzz.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>

#include "cm/engine.h"

#define IDS_MOST 64

enum action { LETTER, CONNECT, ACCEPT, REJECT, DISCONNECT, DESTROY, TIME, READ, NOTIFY, ATTRIBUTES, ACTIONS };

/* What of a letter is made to fit one of our ids. */
enum fit { FIT_RECEIVER = 1, FIT_SENDER = 2, FIT_ADDRESS = 4, FIT_QPN = 8, FIT_SERVICE = 16, FIT_WIRE = 32 };

struct input {
	const uint8_t *at;
	size_t left;
};

static struct world {
	struct cm *cm;
	struct cm_channel *channel;
	struct cm_id *ids[IDS_MOST];
	unsigned count;
	struct cm_id *listeners[2]; /* RC, UD */
	unsigned sent;
} world;

static uint64_t now;

uint64_t __wrap_nic_now(void);
uint64_t __wrap_nic_now(void)
{
	return now;
}

static uint8_t take_8(struct input *input)
{
	if (!input->left)
		return 0;
	input->left--;
	return *input->at++;
}

static void send_letter(struct cm *cm, const struct letter *letter)
{
	struct mad mad;

	(void)cm;
	CHECK(mad_decode(letter->mad, &mad));
	CHECK(mad.attribute >= MAD_REQ && mad.attribute <= MAD_SIDR_REP);
	world.sent++;
}

static struct cm_id *make(bool is_ud)
{
	struct cm_id *id;

	CHECK(!cm_create_id(world.channel, &world, is_ud ? RDMA_PS_UDP : RDMA_PS_TCP, is_ud ? IBV_QPT_UD : IBV_QPT_RC, &id));
	return id;
}

static void begin(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };

	world = (struct world){ .cm = cm_make() };
	now = 1000000000;
	world.cm->send = send_letter;
	world.cm->slot = 1;
	world.cm->guid = 1;
	world.cm->next_id = 0;
	world.channel = channel_make(world.cm);
	CHECK(!fcntl(world.channel->fd, F_SETFL, O_NONBLOCK));
	for (int i = 0; i < 2; i++) {
		world.listeners[i] = make(i);
		CHECK(!cm_bind(world.listeners[i], (struct sockaddr *)&any));
		CHECK(!cm_listen(world.listeners[i], 8));
	}
}

static void end(void)
{
	unsigned read;

	while (!list_empty(&world.channel->ids))
		cm_destroy_id(list_entry(world.channel->ids.next, struct cm_id, of_channel), &read);
	channel_free(world.channel);
	cm_free(world.cm);
}

/* One of the ids, or NULL without any. */
static struct cm_id *pick(struct input *input)
{
	unsigned i = take_8(input);

	return world.count ? world.ids[i % world.count] : NULL;
}

static void add(struct cm_id *id)
{
	unsigned read;

	if (world.count < IDS_MOST)
		world.ids[world.count++] = id;
	else
		cm_destroy_id(id, &read);
}

static void destroy(struct input *input)
{
	struct cm_id *id = pick(input);
	unsigned read;

	for (unsigned i = 0; i < world.count; i++) {
		if (world.ids[i] == id)
			world.ids[i--] = world.ids[--world.count];
	}
	if (id)
		cm_destroy_id(id, &read);
}

static void put(uint8_t *to, uint64_t value, unsigned bytes)
{
	while (bytes--)
		*to++ = (uint8_t)(value >> 8 * bytes);
}

static void make_fit(uint8_t fit, const struct cm_id *id, struct letter *letter)
{
	uint8_t *mad = letter->mad;
	bool is_sidr = mad[17] == MAD_SIDR_REQ || mad[17] == MAD_SIDR_REP;

	memcpy(mad, (uint8_t[]){ 1, 7, 2, 3 }, 4);
	letter->wire = !!(fit & FIT_WIRE);
	if (id && fit & FIT_RECEIVER)
		put(mad + (is_sidr ? 24 : 28), id->local_id, 4);
	if (id && fit & FIT_SENDER && !is_sidr)
		put(mad + 24, id->remote_id, 4);
	if (id && fit & FIT_ADDRESS)
		letter->from = id->dgid;
	if (id && fit & FIT_QPN && mad[17] == MAD_DREQ)
		put(mad + 32, id->local_qpn, 3);
	if (mad[17] == MAD_REQ)
		memcpy(mad + 24 + 56, &letter->from, 16);
	if (fit & FIT_SERVICE && mad[17] == MAD_REQ)
		put(mad + 32, MAD_SERVICE_ID(RDMA_PS_TCP, address_port(&world.listeners[0]->src)), 8);
	if (fit & FIT_SERVICE && mad[17] == MAD_SIDR_REQ)
		put(mad + 32, MAD_SERVICE_ID(RDMA_PS_UDP, address_port(&world.listeners[1]->src)), 8);
}

static void bring_letter(struct input *input)
{
	struct letter letter = { .from = { .raw = { [10] = 0xff, 0xff, 10, 99, 0, 11 } },
				 .to = { .raw = { [10] = 0xff, 0xff, 127, 0, 0, 1 } } };
	uint8_t fit = take_8(input);
	struct cm_id *id = pick(input);

	courier_stamp(&letter);
	for (unsigned i = 0; i < MAD_BYTES; i++)
		letter.mad[i] = take_8(input);
	if (fit)
		make_fit(fit, id, &letter);
	pthread_mutex_lock(&world.cm->lock);
	world.sent = 0;
	conn_take(world.cm, &letter);
	CHECK(world.sent <= 2);
	cm_settle(world.cm);
	pthread_mutex_unlock(&world.cm->lock);
}

static void connect_one(struct input *input)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	uint8_t data[UINT8_MAX] = { 0 };
	struct rdma_conn_param param = { .qp_num = take_8(input), .private_data = data, .private_data_len = take_8(input) };
	struct cm_id *id = make(take_8(input) & 1);

	CHECK(!cm_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000));
	CHECK(!cm_resolve_route(id, 1000));
	cm_connect(id, &param, NULL);
	add(id);
}

static void accept_one(struct input *input)
{
	uint8_t data[UINT8_MAX] = { 0 };
	struct rdma_conn_param param = { .qp_num = take_8(input), .private_data = data, .private_data_len = take_8(input) };
	struct cm_id *id = pick(input);

	if (id)
		cm_accept(id, take_8(input) & 1 ? &param : NULL, 0, NULL);
}

static void reject_one(struct input *input)
{
	uint8_t data[UINT8_MAX] = { 0 };
	struct cm_id *id = pick(input);

	if (id)
		cm_reject(id, data, take_8(input), 28);
}

static void read_events(void)
{
	struct cm_event event;

	while (!cm_get_event(world.channel, &event)) {
		if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST)
			continue;
		cm_set_context(event.id, &world);
		add(event.id);
	}
}

static void pass(struct input *input)
{
	now += 1ull << take_8(input) % 40;
	pthread_mutex_lock(&world.cm->lock);
	cm_run(world.cm);
	pthread_mutex_unlock(&world.cm->lock);
}

static void attributes(struct input *input)
{
	struct cm_id *id = pick(input);
	struct ibv_qp_attr attr;
	int mask;

	if (id)
		cm_init_qp_attr(id, take_8(input) % (IBV_QPS_ERR + 1), &attr, &mask);
}

static void act(struct input *input)
{
	struct cm_id *id;

	switch (take_8(input) % ACTIONS) {
	case LETTER:
		bring_letter(input);
		break;
	case CONNECT:
		connect_one(input);
		break;
	case ACCEPT:
		accept_one(input);
		break;
	case REJECT:
		reject_one(input);
		break;
	case DISCONNECT:
		id = pick(input);
		if (id)
			cm_disconnect(id);
		break;
	case DESTROY:
		destroy(input);
		break;
	case TIME:
		pass(input);
		break;
	case READ:
		read_events();
		break;
	case NOTIFY:
		id = pick(input);
		if (id)
			cm_notify(id, IBV_EVENT_COMM_EST);
		break;
	case ATTRIBUTES:
		attributes(input);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct input input = { bytes, length };

	begin();
	while (input.left)
		act(&input);
	end();
	return 0;
}
