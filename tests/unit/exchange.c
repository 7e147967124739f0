/* SPDX-License-Identifier: MIT */
/*
 * The exchange of CM messages between two connection managers whose letters go through this file: they may get lost, come twice, or
 * late. The clock stands until something is due. What comes of it are events, each of which must come exactly once.
 */
#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "cm/engine.h"

#define MS 1000000ull

struct flight {
	struct list node;
	struct host *to;
	uint64_t at;
	struct letter letter;
};

/* One of the two: a connection manager, and a program that uses it. */
struct host {
	struct cm *cm;
	struct cm_channel *channel;
	struct cm_id *listener;
	unsigned events[RDMA_CM_EVENT_TIMEWAIT_EXIT + 1];
	struct cm_event last;
	unsigned sent;	   /* letters */
	struct mad sent_last;
	uint16_t dropping; /* letters with this attribute get lost */
	bool is_deaf;	   /* nothing reaches it */
	/* What its program does by itself */
	bool accepts, answers, disconnects, destroys;
	bool keeps; /* it does not answer that the other has disconnected */
	uint32_t qpn;
};

struct captured {
	struct host *to;
	enum mad_attribute attribute;
	struct letter letter;
};

static struct host here, there;
static struct captured captured[16];
static unsigned captures;
static bool is_capturing;
static struct list flights;
static uint64_t now = 1000000000ull;
static unsigned loss, twice, late; /* percent, percent, ms */

uint64_t __wrap_nic_now(void);
uint64_t __wrap_nic_now(void)
{
	return now;
}

static void carry(struct host *to, const struct letter *letter)
{
	struct flight *flight = calloc(1, sizeof(*flight));

	flight->to = to;
	flight->at = now + 1000 + (late ? (uint64_t)random() % (late * MS) : 0);
	flight->letter = *letter;
	list_add_tail(&flights, &flight->node);
}

static void send_letter(struct cm *cm, const struct letter *letter)
{
	struct host *from = cm == here.cm ? &here : &there, *to = cm == here.cm ? &there : &here;
	struct mad mad;

	assert_true(mad_decode(letter->mad, &mad));
	from->sent++;
	from->sent_last = mad;
	if (is_capturing && captures < sizeof(captured) / sizeof(captured[0]))
		captured[captures++] = (struct captured){ to, mad.attribute, *letter };
	if (mad.attribute == from->dropping || to->is_deaf || random() % 100 < (long)loss)
		return;
	carry(to, letter);
	if (random() % 100 < (long)twice)
		carry(to, letter);
}

static void open_host(struct host *host, uint32_t slot)
{
	*host = (struct host){ .cm = cm_make(), .qpn = slot * 1000 };
	host->cm->send = send_letter;
	host->cm->slot = slot;
	host->cm->guid = slot;
	host->channel = channel_make(host->cm);
	fcntl(host->channel->fd, F_SETFL, O_NONBLOCK);
}

/* All ids are destroyed. */
static void close_host(struct host *host)
{
	unsigned read;

	pthread_mutex_lock(&host->cm->lock);
	while (!list_empty(&host->channel->ids))
		id_destroy(list_entry(host->channel->ids.next, struct cm_id, of_channel), &read);
	channel_free(host->channel);
	pthread_mutex_unlock(&host->cm->lock);
}

static int begin(void **state)
{
	(void)state;
	list_init(&flights);
	loss = twice = late = 0;
	captures = 0;
	is_capturing = false;
	srandom(1);
	open_host(&here, 1);
	open_host(&there, 2);
	return 0;
}

static void react(struct host *host, struct cm_event *event)
{
	struct rdma_conn_param param = { .qp_num = 0, .responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7 };
	unsigned read;

	host->events[event->type]++;
	host->last = *event;
	switch (event->type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		cm_set_context(event->id, host);
		param.qp_num = ++host->qpn;
		if (host->accepts)
			assert_int_equal(cm_accept(event->id, &param, 0, NULL), 0);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		if (host->answers)
			assert_int_equal(cm_accept(event->id, NULL, 0, NULL), 0);
		if (host->disconnects)
			assert_int_equal(cm_disconnect(event->id), 0);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		if (!host->keeps)
			assert_int_equal(cm_disconnect(event->id), 0);
		if (host->destroys)
			cm_destroy_id(event->id, &read);
		break;
	default:
		break;
	}
}

static void read_events(struct host *host)
{
	struct cm_event event;

	while (!cm_get_event(host->channel, &event))
		react(host, &event);
}

static uint64_t run(struct host *host)
{
	uint64_t next;

	pthread_mutex_lock(&host->cm->lock);
	next = cm_run(host->cm);
	pthread_mutex_unlock(&host->cm->lock);
	return next;
}

static struct flight *next_flight(void)
{
	struct flight *first = NULL;

	list_for_each(node, &flights) {
		struct flight *flight = list_entry(node, struct flight, node);

		if (!first || flight->at < first->at)
			first = flight;
	}
	return first;
}

/* Lets happen what does until then. */
static void pass(uint64_t ns)
{
	uint64_t until = now + ns;

	for (;;) {
		struct flight *flight;
		uint64_t a, b, next;

		read_events(&here);
		read_events(&there);
		flight = next_flight();
		a = run(&here);
		b = run(&there);
		read_events(&here);
		read_events(&there);
		flight = next_flight();
		next = a < b ? a : b;
		if (flight && flight->at < next)
			next = flight->at;
		if (next > until)
			break;
		now = next > now ? next : now;
		if (!flight || flight->at > now)
			continue;
		list_del(&flight->node);
		pthread_mutex_lock(&flight->to->cm->lock);
		conn_take(flight->to->cm, &flight->letter);
		cm_settle(flight->to->cm);
		pthread_mutex_unlock(&flight->to->cm->lock);
		free(flight);
	}
	now = until;
}

