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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cm/cm.h"

#define SECONDS 20

static const char *role;

#define CHECK(condition)                                                                                      \
	do {                                                                                                  \
		if (!(condition)) {                                                                           \
			fprintf(stderr, "%s: %s:%d: not so: %s\n", role, __FILE__, __LINE__, #condition);     \
			exit(1);                                                                              \
		}                                                                                             \
	} while (0)

struct side {
	struct cm_channel *channel;
	int fd;
	struct sockaddr_in address;
	int peer; /* process, if it is ours to end */
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

	CHECK(!cm_resolve_addr(id, NULL, (struct sockaddr *)&side->address, 1000));
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

static void agree(struct side *side, struct cm_id *id, uint32_t qpn)
{
	struct rdma_conn_param param = { .private_data = "yes",
					 .private_data_len = 4,
					 .responder_resources = 1,
					 .initiator_depth = 2,
					 .rnr_retry_count = 4,
					 .qp_num = qpn };

	CHECK(!cm_accept(id, &param, 0, NULL));
	CHECK(cm_accept(id, &param, 0, NULL) == EINVAL);
	CHECK(expect(side, RDMA_CM_EVENT_ESTABLISHED, 0).id == id);
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
	CHECK(((struct sockaddr_in *)&addresses.src)->sin_port == side->address.sin_port);
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

	side->address.sin_port = htons(1); /* nobody is there */
	id = ask(side, "rc", 17);
	CHECK(expect(side, RDMA_CM_EVENT_REJECTED, 8).id == id);
	destroy(id);
	id = ask(side, "ud", 17);
	CHECK(expect(side, RDMA_CM_EVENT_UNREACHABLE, 1).id == id);
	destroy(id);
}

static void nothing(struct side *side)
{
	(void)side;
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
		CHECK(!cm_resolve_addr(ids[i], NULL, (struct sockaddr *)&side->address, 1000));
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

/* The one ends without a word. */
static void exit_client(struct side *side)
{
	connected(side, 17);
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
	usleep(200000); /* until the other end knows */
	raise(SIGKILL);
}

static const struct scene {
	const char *name;
	void (*client)(struct side *side), (*server)(struct side *side);
	bool is_killed;
} scenes[] = {
	{ "rc", rc_client, rc_server, false },
	{ "refused", refused_client, nothing, false },
	{ "reject", reject_client, reject_server, false },
	{ "ud", ud_client, ud_server, false },
	{ "many", many_client, many_server, false },
	{ "crowd", crowd_client, crowd_server, false },
	{ "exit", exit_client, exit_server, false },
	{ "killed", killed_client, exit_server, true },
};

/* Tells the port by fd, if there is one. */
static void serve(const struct scene *scene, struct side *side, int fd)
{
	struct cm_id *listener;
	struct cm_addresses addresses;

	role = "server";
	open_side(side);
	listener = make(side, scene->name);
	CHECK(!cm_bind(listener, (struct sockaddr *)&side->address));
	CHECK(!cm_listen(listener, 0));
	CHECK(cm_listen(listener, 0) == EINVAL);
	CHECK(!cm_query(listener, &addresses));
	side->address.sin_port = ((struct sockaddr_in *)&addresses.src)->sin_port;
	if (fd >= 0)
		CHECK(write(fd, &side->address.sin_port, 2) == 2);
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

static int both(const struct scene *scene)
{
	struct side side = { .address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) } };
	int port[2], status, other;
	pid_t pid;

	if (pipe(port))
		return 1;
	pid = fork();
	if (!pid) {
		side.address.sin_addr.s_addr = 0;
		serve(scene, &side, port[1]);
		exit(0);
	}
	close(port[1]);
	if (read(port[0], &side.address.sin_port, 2) != 2)
		return 1;
	other = fork();
	if (!other) {
		call(scene, &side);
		exit(0);
	}
	waitpid(other, &status, 0);
	if (scene->is_killed ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status != 0) {
		fprintf(stderr, "client: status %x\n", (unsigned)status);
		kill(pid, SIGKILL);
		return 1;
	}
	waitpid(pid, &status, 0);
	return status ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct side side = { .address = { .sin_family = AF_INET } };
	const struct scene *scene = NULL;

	for (unsigned i = 0; argc > 1 && i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		if (!strcmp(scenes[i].name, argv[1]))
			scene = &scenes[i];
	}
	if (!scene || (argc != 2 && argc != 5)) {
		fprintf(stderr, "usage: talk SCENE [server|client ADDRESS PORT]\n");
		return 2;
	}
	alarm(3 * SECONDS);
	if (argc == 2)
		return both(scene);
	inet_pton(AF_INET, argv[3], &side.address.sin_addr);
	side.address.sin_port = htons((uint16_t)atoi(argv[4]));
	if (!strcmp(argv[2], "server"))
		serve(scene, &side, -1);
	else
		call(scene, &side);
	return 0;
}
