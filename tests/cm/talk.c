/* SPDX-License-Identifier: MIT */
/*
 * Two processes that talk to each other through the connection manager alone (cm/cm.h), without queue pairs. usage:
 *
 *	talk SCENE                    both, on this host
 *	talk SCENE server ADDRESS PORT
 *	talk SCENE client ADDRESS PORT
 *
 * Whoever sees something else than the scene says ends with 1 and says what.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cm/cm.h"

#define SECONDS 20
#define SOON	200000 /* us: until something has arrived that nobody tells of */

static const char *role;
static bool by_datagrams; /* the two talk by packets, not by sockets of one host */

#define CHECK(condition)                                                                                  \
	do {                                                                                              \
		if (!(condition)) {                                                                       \
			fprintf(stderr, "%s: %s:%d: not so: %s\n", role, __FILE__, __LINE__, #condition); \
			exit(1);                                                                          \
		}                                                                                         \
	} while (0)

/* Both families have the port in one place. */
union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

struct side {
	struct cm_channel *channel;
	int fd;
	union address address;
	struct cm_event kept; /* read already */
	bool has_kept;
};

static void open_side(struct side *side)
{
	CHECK(!cm_open_channel(&side->channel, &side->fd));
}

/* The next event, of a type; -1 for none in so many ms. */
static struct cm_event next_event(struct side *side)
{
	struct pollfd fd = { .fd = side->fd, .events = POLLIN };
	struct cm_event event;

	if (side->has_kept) {
		side->has_kept = false;
		return side->kept;
	}
	CHECK(poll(&fd, 1, SECONDS * 1000) == 1);
	CHECK(!cm_get_event(side->channel, &event));
	return event;
}

static struct cm_event expect(struct side *side, enum rdma_cm_event_type type, int status)
{
	struct cm_event event = next_event(side);

	if (event.type != type || event.status != status) {
		fprintf(stderr, "%s: event %d with status %d, expected %d with %d\n", role, event.type, event.status, type, status);
		exit(1);
	}
	return event;
}

static void destroy(struct cm_id *id)
{
	unsigned read;

	cm_destroy_id(id, &read);
}

static bool is_ud(const char *scene)
{
	return !strncmp(scene, "ud", 2);
}

static struct cm_id *make(struct side *side, const char *scene)
{
	struct cm_id *id;

	CHECK(!cm_create_id(side->channel, side, is_ud(scene) ? RDMA_PS_UDP : RDMA_PS_TCP, is_ud(scene) ? IBV_QPT_UD : IBV_QPT_RC,
			    &id));
	return id;
}

static struct cm_id *ask(struct side *side, const char *scene, uint32_t qpn)
{
	struct rdma_conn_param param = { .private_data = "ask",
					 .private_data_len = 4,
					 .responder_resources = 3,
					 .initiator_depth = 5,
					 .retry_count = 6,
					 .rnr_retry_count = 7,
					 .qp_num = qpn };
	struct cm_id *id = make(side, scene);

	CHECK(!cm_resolve_addr(id, NULL, &side->address.any, 1000));
	expect(side, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK(!cm_resolve_route(id, 1000));
	expect(side, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	CHECK(!cm_connect(id, &param, NULL));
	return id;
}

static struct cm_id *connected(struct side *side, uint32_t qpn)
{
	struct cm_id *id = ask(side, "rc", qpn);
	struct cm_event event = expect(side, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	struct ibv_qp_attr attr;
	int mask;

	CHECK(event.id == id && event.context == side && !strcmp(event.param.conn.private_data, "yes"));
	CHECK(event.param.conn.qp_num == qpn + 1000);
	CHECK(!cm_init_qp_attr(id, IBV_QPS_RTR, &attr, &mask));
	CHECK(attr.dest_qp_num == qpn + 1000 && attr.max_dest_rd_atomic == 2);
	CHECK(!cm_init_qp_attr(id, IBV_QPS_RTS, &attr, &mask));
	CHECK(attr.max_rd_atomic == 1 && attr.timeout == 19 && attr.rnr_retry == 4 && attr.retry_cnt == 6);
	CHECK(!cm_accept(id, NULL, 0, NULL));
	return id;
}

static struct cm_id *asked(struct side *side)
{
	struct cm_event event = expect(side, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

	CHECK(event.listener && event.id != event.listener && event.context == side);
	cm_set_context(event.id, side);
	return event.id;
}

/* By datagrams, who disconnects at once may be heard before the RTU, or without it. */
static void established(struct side *side, struct cm_id *id)
{
	struct cm_event event = next_event(side);

	CHECK(event.id == id && !event.status);
	if (event.type == RDMA_CM_EVENT_DISCONNECTED && by_datagrams) {
		side->kept = event;
		side->has_kept = true;
	} else {
		CHECK(event.type == RDMA_CM_EVENT_ESTABLISHED);
	}
}

static void agree(struct side *side, struct cm_id *id, uint32_t qpn)
{
	struct rdma_conn_param param = { .private_data = "yes",
					 .private_data_len = 4,
					 .responder_resources = 1,
					 .initiator_depth = 2,
					 .rnr_retry_count = 4,
					 .qp_num = qpn };

	CHECK(!cm_accept(id, &param, 0, NULL));
	established(side, id);
	/* Now that it is connected this changes nothing. */
	CHECK(cm_accept(id, &param, 0, NULL) == EINVAL);
}

/* Scenes: what the one and what the other does. */

static void rc_client(struct side *side)
{
	struct cm_id *id = connected(side, 17);

	CHECK(!cm_disconnect(id));
	CHECK(expect(side, RDMA_CM_EVENT_DISCONNECTED, 0).id == id);
	CHECK(expect(side, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0).id == id);
	destroy(id);
}

static void rc_server(struct side *side)
{
	struct cm_event event = expect(side, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct cm_addresses addresses;

	CHECK(event.param.conn.private_data_len == CM_REQ_PRIVATE && !strcmp(event.param.conn.private_data, "ask"));
	CHECK(event.param.conn.qp_num == 17 && event.param.conn.responder_resources == 5);
	CHECK(event.param.conn.initiator_depth == 3 && event.param.conn.retry_count == 6);
	CHECK(!cm_query(event.id, &addresses));
	cm_set_context(event.id, side);
	CHECK(((struct sockaddr_in *)&addresses.src)->sin_port == side->address.v4.sin_port);
	CHECK(((struct sockaddr_in *)&addresses.dst)->sin_port);
	agree(side, event.id, 1017);
	CHECK(expect(side, RDMA_CM_EVENT_DISCONNECTED, 0).id == event.id);
	CHECK(!cm_disconnect(event.id));
	expect(side, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	destroy(event.id);
}

static void refused_client(struct side *side)
{
	struct cm_id *id;

	side->address.v4.sin_port = htons(1); /* nobody is there */
	id = ask(side, "rc", 17);
	CHECK(expect(side, RDMA_CM_EVENT_REJECTED, 8).id == id);
	destroy(id);
	id = ask(side, "ud", 17);
	CHECK(expect(side, RDMA_CM_EVENT_UNREACHABLE, 1).id == id);
	destroy(id);
}

/* As long as the client asks: else there may be nobody to refuse it. */
static void refused_server(struct side *side)
{
	struct pollfd fd = { .fd = side->fd, .events = POLLIN };

	CHECK(!poll(&fd, 1, 3000));
}

static void reject_client(struct side *side)
{
	struct cm_id *id = ask(side, "rc", 17);
	struct cm_event event = expect(side, RDMA_CM_EVENT_REJECTED, 28);

	CHECK(!strcmp(event.param.conn.private_data, "no"));
	destroy(id);
}

static void reject_server(struct side *side)
{
	struct cm_id *id = asked(side);
	uint8_t much[255] = { 0 };

	CHECK(cm_reject(id, much, CM_REJ_PRIVATE + 1, 28) == EINVAL);
	CHECK(!cm_reject(id, "no", 3, 28));
	CHECK(cm_reject(id, "no", 3, 28) == EINVAL);
	destroy(id);
}

static void ud_client(struct side *side)
{
	struct cm_id *id = ask(side, "ud", 17);
	struct cm_event event = expect(side, RDMA_CM_EVENT_ESTABLISHED, 0);

	CHECK(event.is_ud && event.param.ud.qp_num == 1017 && event.param.ud.qkey == RDMA_UDP_QKEY);
	CHECK(!strcmp(event.param.ud.private_data, "yes") && event.param.ud.ah_attr.is_global);
	destroy(id);
}

static void ud_server(struct side *side)
{
	struct rdma_conn_param param = { .private_data = "yes", .private_data_len = 4, .qp_num = 1017 };
	struct cm_event event = expect(side, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

	CHECK(event.is_ud && !strcmp(event.param.ud.private_data, "ask"));
	CHECK(!cm_accept(event.id, &param, 0, NULL));
	destroy(event.id);
}

/* Of two addresses the one is a group's. */
static void group_client(struct side *side)
{
	union address group = { .v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xef010203) } }, other = side->address;
	struct cm_id *id = make(side, "ud");
	struct cm_event event;
	unsigned read;
	int mark;

	other.v4.sin_port = 0;
	CHECK(cm_join(id, &group.any, false, &mark) == EINVAL);
	CHECK(!cm_bind(id, &other.any));
	CHECK(!cm_join(id, &group.any, false, &mark));
	event = expect(side, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	CHECK(event.context == &mark && event.is_ud && event.param.ud.qp_num == 0xffffff);
	CHECK(event.param.ud.qkey == RDMA_UDP_QKEY && !memcmp(event.param.ud.ah_attr.grh.dgid.raw + 12, &group.v4.sin_addr, 4));
	CHECK(!cm_leave(id, &group.any, &read) && read == 1);
	CHECK(cm_leave(id, &group.any, &read) == EADDRNOTAVAIL && !read);
	CHECK(!cm_join(id, &group.any, true, &mark));
	CHECK(!cm_leave(id, &group.any, &read) && !read);
	CHECK(!cm_join(id, &other.any, false, &mark));
	expect(side, RDMA_CM_EVENT_MULTICAST_ERROR, -EADDRNOTAVAIL);
	cm_destroy_id(id, &read);
	CHECK(read == 2);
}

static void group_server(struct side *side)
{
	(void)side;
}

#define MANY 500

static void many_client(struct side *side)
{
	for (uint32_t i = 0; i < MANY; i++) {
		struct cm_id *id = connected(side, i + 1);

		CHECK(!cm_disconnect(id));
		expect(side, RDMA_CM_EVENT_DISCONNECTED, 0);
		destroy(id);
	}
}

static void many_server(struct side *side)
{
	for (uint32_t i = 0; i < MANY; i++) {
		struct cm_id *id = asked(side);

		agree(side, id, i + 1001);
		expect(side, RDMA_CM_EVENT_DISCONNECTED, 0);
		destroy(id);
	}
}

#define CROWD 100

/* All at once: whatever comes leads to what is next. */
static void crowd_client(struct side *side)
{
	static const struct rdma_conn_param param = { .qp_num = 17 };
	struct rdma_conn_param each = param;
	unsigned responses = 0, ends = 0;
	struct cm_id *ids[CROWD];

	for (unsigned i = 0; i < CROWD; i++) {
		ids[i] = make(side, "rc");
		CHECK(!cm_resolve_addr(ids[i], NULL, &side->address.any, 1000));
	}
	while (ends < CROWD) {
		struct cm_event event = next_event(side);

		switch (event.type) {
		case RDMA_CM_EVENT_ADDR_RESOLVED:
			CHECK(!cm_resolve_route(event.id, 1000));
			break;
		case RDMA_CM_EVENT_ROUTE_RESOLVED:
			each.qp_num++;
			CHECK(!cm_connect(event.id, &each, NULL));
			break;
		case RDMA_CM_EVENT_CONNECT_RESPONSE:
			CHECK(!cm_accept(event.id, NULL, 0, NULL));
			if (++responses == CROWD) {
				for (unsigned i = 0; i < CROWD; i++)
					CHECK(!cm_disconnect(ids[i]));
			}
			break;
		default:
			CHECK(event.type == RDMA_CM_EVENT_DISCONNECTED);
			destroy(event.id);
			ends++;
		}
	}
}

static void crowd_server(struct side *side)
{
	struct rdma_conn_param param = { .qp_num = 1017 };
	unsigned ends = 0;

	while (ends < CROWD) {
		struct cm_event event = next_event(side);

		if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			param.qp_num++;
			cm_set_context(event.id, side);
			CHECK(!cm_accept(event.id, &param, 0, NULL));
		} else if (event.type == RDMA_CM_EVENT_DISCONNECTED) {
			destroy(event.id);
			ends++;
		}
	}
}

/* Who asked does not wait for the answer: who was asked is told. */
static void taken_back_client(struct side *side)
{
	struct cm_id *id = ask(side, "rc", 17);

	usleep(5 * SOON); /* until the program has read that it is asked: before, it is never told */
	destroy(id);
}

static void taken_back_server(struct side *side)
{
	struct cm_id *id = asked(side);

	CHECK(expect(side, RDMA_CM_EVENT_REJECTED, 4).id == id);
	destroy(id);
}

/* The one ends without a word. */
static void exit_client(struct side *side)
{
	connected(side, 17);
	usleep(SOON); /* until the other end knows */
	exit(0);
}

static void exit_server(struct side *side)
{
	struct cm_id *id = asked(side);

	agree(side, id, 1017);
	expect(side, RDMA_CM_EVENT_DISCONNECTED, 0);
	destroy(id);
}

static void killed_client(struct side *side)
{
	connected(side, 17);
	usleep(SOON);
	raise(SIGKILL);
}

/* The same, and another process of its host lives on. */
static void heir_client(struct side *side)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		struct side own = { .address = side->address };

		open_side(&own);
		killed_client(&own);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
	sleep(1); /* in which it is the heir */
}

/* The one that was asked ends before it has said anything. */
static void gone_client(struct side *side)
{
	struct cm_id *id = ask(side, "rc", 17);

	expect(side, RDMA_CM_EVENT_REJECTED, 8);
	destroy(id);
}

static void gone_server(struct side *side)
{
	asked(side);
	raise(SIGKILL);
}

/*
 * One of the two stands still for longer than the other's patience with an answer: what is said meanwhile is said again, and when it
 * goes on everything has happened once.
 */
static void stand_still(void)
{
	char command[64], *const arguments[] = { "sh", "-c", command, NULL };
	int status;
	pid_t pid;

	snprintf(command, sizeof(command), "sleep 1.7; kill -CONT %d", (int)getpid());
	CHECK(!posix_spawnp(&pid, "sh", NULL, NULL, arguments, environ));
	raise(SIGSTOP);
	CHECK(waitpid(pid, &status, 0) == pid && !status);
}

/* Where it does so; of the one or the other. */
enum stop { NOWHERE, LISTENING, ASKED, ANSWERED, ESTABLISHED, DISCONNECTED };

static void stopping_client(struct side *side, enum stop at)
{
	struct cm_id *id = ask(side, "rc", 17);

	if (at == ASKED)
		stand_still();
	CHECK(expect(side, RDMA_CM_EVENT_CONNECT_RESPONSE, 0).id == id);
	if (at == ANSWERED)
		stand_still();
	CHECK(!cm_accept(id, NULL, 0, NULL));
	if (at == ESTABLISHED)
		stand_still();
	CHECK(!cm_disconnect(id));
	if (at == DISCONNECTED)
		stand_still();
	CHECK(expect(side, RDMA_CM_EVENT_DISCONNECTED, 0).id == id);
	CHECK(expect(side, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0).id == id);
	destroy(id);
}

static void stopping_server(struct side *side, enum stop at)
{
	struct rdma_conn_param param = { .qp_num = 1017 };
	struct cm_id *id;

	if (at == LISTENING)
		stand_still();
	id = asked(side);
	if (at == ASKED)
		stand_still();
	CHECK(!cm_accept(id, &param, 0, NULL));
	if (at == ANSWERED)
		stand_still();
	established(side, id);
	if (at == ESTABLISHED)
		stand_still();
	CHECK(expect(side, RDMA_CM_EVENT_DISCONNECTED, 0).id == id);
	if (at == DISCONNECTED)
		stand_still();
	CHECK(!cm_disconnect(id));
	CHECK(expect(side, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0).id == id);
	destroy(id);
}

#define STOPS(role, name, at)                        \
	static void role##_##name(struct side *side) \
	{                                            \
		stopping_##role(side, at);           \
	}

STOPS(client, goes_on, NOWHERE)
STOPS(client, stops_asking, ASKED)
STOPS(client, stops_answered, ANSWERED)
STOPS(client, stops_connected, ESTABLISHED)
STOPS(client, stops_leaving, DISCONNECTED)
STOPS(server, goes_on, NOWHERE)
STOPS(server, stops_listening, LISTENING)
STOPS(server, stops_asked, ASKED)
STOPS(server, stops_answering, ANSWERED)
STOPS(server, stops_connected, ESTABLISHED)
STOPS(server, stops_left, DISCONNECTED)

/* What was inherited does not work in a child, where all begins anew; the parent's goes on. */
static void child(struct side *inherited, struct cm_id *id)
{
	struct side side = { .address = inherited->address };
	struct rdma_conn_param param = { 0 };
	struct cm_addresses addresses;
	struct cm_event event;
	struct cm_id *other;
	unsigned read;

	role = "child";
	CHECK(cm_disconnect(id) == ENODEV);
	CHECK(cm_connect(id, &param, NULL) == ENODEV);
	CHECK(cm_query(id, &addresses) == ENODEV);
	CHECK(cm_get_event(inherited->channel, &event) == ENODEV);
	CHECK(cm_create_id(inherited->channel, NULL, RDMA_PS_TCP, IBV_QPT_RC, &other) == ENODEV);
	cm_destroy_id(id, &read);
	cm_close_channel(inherited->channel);
	open_side(&side);
	id = connected(&side, 18);
	CHECK(!cm_disconnect(id));
	expect(&side, RDMA_CM_EVENT_DISCONNECTED, 0);
	destroy(id);
	cm_close_channel(side.channel);
	exit(0);
}

static void fork_client(struct side *side)
{
	struct cm_id *id = connected(side, 17);
	int status;
	pid_t pid = fork();

	if (!pid)
		child(side, id);
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	CHECK(!cm_disconnect(id));
	expect(side, RDMA_CM_EVENT_DISCONNECTED, 0);
	destroy(id);
}

static void fork_server(struct side *side)
{
	struct cm_id *first = asked(side), *second;

	agree(side, first, 1017);
	second = asked(side);
	agree(side, second, 1018);
	CHECK(expect(side, RDMA_CM_EVENT_DISCONNECTED, 0).id == second);
	destroy(second);
	CHECK(expect(side, RDMA_CM_EVENT_DISCONNECTED, 0).id == first);
	destroy(first);
}

static const struct scene {
	const char *name;
	void (*client)(struct side *side), (*server)(struct side *side);
	bool client_dies, server_dies;
} scenes[] = {
	{ "rc", rc_client, rc_server, false, false },
	{ "refused", refused_client, refused_server, false, false },
	{ "reject", reject_client, reject_server, false, false },
	{ "taken-back", taken_back_client, taken_back_server, false, false },
	{ "ud", ud_client, ud_server, false, false },
	{ "group", group_client, group_server, false, false },
	{ "many", many_client, many_server, false, false },
	{ "crowd", crowd_client, crowd_server, false, false },
	{ "exit", exit_client, exit_server, false, false },
	{ "killed", killed_client, exit_server, true, false },
	{ "heir", heir_client, exit_server, false, false },
	{ "gone", gone_client, gone_server, false, true },
	{ "fork", fork_client, fork_server, false, false },
	{ "client-stops-asking", client_stops_asking, server_goes_on, false, false },
	{ "client-stops-answered", client_stops_answered, server_goes_on, false, false },
	{ "client-stops-connected", client_stops_connected, server_goes_on, false, false },
	{ "client-stops-leaving", client_stops_leaving, server_goes_on, false, false },
	{ "server-stops-listening", client_goes_on, server_stops_listening, false, false },
	{ "server-stops-asked", client_goes_on, server_stops_asked, false, false },
	{ "server-stops-answering", client_goes_on, server_stops_answering, false, false },
	{ "server-stops-connected", client_goes_on, server_stops_connected, false, false },
	{ "server-stops-left", client_goes_on, server_stops_left, false, false },
};

/* Tells the port by fd, if there is one. */
static void serve(const struct scene *scene, struct side *side, int fd)
{
	struct cm_id *listener;
	struct cm_addresses addresses;

	role = "server";
	open_side(side);
	listener = make(side, scene->name);
	CHECK(!cm_bind(listener, &side->address.any));
	CHECK(!cm_listen(listener, 0));
	CHECK(cm_listen(listener, 0) == EINVAL);
	CHECK(!cm_query(listener, &addresses));
	side->address.v4.sin_port = ((struct sockaddr_in *)&addresses.src)->sin_port;
	if (fd >= 0)
		CHECK(write(fd, &side->address.v4.sin_port, 2) == 2);
	scene->server(side);
	destroy(listener);
	cm_close_channel(side->channel);
}

static void call(const struct scene *scene, struct side *side)
{
	role = "client";
	open_side(side);
	scene->client(side);
	cm_close_channel(side->channel);
}

static bool is_end(int status, bool dies)
{
	return dies ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : !status;
}

static int both(const struct scene *scene)
{
	struct side side = { .address.v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) } };
	int port[2], status, other, failed;
	pid_t pid;

	if (pipe(port))
		return 1;
	pid = fork();
	if (!pid) {
		side.address.v4.sin_addr.s_addr = 0;
		serve(scene, &side, port[1]);
		exit(0);
	}
	close(port[1]);
	if (read(port[0], &side.address.v4.sin_port, 2) != 2)
		return 1;
	other = fork();
	if (!other) {
		call(scene, &side);
		exit(0);
	}
	waitpid(other, &status, 0);
	failed = !is_end(status, scene->client_dies);
	if (failed)
		kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return failed || !is_end(status, scene->server_dies);
}

int main(int argc, char **argv)
{
	struct side side = { 0 };
	const struct scene *scene = NULL;

	for (unsigned i = 0; argc > 1 && i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		if (!strcmp(scenes[i].name, argv[1]))
			scene = &scenes[i];
	}
	if (!scene || (argc != 2 && argc != 5)) {
		fprintf(stderr, "usage: talk SCENE [server|client ADDRESS PORT]\n");
		return 2;
	}
	by_datagrams = argc == 5 || getenv("UROCE_TRANSPORT");
	alarm(3 * SECONDS);
	if (argc == 2)
		return both(scene);
	side.address.any.sa_family = strchr(argv[3], ':') ? AF_INET6 : AF_INET;
	inet_pton(side.address.any.sa_family, argv[3],
		  strchr(argv[3], ':') ? (void *)&side.address.v6.sin6_addr : (void *)&side.address.v4.sin_addr);
	side.address.v4.sin_port = htons((uint16_t)atoi(argv[4]));
	if (!strcmp(argv[2], "server"))
		serve(scene, &side, -1);
	else
		call(scene, &side);
	return 0;
}