static int end(void **state)
{
	(void)state;
	close_host(&here);
	close_host(&there);
	loss = 0;
	is_capturing = false;
	here.is_deaf = there.is_deaf = false;
	here.dropping = there.dropping = 0;
	/* Whatever was left to be said is said. There are no channels any more: nobody reads. */
	for (int i = 0; i < 200000 && (here.cm->ids || there.cm->ids); i++) {
		struct flight *flight = next_flight();
		uint64_t a = run(&here), b = run(&there), next = a < b ? a : b;

		if (flight && flight->at < next)
			next = flight->at;
		if (next == UINT64_MAX)
			break;
		now = next > now ? next : now;
		if (flight && flight->at <= now) {
			list_del(&flight->node);
			conn_take(flight->to->cm, &flight->letter);
			free(flight);
		}
	}
	/* Nothing is left behind. */
	assert_int_equal(here.cm->ids, 0);
	assert_int_equal(there.cm->ids, 0);
	cm_free(here.cm);
	cm_free(there.cm);
	list_for_each_safe(node, tmp, &flights)
		free(list_entry(node, struct flight, node));
	return 0;
}

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static void listen_there_for(enum rdma_port_space ps, enum ibv_qp_type type, int backlog)
{
	struct sockaddr_in address = loopback(0);

	assert_int_equal(cm_create_id(there.channel, &there, ps, type, &there.listener), 0);
	assert_int_equal(cm_bind(there.listener, (struct sockaddr *)&address), 0);
	assert_int_equal(cm_listen(there.listener, backlog), 0);
}

static void listen_there(int backlog)
{
	listen_there_for(RDMA_PS_TCP, IBV_QPT_RC, backlog);
}

static struct cm_id *ready_to_ask(enum rdma_port_space ps, enum ibv_qp_type type)
{
	struct cm_addresses addresses;
	struct sockaddr_in address;
	struct cm_event event;
	struct cm_id *id;

	assert_int_equal(cm_query(there.listener, &addresses), 0);
	address = loopback(((struct sockaddr_in *)&addresses.src)->sin_port);
	assert_int_equal(cm_create_id(here.channel, &here, ps, type, &id), 0);
	assert_int_equal(cm_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000), 0);
	assert_int_equal(cm_resolve_route(id, 1000), 0);
	assert_int_equal(cm_get_event(here.channel, &event), 0);
	assert_int_equal(event.type, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(cm_get_event(here.channel, &event), 0);
	assert_int_equal(event.type, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static struct cm_id *ask_with(uint32_t qpn)
{
	struct rdma_conn_param param = { .qp_num = qpn, .responder_resources = 1, .initiator_depth = 1 };
	struct cm_id *id = ready_to_ask(RDMA_PS_TCP, IBV_QPT_RC);

	assert_int_equal(cm_connect(id, &param, NULL), 0);
	return id;
}

static struct cm_id *ask(void)
{
	return ask_with(++here.qpn);
}

static void a_connection_begins_and_ends(void **state)
{
	(void)state;
	there.accepts = here.answers = true;
	listen_there(0);
	struct cm_id *id = ask();

	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_CONNECT_RESPONSE], 1);
	assert_int_equal(there.events[RDMA_CM_EVENT_ESTABLISHED], 1);
	assert_int_equal(here.sent, 2);
	assert_int_equal(there.sent, 1);
	assert_int_equal(cm_disconnect(id), 0);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_DISCONNECTED], 1);
	assert_int_equal(there.events[RDMA_CM_EVENT_DISCONNECTED], 1);
	pass(10000 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_TIMEWAIT_EXIT], 1);
	assert_int_equal(there.events[RDMA_CM_EVENT_TIMEWAIT_EXIT], 1);
	assert_int_equal(here.sent, 3);
	assert_int_equal(there.sent, 2);
}

static void what_comes_twice_is_one(void **state)
{
	(void)state;
	there.accepts = here.answers = here.disconnects = true;
	twice = 100;
	listen_there(0);
	ask();
	pass(10000 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_CONNECT_REQUEST], 1);
	assert_int_equal(here.events[RDMA_CM_EVENT_CONNECT_RESPONSE], 1);
	assert_int_equal(there.events[RDMA_CM_EVENT_ESTABLISHED], 1);
	assert_int_equal(here.events[RDMA_CM_EVENT_DISCONNECTED], 1);
	assert_int_equal(there.events[RDMA_CM_EVENT_DISCONNECTED], 1);
	assert_int_equal(here.events[RDMA_CM_EVENT_TIMEWAIT_EXIT], 1);
	assert_int_equal(there.events[RDMA_CM_EVENT_TIMEWAIT_EXIT], 1);
}

/* What was said so far comes again: a message at a time, each is answered with what is given (0: with silence), and neither side's
 * program hears of it. With `answers` ends what is looked at. */
struct answer {
	enum mad_attribute to, with;
};

static void replay(const struct answer *answers)
{
	unsigned before_here[sizeof(here.events) / sizeof(here.events[0])],
		before_there[sizeof(before_here) / sizeof(before_here[0])];

	memcpy(before_here, here.events, sizeof(before_here));
	memcpy(before_there, there.events, sizeof(before_there));
	is_capturing = false;
	for (; answers->to; answers++) {
		for (unsigned i = 0; i < captures; i++) {
			struct host *host = captured[i].to;
			unsigned sent = host->sent;

			if (captured[i].attribute != answers->to)
				continue;
			pthread_mutex_lock(&host->cm->lock);
			conn_take(host->cm, &captured[i].letter);
			cm_settle(host->cm);
			pthread_mutex_unlock(&host->cm->lock);
			if (host->sent != sent + !!answers->with)
				fail_msg("%x was answered by %u messages", answers->to, host->sent - sent);
			if (answers->with)
				assert_int_equal(host->sent_last.attribute, answers->with);
			pass(10 * MS);
		}
	}
	assert_memory_equal(before_here, here.events, sizeof(before_here));
	assert_memory_equal(before_there, there.events, sizeof(before_there));
	is_capturing = true;
}

/* In each state that the two go through all that was said before comes again. */
static void old_messages_change_nothing(void **state)
{
	static const struct answer requested[] = { { MAD_REQ, MAD_MRA }, { 0, 0 } };
	static const struct answer accepted[] = { { MAD_REQ, MAD_REP }, { MAD_REP, MAD_MRA }, { 0, 0 } };
	static const struct answer established[] = { { MAD_REQ, 0 }, { MAD_REP, MAD_RTU }, { MAD_RTU, 0 }, { 0, 0 } };
	static const struct answer leaving[] = { { MAD_REQ, 0 }, { MAD_REP, 0 }, { MAD_RTU, 0 }, { MAD_DREQ, 0 }, { 0, 0 } };
	static const struct answer timewait[] = { { MAD_REQ, MAD_REJ },	  { MAD_REP, 0 },  { MAD_RTU, 0 },
						  { MAD_DREQ, MAD_DREP }, { MAD_DREP, 0 }, { 0, 0 } };
	static const struct answer over[] = { { MAD_REP, 0 }, { MAD_RTU, 0 }, { MAD_DREQ, MAD_DREP }, { MAD_DREP, 0 }, { 0, 0 } };
	static const struct answer again[] = { { MAD_REP, 0 }, { 0, 0 } };
	struct rdma_conn_param param = { .qp_num = 5 };
	struct cm_id *asker, *asked;
	unsigned read;

	(void)state;
	there.keeps = true;
	is_capturing = true;
	listen_there(0);
	asker = ask();
	pass(10 * MS);
	asked = there.last.id;
	replay(requested);
	assert_int_equal(cm_accept(asked, &param, 0, NULL), 0);
	pass(10 * MS);
	replay(accepted);
	assert_int_equal(cm_accept(asker, NULL, 0, NULL), 0);
	pass(10 * MS);
	replay(established);
	assert_int_equal(cm_disconnect(asker), 0);
	pass(10 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_DISCONNECTED], 1);
	replay(leaving);
	assert_int_equal(cm_disconnect(asked), 0);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_DISCONNECTED], 1);
	replay(timewait);
	pass(10000 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_TIMEWAIT_EXIT], 1);
	assert_int_equal(there.events[RDMA_CM_EVENT_TIMEWAIT_EXIT], 1);
	replay(over);
	cm_destroy_id(asker, &read);
	cm_destroy_id(asked, &read);
	replay(over);
	/* A request that nobody remembers is a new one; its sender knows of none. */
	is_capturing = false;
	there.accepts = true;
	conn_take(there.cm, &captured[0].letter);
	pass(10 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_CONNECT_REQUEST], 2);
	replay(again);
	pass(300000 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_UNREACHABLE], 1);
}

static void old_rejections_change_nothing(void **state)
{
	static const struct answer rejected[] = { { MAD_REJ, 0 }, { 0, 0 } };
	struct cm_id *id;

	(void)state;
	here.answers = true;
	is_capturing = true;
	listen_there(0);
	ask();
	pass(10 * MS);
	assert_int_equal(cm_reject(there.last.id, NULL, 0, MAD_REJ_CONSUMER), 0);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_REJECTED], 1);
	replay(rejected);
	/* Nor for the next connection. */
	there.accepts = true;
	id = ask();
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_CONNECT_RESPONSE], 1);
	replay(rejected);
	assert_int_equal(cm_disconnect(id), 0);
	pass(10 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_DISCONNECTED], 1);
}

static void old_datagram_messages_change_nothing(void **state)
{
	static const struct answer requested[] = { { MAD_SIDR_REQ, 0 }, { 0, 0 } };
	static const struct answer resolved[] = { { MAD_SIDR_REQ, MAD_SIDR_REP }, { MAD_SIDR_REP, 0 }, { 0, 0 } };
	struct rdma_conn_param param = { .qp_num = 3 };
	unsigned read;

	(void)state;
	is_capturing = true;
	listen_there_for(RDMA_PS_UDP, IBV_QPT_UD, 0);
	assert_int_equal(cm_connect(ready_to_ask(RDMA_PS_UDP, IBV_QPT_UD), &param, NULL), 0);
	pass(10 * MS);
	replay(requested);
	assert_int_equal(cm_accept(there.last.id, &param, 0, NULL), 0);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_ESTABLISHED], 1);
	replay(resolved);
	/* For a while it is remembered, though the program is done with it. */
	cm_destroy_id(there.last.id, &read);
	replay(resolved);
}

/* Each as often as was asked for, whatever the network does: seeds of what it does. */
static void connections_survive_any_network(void **state)
{
	(void)state;
	there.accepts = here.answers = here.disconnects = here.destroys = there.destroys = true;
	listen_there(0);
	loss = 20;
	twice = 20;
	late = 400;
	for (unsigned seed = 1; seed <= TIMES(200) + 1; seed++) {
		unsigned requests = 20;

		srandom(seed);
		memset(here.events, 0, sizeof(here.events));
		memset(there.events, 0, sizeof(there.events));
		for (unsigned i = 0; i < requests; i++)
			ask();
		pass(600000 * MS);
		assert_int_equal(there.events[RDMA_CM_EVENT_CONNECT_REQUEST], requests);
		assert_int_equal(here.events[RDMA_CM_EVENT_CONNECT_RESPONSE], requests);
		assert_int_equal(here.events[RDMA_CM_EVENT_DISCONNECTED], requests);
		assert_int_equal(there.events[RDMA_CM_EVENT_DISCONNECTED], requests);
		assert_true(there.events[RDMA_CM_EVENT_ESTABLISHED] <= requests);
		assert_int_equal(here.cm->ids, 0);
		assert_int_equal(there.cm->ids, 1);
	}
}

static void nobody_answers(void **state)
{
	(void)state;
	listen_there(0);
	there.is_deaf = true;
	ask();
	pass(300000 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_UNREACHABLE], 1);
	assert_int_equal(here.last.status, -ETIMEDOUT);
	assert_int_equal(here.sent, 16);
}

static void an_acceptance_that_is_not_confirmed_ends(void **state)
{
	(void)state;
	there.accepts = true;
	listen_there(0);
	here.is_deaf = true;
	ask();
	pass(300000 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_CONNECT_REQUEST], 1);
	assert_int_equal(there.events[RDMA_CM_EVENT_UNREACHABLE], 1);
	assert_int_equal(there.last.status, -ETIMEDOUT);
}

/* The second REQ is met with an MRA, and no third comes for a minute. */
static void a_program_may_take_its_time(void **state)
{
	struct rdma_conn_param param = { .qp_num = 5 };

	(void)state;
	here.answers = true;
	listen_there(0);
	ask();
	pass(60000 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_CONNECT_REQUEST], 1);
	assert_int_equal(here.sent, 2);
	assert_int_equal(there.sent, 1);
	assert_int_equal(cm_accept(there.last.id, &param, 0, NULL), 0);
	pass(10 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_ESTABLISHED], 1);
}

static void data_says_that_the_connection_is_there(void **state)
{
	(void)state;
	there.accepts = here.answers = true;
	here.dropping = MAD_RTU;
	listen_there(0);
	ask();
	pass(10 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_ESTABLISHED], 0);
	assert_int_equal(cm_notify(there.last.id, IBV_EVENT_COMM_EST), 0);
	assert_int_equal(cm_notify(there.last.id, IBV_EVENT_COMM_EST), EISCONN);
	here.dropping = 0;
	pass(10000 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_ESTABLISHED], 1);
}

static void a_lost_confirmation_is_said_again(void **state)
{
	(void)state;
	there.accepts = here.answers = true;
	here.dropping = MAD_RTU;
	listen_there(0);
	ask();
	pass(10 * MS);
	here.dropping = 0;
	pass(1000 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_ESTABLISHED], 1);
	assert_int_equal(here.events[RDMA_CM_EVENT_CONNECT_RESPONSE], 1);
}

static void both_may_disconnect_at_once(void **state)
{
	(void)state;
	there.accepts = here.answers = true;
	listen_there(0);
	struct cm_id *id = ask();

	pass(10 * MS);
	assert_int_equal(cm_disconnect(id), 0);
	assert_int_equal(cm_disconnect(there.last.id), 0);
	pass(10000 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_DISCONNECTED], 1);
	assert_int_equal(there.events[RDMA_CM_EVENT_DISCONNECTED], 1);
	assert_int_equal(here.events[RDMA_CM_EVENT_TIMEWAIT_EXIT], 1);
	assert_int_equal(there.events[RDMA_CM_EVENT_TIMEWAIT_EXIT], 1);
}

static void a_disconnection_that_is_not_answered_ends(void **state)
{
	(void)state;
	there.accepts = here.answers = true;
	listen_there(0);
	struct cm_id *id = ask();

	pass(10 * MS);
	there.is_deaf = true;
	assert_int_equal(cm_disconnect(id), 0);
	pass(300000 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_DISCONNECTED], 1);
	assert_int_equal(here.events[RDMA_CM_EVENT_TIMEWAIT_EXIT], 1);
}

static void a_queue_pair_that_is_used_again_ends_its_stale_connection(void **state)
{
	unsigned read;

	(void)state;
	there.accepts = here.answers = true;
	listen_there(0);
	struct cm_id *id = ask_with(77);

	pass(10 * MS);
	/* It is gone, and its DREQ did not arrive. */
	here.dropping = MAD_DREQ;
	cm_destroy_id(id, &read);
	ask_with(77);
	pass(100 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_REJECTED], 1);
	assert_int_equal(here.last.status, MAD_REJ_STALE);
	here.dropping = 0;
	pass(5000 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_DISCONNECTED], 1);
	/* After its TIMEWAIT the queue pair is good again. */
	ask_with(77);
	pass(100 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_CONNECT_RESPONSE], 2);
}

static void requests_are_rejected_with_their_listener(void **state)
{
	unsigned read;

	(void)state;
	listen_there(0);
	ask();
	ask();
	pass(10 * MS);
	/* One has been read; the other has not. */
	struct cm_id *taken = there.last.id;
	struct rdma_conn_param param = { .qp_num = 9 };

	ask();
	while (next_flight()) {
		struct flight *flight = next_flight();

		now = flight->at;
		list_del(&flight->node);
		conn_take(flight->to->cm, &flight->letter);
		free(flight);
	}
	cm_destroy_id(there.listener, &read);
	assert_int_equal(read, 2);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_REJECTED], 1);
	assert_int_equal(here.last.status, MAD_REJ_CONSUMER);
	assert_int_equal(cm_accept(taken, &param, 0, NULL), 0);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_CONNECT_RESPONSE], 1);
}

/* What the backlog has no room for comes again when there is room. */
static void a_backlog_bounds_what_waits(void **state)
{
	(void)state;
	listen_there(2);
	for (int i = 0; i < 3; i++)
		ask();
	while (next_flight()) {
		struct flight *flight = next_flight();

		now = flight->at;
		list_del(&flight->node);
		conn_take(flight->to->cm, &flight->letter);
		free(flight);
	}
	assert_int_equal(there.listener->pending, 2);
	assert_int_equal(there.sent, 0);
	pass(5000 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_CONNECT_REQUEST], 3);
}

static void who_gives_up_says_so(void **state)
{
	unsigned read;

	(void)state;
	listen_there(0);
	struct cm_id *id = ask();

	pass(10 * MS);
	cm_destroy_id(id, &read);
	pass(10 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_REJECTED], 1);
	assert_int_equal(there.last.status, MAD_REJ_TIMEOUT);
}

static void datagrams_are_resolved_once(void **state)
{
	struct rdma_conn_param param = { .qp_num = 3 };

	(void)state;
	there.accepts = true;
	there.dropping = MAD_SIDR_REP;
	listen_there_for(RDMA_PS_UDP, IBV_QPT_UD, 0);
	struct cm_id *id = ready_to_ask(RDMA_PS_UDP, IBV_QPT_UD);

	assert_int_equal(cm_connect(id, &param, NULL), 0);
	pass(10 * MS);
	there.dropping = 0;
	pass(10000 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_ESTABLISHED], 1);
	assert_int_equal(here.last.param.ud.qp_num, there.qpn);
	assert_int_equal(here.last.param.ud.qkey, RDMA_UDP_QKEY);
	assert_int_equal(there.events[RDMA_CM_EVENT_CONNECT_REQUEST], 1);
}

/* A letter from somebody. */
static struct letter letter_from(const struct cm_id *id, const union ibv_gid *from, const struct mad *mad)
{
	struct letter letter = { .from = *from, .to = id->sgid };

	courier_stamp(&letter);
	mad_encode(mad, letter.mad);
	return letter;
}

static void what_does_not_belong_to_the_connection_changes_nothing(void **state)
{
	const union ibv_gid stranger = { .raw = { [10] = 0xff, 0xff, 10, 0, 0, 9 } };

	(void)state;
	there.accepts = here.answers = true;
	listen_there(0);
	struct cm_id *id = ask();

	pass(10 * MS);
	struct mad dreq = { .attribute = MAD_DREQ, .local_id = id->remote_id, .remote_id = id->local_id, .dreq.qpn = id->local_qpn };
	struct letter letters[3];

	letters[0] = letter_from(id, &stranger, &dreq);
	dreq.dreq.qpn ^= 1;
	letters[1] = letter_from(id, &id->dgid, &dreq);
	dreq.dreq.qpn ^= 1;
	dreq.local_id ^= 1;
	letters[2] = letter_from(id, &id->dgid, &dreq);
	for (unsigned i = 0; i < 3; i++)
		conn_take(here.cm, &letters[i]);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_DISCONNECTED], 0);
	assert_int_equal(cm_disconnect(id), 0);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_DISCONNECTED], 1);
}

static void private_data_has_its_bounds(void **state)
{
	uint8_t much[UINT8_MAX] = { 0 };
	struct rdma_conn_param param = { .qp_num = 3, .private_data = much, .private_data_len = CM_REQ_PRIVATE + 1 };

	(void)state;
	here.answers = true;
	listen_there(0);
	struct cm_id *id = ready_to_ask(RDMA_PS_TCP, IBV_QPT_RC);

	assert_int_equal(cm_connect(id, &param, NULL), EINVAL);
	param.private_data_len = CM_REQ_PRIVATE;
	assert_int_equal(cm_connect(id, &param, NULL), 0);
	assert_int_equal(cm_connect(id, &param, NULL), EINVAL);
	pass(10 * MS);
	param.private_data_len = CM_REP_PRIVATE;
	assert_int_equal(cm_accept(there.last.id, &param, 0, NULL), 0);
	pass(10 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_ESTABLISHED], 1);
}

/* Who asked is told; the id is as after a rejection. */
static void an_acceptance_that_fails_rejects(void **state)
{
	uint8_t much[UINT8_MAX] = { 0 };
	struct rdma_conn_param param = { .qp_num = 3, .private_data = much, .private_data_len = CM_REP_PRIVATE + 1 };

	(void)state;
	listen_there(0);
	ask();
	pass(10 * MS);
	assert_int_equal(cm_accept(there.last.id, &param, 0, NULL), EINVAL);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_REJECTED], 1);
	assert_int_equal(here.last.status, MAD_REJ_CONSUMER);
	param.private_data_len = 0;
	assert_int_equal(cm_accept(there.last.id, &param, 0, NULL), EINVAL);
	assert_int_equal(cm_reject(there.last.id, NULL, 0, MAD_REJ_CONSUMER), EINVAL);
	assert_int_equal(cm_disconnect(there.last.id), 0);
	pass(300000 * MS);
	assert_int_equal(there.sent, 1);
	assert_int_equal(there.events[RDMA_CM_EVENT_REJECTED], 0);
}

static void an_acceptance_of_datagrams_that_fails_rejects(void **state)
{
	uint8_t much[UINT8_MAX] = { 0 };
	struct rdma_conn_param param = { .qp_num = 3, .private_data = much, .private_data_len = CM_SIDR_REP_PRIVATE + 1 };
	struct rdma_conn_param asking = { .qp_num = 3 };

	(void)state;
	listen_there_for(RDMA_PS_UDP, IBV_QPT_UD, 0);
	assert_int_equal(cm_connect(ready_to_ask(RDMA_PS_UDP, IBV_QPT_UD), &asking, NULL), 0);
	pass(10 * MS);
	assert_int_equal(cm_accept(there.last.id, &param, 0, NULL), EINVAL);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_UNREACHABLE], 1);
	assert_int_equal(here.last.status, MAD_SIDR_REJECTED);
}

/* A second acceptance, too, is one that fails, until the first one is confirmed. */
static void accepting_twice_rejects(void **state)
{
	struct rdma_conn_param param = { .qp_num = 3 };

	(void)state;
	listen_there(0);
	struct cm_id *id = ask();

	pass(10 * MS);
	assert_int_equal(cm_accept(there.last.id, &param, 0, NULL), 0);
	assert_int_equal(cm_accept(there.last.id, &param, 0, NULL), EINVAL);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_CONNECT_RESPONSE], 1);
	assert_int_equal(here.events[RDMA_CM_EVENT_REJECTED], 1);
	assert_int_equal(here.last.status, MAD_REJ_CONSUMER);
	assert_int_equal(cm_accept(id, NULL, 0, NULL), EINVAL);

	here.answers = true;
	ask();
	pass(10 * MS);
	struct cm_id *taken = there.last.id;

	param.qp_num++;
	assert_int_equal(cm_accept(taken, &param, 0, NULL), 0);
	pass(10 * MS);
	assert_int_equal(there.events[RDMA_CM_EVENT_ESTABLISHED], 1);
	assert_int_equal(cm_accept(taken, &param, 0, NULL), EINVAL);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_REJECTED], 1);
	assert_int_equal(cm_disconnect(taken), 0);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_DISCONNECTED], 1);
}

/* Of who thought himself connected it is the end, without a DREQ. */
static void a_rejection_may_follow_the_acceptance(void **state)
{
	struct rdma_conn_param param = { .qp_num = 3 };

	(void)state;
	here.answers = true;
	listen_there(0);
	struct cm_id *id = ask();

	pass(10 * MS);
	struct cm_id *taken = there.last.id;

	assert_int_equal(cm_accept(taken, &param, 0, NULL), 0);
	assert_int_equal(cm_reject(taken, "no", 3, MAD_REJ_CONSUMER), 0);
	pass(10 * MS);
	assert_int_equal(here.events[RDMA_CM_EVENT_CONNECT_RESPONSE], 1);
	assert_int_equal(here.events[RDMA_CM_EVENT_REJECTED], 1);
	assert_int_equal(here.last.status, MAD_REJ_CONSUMER);
	assert_string_equal((char *)here.last.data, "no");
	assert_int_equal(there.events[RDMA_CM_EVENT_ESTABLISHED], 0);
	assert_int_equal(cm_disconnect(id), 0);
	assert_int_equal(cm_disconnect(taken), 0);
	pass(300000 * MS);
	/* REQ and RTU, REP and REJ */
	assert_int_equal(here.sent, 2);
	assert_int_equal(there.sent, 2);
}

static void options_are_told_to_both(void **state)
{
	struct rdma_conn_param param = { .qp_num = 3, .retry_count = 9, .rnr_retry_count = 9 };
	uint8_t tos = 0x28, timeout = 14;
	struct ibv_qp_attr attr;
	int mask, on = 1;

	(void)state;
	there.accepts = true;
	listen_there(0);
	struct cm_id *id = ready_to_ask(RDMA_PS_TCP, IBV_QPT_RC);

	assert_int_equal(cm_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
	assert_int_equal(cm_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), 0);
	assert_int_equal(cm_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), EINVAL);
	assert_int_equal(cm_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, sizeof(on)), EINVAL);
	assert_int_equal(cm_set_option(id, RDMA_OPTION_ID, 99, &on, sizeof(on)), ENOSYS);
	assert_int_equal(cm_connect(id, &param, NULL), 0);
	assert_int_equal(cm_init_qp_attr(id, IBV_QPS_RTR, &attr, &mask), EINVAL);
	pass(10 * MS);
	assert_int_equal(cm_init_qp_attr(id, IBV_QPS_RTS, &attr, &mask), 0);
	assert_int_equal(attr.timeout, timeout);
	assert_int_equal(attr.retry_cnt, 7);
	/* At the other end, with what the REQ told. */
	assert_int_equal(cm_init_qp_attr(there.last.id, IBV_QPS_RTR, &attr, &mask), 0);
	assert_int_equal(attr.ah_attr.grh.traffic_class, tos);
	assert_int_equal(attr.ah_attr.grh.hop_limit, 64);
	assert_int_equal(attr.dest_qp_num, 3);
	assert_int_equal(mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	assert_int_equal(cm_init_qp_attr(there.last.id, IBV_QPS_RTS, &attr, &mask), 0);
	assert_int_equal(attr.timeout, timeout);
	assert_int_equal(attr.rnr_retry, 7);
}

static void events_move_with_their_id(void **state)
{
	struct cm_channel *other;
	struct cm_event event;
	unsigned read;

	(void)state;
	listen_there(0);
	other = channel_make(there.cm);
	fcntl(other->fd, F_SETFL, O_NONBLOCK);
	ask();
	while (next_flight()) {
		struct flight *flight = next_flight();

		now = flight->at;
		list_del(&flight->node);
		conn_take(flight->to->cm, &flight->letter);
		free(flight);
	}
	assert_int_equal(cm_migrate_id(there.listener, other, &read), 0);
	assert_int_equal(read, 0);
	assert_int_equal(cm_get_event(there.channel, &event), EAGAIN);
	assert_int_equal(cm_get_event(other, &event), 0);
	assert_int_equal(event.type, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(event.listener, there.listener);
	assert_int_equal(cm_migrate_id(there.listener, there.channel, &read), 0);
	assert_int_equal(read, 1);
	cm_destroy_id(event.id, &read);
	assert_int_equal(read, 0);
	channel_free(other);
}

static void ports_are_had_once(void **state)
{
	struct sockaddr_in address = loopback(0), any = { .sin_family = AF_INET };
	struct cm_addresses addresses;
	struct cm_id *first, *second;
	unsigned read;
	int on = 1;

	(void)state;
	assert_int_equal(cm_create_id(here.channel, NULL, RDMA_PS_TCP, IBV_QPT_RC, &first), 0);
	assert_int_equal(cm_bind(first, (struct sockaddr *)&address), 0);
	assert_int_equal(cm_bind(first, (struct sockaddr *)&address), EINVAL);
	assert_int_equal(cm_query(first, &addresses), 0);
	address.sin_port = any.sin_port = ((struct sockaddr_in *)&addresses.src)->sin_port;
	/* In this process, and from another. */
	for (int i = 0; i < 2; i++) {
		struct host *host = i ? &there : &here;

		assert_int_equal(cm_create_id(host->channel, NULL, RDMA_PS_TCP, IBV_QPT_RC, &second), 0);
		assert_int_equal(cm_bind(second, (struct sockaddr *)&address), EADDRINUSE);
		assert_int_equal(cm_bind(second, (struct sockaddr *)&any), EADDRNOTAVAIL);
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
		assert_int_equal(cm_bind(second, (struct sockaddr *)&address), 0);
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		cm_destroy_id(second, &read);
	}
	/* Another port space is another. */
	assert_int_equal(cm_create_id(here.channel, NULL, RDMA_PS_UDP, IBV_QPT_UD, &second), 0);
	assert_int_equal(cm_bind(second, (struct sockaddr *)&any), 0);
	cm_destroy_id(first, &read);
	assert_int_equal(cm_create_id(here.channel, NULL, RDMA_PS_TCP, IBV_QPT_RC, &first), 0);
	assert_int_equal(cm_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0);
	assert_int_equal(cm_bind(first, (struct sockaddr *)&any), 0);
	assert_int_equal(cm_create_id(here.channel, NULL, RDMA_PS_TCP, IBV_QPT_RC, &second), 0);
	assert_int_equal(cm_bind(second, (struct sockaddr *)&any), EADDRNOTAVAIL);
	assert_int_equal(cm_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0);
	assert_int_equal(cm_bind(second, (struct sockaddr *)&any), 0);
	assert_int_equal(cm_listen(first, 0), EADDRNOTAVAIL);
	cm_destroy_id(second, &read);
	assert_int_equal(cm_listen(first, 0), 0);
}

/* As the program asked for it, or not at all */
enum family_setting { UNSAID = -1, BOTH, ONE };

struct binding {
	const char *address;
	enum family_setting afonly;
};

static int bind_to(struct host *host, const struct binding *binding, bool reuse, uint16_t port, struct cm_id **id)
{
	union cm_address address = { .any.sa_family = strchr(binding->address, ':') ? AF_INET6 : AF_INET };
	int on = 1, only = binding->afonly;

	inet_pton(address.any.sa_family, binding->address,
		  address.any.sa_family == AF_INET ? (void *)&address.v4.sin_addr : (void *)&address.v6.sin6_addr);
	address_set_port(&address, port);
	assert_int_equal(cm_create_id(host->channel, host, RDMA_PS_TCP, IBV_QPT_RC, id), 0);
	if (only != UNSAID)
		assert_int_equal(cm_set_option(*id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only)), 0);
	if (reuse)
		assert_int_equal(cm_set_option(*id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0);
	return cm_bind(*id, &address.any);
}

static uint16_t bound_port(struct cm_id *id)
{
	struct cm_addresses addresses;

	assert_int_equal(cm_query(id, &addresses), 0);
	return address_port((union cm_address *)&addresses.src);
}

static bool is_v6_here(void)
{
	static const struct binding loopback = { "::1", ONE };
	struct cm_id *id;
	unsigned read;
	int error = bind_to(&here, &loopback, false, 0, &id);

	cm_destroy_id(id, &read);
	return !error;
}

static bool is_bindv6only(void)
{
	FILE *file = fopen("/proc/sys/net/ipv6/bindv6only", "r");
	bool only = file && fgetc(file) == '1';

	if (file)
		fclose(file);
	return only;
}

/* Binds `first` to a port, and answers how it goes when `second` wants the same one. */
static int meets(struct host *host, const struct binding *first, bool first_reuses, const struct binding *second,
		 bool second_reuses)
{
	struct cm_id *one, *other;
	unsigned read;
	int error;

	assert_int_equal(bind_to(&here, first, first_reuses, 0, &one), 0);
	error = bind_to(host, second, second_reuses, bound_port(one), &other);
	cm_destroy_id(one, &read);
	cm_destroy_id(other, &read);
	return error;
}

/* Linux's rules (cma_check_port): what is said of two is so in one process and in two, and whoever is first. */
static void addresses_share_a_port_as_on_linux(void **state)
{
	static const struct {
		struct binding one, other;
		int error;
	} rows[] = {
		{ { "127.0.0.1", UNSAID }, { "127.0.0.1", UNSAID }, EADDRINUSE },
		{ { "127.0.0.1", UNSAID }, { "127.0.0.1", BOTH }, EADDRINUSE },
		{ { "127.0.0.1", UNSAID }, { "127.0.0.2", UNSAID }, 0 },
		{ { "0.0.0.0", UNSAID }, { "127.0.0.1", UNSAID }, EADDRNOTAVAIL },
		{ { "0.0.0.0", UNSAID }, { "0.0.0.0", UNSAID }, EADDRNOTAVAIL },
		{ { "0.0.0.0", UNSAID }, { "0.0.0.0", BOTH }, EADDRNOTAVAIL },
		{ { "::1", ONE }, { "::1", ONE }, EADDRINUSE },
		{ { "::1", ONE }, { "::1", BOTH }, EADDRINUSE },
		{ { "::1", ONE }, { "127.0.0.1", UNSAID }, 0 },
		{ { "::1", BOTH }, { "127.0.0.1", UNSAID }, 0 },
		{ { "::1", BOTH }, { "127.0.0.1", BOTH }, 0 },
		{ { "::", ONE }, { "::1", ONE }, EADDRNOTAVAIL },
		{ { "::", BOTH }, { "::1", ONE }, EADDRNOTAVAIL },
		{ { "::", ONE }, { "::", ONE }, EADDRNOTAVAIL },
		/* Of two families they meet unless both are for their own alone. IPv4 is where nothing was said. */
		{ { "::", ONE }, { "0.0.0.0", UNSAID }, 0 },
		{ { "::", ONE }, { "0.0.0.0", BOTH }, EADDRNOTAVAIL },
		{ { "::", BOTH }, { "0.0.0.0", UNSAID }, EADDRNOTAVAIL },
		{ { "::", ONE }, { "127.0.0.1", UNSAID }, 0 },
		{ { "::", ONE }, { "127.0.0.1", BOTH }, EADDRNOTAVAIL },
		{ { "::", BOTH }, { "127.0.0.1", UNSAID }, EADDRNOTAVAIL },
		{ { "::1", ONE }, { "0.0.0.0", UNSAID }, 0 },
		{ { "::1", ONE }, { "0.0.0.0", BOTH }, EADDRNOTAVAIL },
		{ { "::1", BOTH }, { "0.0.0.0", UNSAID }, EADDRNOTAVAIL },
		/* As the system has it (net.ipv6.bindv6only) */
		{ { "::", UNSAID }, { "0.0.0.0", UNSAID }, EADDRNOTAVAIL },
		{ { "::1", UNSAID }, { "0.0.0.0", UNSAID }, EADDRNOTAVAIL },
		{ { "::1", UNSAID }, { "127.0.0.1", UNSAID }, 0 },
	};
	bool has_v6 = is_v6_here(), only = is_bindv6only();

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct binding *one = &rows[i].one, *other = &rows[i].other;
		bool is_v6 = strchr(one->address, ':'), is_alike = is_v6 == !!strchr(other->address, ':');
		int error = is_v6 && one->afonly == UNSAID && only && !is_alike ? 0 : rows[i].error;

		if (is_v6 && !has_v6)
			continue;
		for (int turn = 0; turn < 4; turn++) {
			struct host *host = turn & 1 ? &there : &here;
			int met = turn & 2 ? meets(host, other, false, one, false) : meets(host, one, false, other, false);

			if (met != error)
				fail_msg("%s (%d) and %s (%d), turn %d: errno %d, where %d is due", one->address, one->afonly,
					 other->address, other->afonly, turn, met, error);
		}
		/* In a process those that all want to share do; one that does not is enough. */
		assert_int_equal(meets(&here, one, true, other, true), 0);
		assert_int_equal(meets(&here, one, true, other, false), error);
		assert_int_equal(meets(&here, one, false, other, true), error);
	}
}

/* Who listens is alone. */
static void who_shares_a_port_cannot_listen(void **state)
{
	static const struct {
		struct binding one, other;
		int error;
	} rows[] = {
		{ { "0.0.0.0", UNSAID }, { "0.0.0.0", UNSAID }, EADDRNOTAVAIL },
		{ { "0.0.0.0", UNSAID }, { "127.0.0.1", UNSAID }, EADDRNOTAVAIL },
		{ { "127.0.0.1", UNSAID }, { "127.0.0.1", UNSAID }, EADDRINUSE },
		{ { "127.0.0.1", UNSAID }, { "127.0.0.2", UNSAID }, 0 },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cm_id *one, *other, *third;
		unsigned read;

		assert_int_equal(bind_to(&here, &rows[i].one, true, 0, &one), 0);
		assert_int_equal(bind_to(&here, &rows[i].other, true, bound_port(one), &other), 0);
		assert_int_equal(cm_listen(one, 0), rows[i].error);
		cm_destroy_id(other, &read);
		if (rows[i].error)
			assert_int_equal(cm_listen(one, 0), 0);
		assert_int_not_equal(bind_to(&here, &rows[i].one, true, bound_port(one), &third), 0);
		cm_destroy_id(one, &read);
		cm_destroy_id(third, &read);
	}
}

/* Asks for `to` where somebody listens at `at`: is he heard? */
static bool hears(const struct binding *at, const char *to)
{
	struct rdma_conn_param param = { .qp_num = ++here.qpn };
	union cm_address address = { .any.sa_family = strchr(to, ':') ? AF_INET6 : AF_INET };
	struct cm_event event;
	struct cm_id *id;
	unsigned read;
	bool heard;

	memset(here.events, 0, sizeof(here.events));
	memset(there.events, 0, sizeof(there.events));
	assert_int_equal(bind_to(&there, at, false, 0, &there.listener), 0);
	assert_int_equal(cm_listen(there.listener, 0), 0);
	inet_pton(address.any.sa_family, to,
		  address.any.sa_family == AF_INET ? (void *)&address.v4.sin_addr : (void *)&address.v6.sin6_addr);
	address_set_port(&address, bound_port(there.listener));
	assert_int_equal(cm_create_id(here.channel, &here, RDMA_PS_TCP, IBV_QPT_RC, &id), 0);
	assert_int_equal(cm_resolve_addr(id, NULL, &address.any, 1000), 0);
	assert_int_equal(cm_resolve_route(id, 1000), 0);
	assert_int_equal(cm_get_event(here.channel, &event), 0);
	assert_int_equal(cm_get_event(here.channel, &event), 0);
	assert_int_equal(cm_connect(id, &param, NULL), 0);
	pass(10 * MS);
	heard = there.events[RDMA_CM_EVENT_CONNECT_REQUEST];
	assert_int_equal(here.events[RDMA_CM_EVENT_REJECTED], !heard);
	cm_destroy_id(there.listener, &read);
	cm_destroy_id(id, &read);
	if (heard)
		cm_destroy_id(there.last.id, &read);
	pass(10 * MS);
	return heard;
}

static void who_listens_everywhere_hears_his_families(void **state)
{
	static const struct binding v4 = { "0.0.0.0", UNSAID }, both4 = { "0.0.0.0", BOTH };
	static const struct binding v6 = { "::", ONE }, both6 = { "::", BOTH };

	(void)state;
	assert_true(hears(&v4, "127.0.0.1"));
	assert_true(hears(&both4, "127.0.0.1"));
	if (!is_v6_here())
		return;
	assert_false(hears(&v4, "::1"));
	assert_true(hears(&both4, "::1"));
	assert_true(hears(&v6, "::1"));
	assert_false(hears(&v6, "127.0.0.1"));
	assert_true(hears(&both6, "::1"));
	assert_true(hears(&both6, "127.0.0.1"));
}

/* Until it listens, or resolves, what families it is for can still be said. */
static void families_may_be_chosen_after_binding(void **state)
{
	static const struct binding v4 = { "0.0.0.0", UNSAID }, v6 = { "::", BOTH };
	struct cm_id *one, *other;
	unsigned read;
	int on = 1;

	(void)state;
	if (!is_v6_here())
		return;
	assert_int_equal(bind_to(&here, &v6, false, 0, &one), 0);
	assert_int_equal(bind_to(&there, &v4, false, bound_port(one), &other), EADDRNOTAVAIL);
	cm_destroy_id(other, &read);
	assert_int_equal(cm_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), 0);
	assert_int_equal(bind_to(&there, &v4, false, bound_port(one), &other), 0);
	assert_int_equal(cm_listen(one, 0), 0);
	assert_int_equal(cm_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), EINVAL);
	cm_destroy_id(one, &read);
	cm_destroy_id(other, &read);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(a_connection_begins_and_ends),
		TEST(what_comes_twice_is_one),
		TEST(old_messages_change_nothing),
		TEST(old_rejections_change_nothing),
		TEST(old_datagram_messages_change_nothing),
		TEST(connections_survive_any_network),
		TEST(nobody_answers),
		TEST(an_acceptance_that_is_not_confirmed_ends),
		TEST(a_program_may_take_its_time),
		TEST(data_says_that_the_connection_is_there),
		TEST(a_lost_confirmation_is_said_again),
		TEST(both_may_disconnect_at_once),
		TEST(a_disconnection_that_is_not_answered_ends),
		TEST(a_queue_pair_that_is_used_again_ends_its_stale_connection),
		TEST(requests_are_rejected_with_their_listener),
		TEST(a_backlog_bounds_what_waits),
		TEST(who_gives_up_says_so),
		TEST(datagrams_are_resolved_once),
		TEST(what_does_not_belong_to_the_connection_changes_nothing),
		TEST(private_data_has_its_bounds),
		TEST(an_acceptance_that_fails_rejects),
		TEST(an_acceptance_of_datagrams_that_fails_rejects),
		TEST(accepting_twice_rejects),
		TEST(a_rejection_may_follow_the_acceptance),
		TEST(options_are_told_to_both),
		TEST(events_move_with_their_id),
		TEST(ports_are_had_once),
		TEST(addresses_share_a_port_as_on_linux),
		TEST(who_shares_a_port_cannot_listen),
		TEST(who_listens_everywhere_hears_his_families),
		TEST(families_may_be_chosen_after_binding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
