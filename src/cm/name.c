/* SPDX-License-Identifier: MIT */
/*
 * Ports. Each that is asked for is an abstract unix socket named by port space, port and address, on which requests for it arrive:
 * such names are unique in a network namespace, and the kernel frees them at death. An id that only connects needs a number that no
 * other has, and nothing arrives there: of these a process takes blocks, so that thousands of connections cost no descriptors.
 */
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cm/engine.h"
#include "nic/abstract_name.h"
#include "nic/descriptor.h"
#include "nic/gid.h"
#include "nic/proc.h"

#define BLOCK	   64u /* ports */
#define TRIES	   4096

struct block {
	struct list of_ports;
	uint16_t ps, first;
	uint8_t next; /* where to look, so that a port is slow to be reused */
	int fd;
	uint64_t used;
};

struct cm_ports {
	struct list blocks;
};

static uint32_t random_number(void)
{
	uint32_t number;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		number = (uint32_t)(nic_now() >> 3);
	return number;
}

/* The system's range of ports that are chosen. */
static void chosen_range(unsigned *first, unsigned *last)
{
	unsigned long numbers[2];
	bool known = proc_numbers("/proc/sys/net/ipv4/ip_local_port_range", numbers) == 2 && numbers[0] >= 1 && numbers[1] <= UINT16_MAX &&
		     numbers[1] >= numbers[0] + BLOCK;

	*first = known ? (unsigned)numbers[0] : 32768;
	*last = known ? (unsigned)numbers[1] : 60999;
}

/* As the kernel's rdma_cm: low ports are for the privileged. */
static bool may_bind(uint16_t port)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	unsigned long numbers[2] = { 1024 };

	if (port >= numbers[0])
		return true;
	proc_numbers("/proc/sys/net/ipv4/ip_unprivileged_port_start", numbers);
	return port >= numbers[0] || (!syscall(SYS_capget, &header, data) && data[0].effective & 1u << CAP_NET_BIND_SERVICE);
}

static void write_name(uint16_t ps, uint16_t port, const char *address, char *name)
{
	snprintf(name, CM_NAME_BYTES, "uroce/cm/%x/%u/%s", ps, port, address);
}

/*
 * An address as names have it: its text, or "any", "any4", "any6" for who listens for both families or one. What is not for its own
 * family alone (RDMA_OPTION_ID_AFONLY) has a "+" behind it, also where it is one address: the rules of Linux's rdma_cm ask for that.
 */
#define OPEN	      "+"
#define ADDRESS_BYTES sizeof(((struct cm_name *)0)->address)

static void write_address(const struct cm_id *id, char *text)
{
	const union ibv_gid gid = address_gid(&id->src);

	if (address_is_any(&id->src)) {
		strcpy(text, !id->afonly ? "any" : id->src.any.sa_family == AF_INET ? "any4" : "any6");
		return;
	}
	gid_text(&gid, text);
	if (!id->afonly)
		strcat(text, OPEN);
}

/* Who listens for an address, most particular first: i < CM_LISTENERS. */
static void write_listener(const union ibv_gid *gid, unsigned i, char *address)
{
	if (i >= 2) {
		strcpy(address, i == 3 ? "any" : gid_is_ipv4(gid) ? "any4" : "any6");
		return;
	}
	gid_text(gid, address);
	if (i == 1)
		strcat(address, OPEN);
}

void name_of_listener(uint64_t service_id, const union ibv_gid *gid, unsigned i, char *name)
{
	char address[ADDRESS_BYTES];

	write_listener(gid, i, address);
	write_name((uint16_t)(service_id >> 16), (uint16_t)service_id, address, name);
}

bool name_is_here(const struct cm *cm, uint64_t service_id, const union ibv_gid *gid)
{
	list_for_each(node, &cm->names) {
		const struct cm_name *name = list_entry(node, struct cm_name, of_cm);

		if (MAD_SERVICE_ID(name->ps, name->port) != service_id)
			continue;
		for (unsigned i = 0; i < CM_LISTENERS; i++) {
			char address[ADDRESS_BYTES];

			write_listener(gid, i, address);
			if (!strcmp(address, name->address))
				return true;
		}
	}
	return false;
}

static bool is_any(const char *address)
{
	return !strncmp(address, "any", 3);
}

static bool is_v6(const char *address)
{
	return !strcmp(address, "any6") || strchr(address, ':');
}

/* For the other family too, as far as conflicts go. */
static bool is_open(const char *address)
{
	return !strcmp(address, "any") || strchr(address, OPEN[0]);
}

/* Whether two addresses of one port are in each other's way, and with which error: as Linux's rdma_cm has it. */
static int conflict(const char *a, const char *b)
{
	size_t length = strcspn(a, OPEN);

	if (!is_open(a) && !is_open(b) && is_v6(a) != is_v6(b))
		return 0;
	if (is_any(a) || is_any(b))
		return EADDRNOTAVAIL;
	return length == strcspn(b, OPEN) && !strncmp(a, b, length) ? EADDRINUSE : 0;
}

/* Against the process's own. reuse: those that share are let be. */
static int check_own(const struct cm_id *id, uint16_t port, const char *address, bool reuse)
{
	list_for_each(node, &id->cm->names) {
		const struct cm_name *name = list_entry(node, struct cm_name, of_cm);

		if (name->ps != id->ps || name->port != port)
			continue;
		list_for_each(other_node, &name->ids) {
			const struct cm_id *other = list_entry(other_node, struct cm_id, of_name);
			int error = conflict(address, name->address);

			if (other != id && error && !(reuse && other->reuse && other->phase != CM_LISTENING))
				return error;
		}
	}
	return 0;
}

static bool is_own(const struct cm_id *id, uint16_t port, const char *address)
{
	list_for_each(node, &id->cm->names) {
		const struct cm_name *name = list_entry(node, struct cm_name, of_cm);

		if (name->ps == id->ps && name->port == port && !strcmp(name->address, address))
			return true;
	}
	return false;
}

/* The conflict of an address with another one, if another process has the port with that. */
static int check_other(const struct cm_id *id, int fd, uint16_t port, const char *address, const char *other)
{
	int error = conflict(address, other);
	char name[CM_NAME_BYTES];
	struct sockaddr_un to;
	socklen_t bytes;

	if (!error || !strcmp(address, other) || is_own(id, port, other))
		return 0;
	write_name(id->ps, port, other, name);
	bytes = abstract_name(&to, "%s", name);
	return connect(fd, (struct sockaddr *)&to, bytes) ? 0 : error;
}

static int check_other_gid(const struct cm_id *id, int fd, uint16_t port, const char *address, const union ibv_gid *gid)
{
	char text[ADDRESS_BYTES];
	int error;

	gid_text(gid, text);
	error = check_other(id, fd, port, address, text);
	strcat(text, OPEN);
	return error ? error : check_other(id, fd, port, address, text);
}

/* Against other processes, whose names are asked for one by one: an address of ours by those that stand for all, and the other way
 * round. Of two that bind at the same time both may fail. */
static int check_others(const struct cm_id *id, uint16_t port, const char *address)
{
	static const char *const all[] = { "any", "any4", "any6" };
	const union ibv_gid gid = address_gid(&id->src);
	int fd = descriptor_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), error = 0;
	struct gid_table *table = NULL;

	if (fd < 0)
		return errno;
	for (unsigned i = 0; i < 3 && !error; i++)
		error = check_other(id, fd, port, address, all[i]);
	if (!error && !is_any(address))
		error = check_other_gid(id, fd, port, address, &gid);
	else if (!error)
		table = malloc(sizeof(*table));
	if (table && !gid_table_read(table, NULL)) {
		for (uint32_t i = 0; i < table->count && !error; i++)
			error = check_other_gid(id, fd, port, address, &table->gids[i]);
	}
	free(table);
	descriptor_close(fd);
	return error;
}

static void name_ready(struct nic *nic, struct helper_source *source)
{
	struct cm_name *name = (struct cm_name *)source;
	struct cm *cm = name->cm;

	(void)nic;
	pthread_mutex_lock(&cm->lock);
	if (name->fd >= 0)
		courier_receive(cm, name->fd);
	cm_settle(cm);
	pthread_mutex_unlock(&cm->lock);
}

static void name_end(struct cm_name *name)
{
	list_del(&name->of_cm);
	descriptor_close(name->fd); /* which takes it out of the helper's set */
	name->fd = -1;
	/* The helper may just be about to call it. */
	list_add_tail(&name->cm->dead_names, &name->of_cm);
}

void names_bury(struct cm *cm)
{
	list_for_each_safe(node, tmp, &cm->dead_names)
		free(list_entry(node, struct cm_name, of_cm));
	list_init(&cm->dead_names);
}

static int join(struct cm_id *id, uint16_t port, const char *address)
{
	struct cm_name *name;
	char text[CM_NAME_BYTES];
	int error;

	list_for_each(node, &id->cm->names) {
		name = list_entry(node, struct cm_name, of_cm);
		if (name->ps == id->ps && name->port == port && !strcmp(name->address, address))
			goto found;
	}
	name = calloc(1, sizeof(*name));
	if (!name)
		return ENOMEM;
	name->source.ready = name_ready;
	name->cm = id->cm;
	name->ps = (uint16_t)id->ps;
	name->port = port;
	strcpy(name->address, address);
	list_init(&name->ids);
	write_name(name->ps, port, address, text);
	error = courier_bind(id->cm, text, &name->source, &name->fd);
	if (error) {
		free(name);
		/* "Any" is in everybody's way. */
		return error == EADDRINUSE && is_any(address) ? EADDRNOTAVAIL : error;
	}
	list_add_tail(&id->cm->names, &name->of_cm);
found:
	list_add_tail(&name->ids, &id->of_name);
	id->name = name;
	return 0;
}

static int bind_one(struct cm_id *id, uint16_t port, bool reuse)
{
	char address[ADDRESS_BYTES];
	int error;

	write_address(id, address);
	error = check_own(id, port, address, reuse);
	if (!error)
		error = join(id, port, address);
	if (error)
		return error;
	/* Looked for after our own name is there: of two at least one sees the other. */
	error = check_others(id, port, address);
	if (error)
		name_release(id);
	else
		address_set_port(&id->src, port);
	return error;
}

/* Where the program has not said it: who listens for all of IPv4 does so for IPv4 alone, of IPv6 the system's setting says it. */
static bool is_for_one_family(const struct cm_id *id)
{
	unsigned long numbers[2] = { 0 };

	if (id->src.any.sa_family == AF_INET)
		return true;
	proc_numbers("/proc/sys/net/ipv6/bindv6only", numbers);
	return numbers[0];
}

int name_bind(struct cm_id *id, uint16_t port)
{
	unsigned first, last;
	int error = EADDRNOTAVAIL;

	if (!id->has_afonly)
		id->afonly = is_for_one_family(id);
	if (port) {
		if (!may_bind(port))
			return EACCES;
		return bind_one(id, port, id->reuse);
	}
	/* One that is chosen is nobody else's. */
	chosen_range(&first, &last);
	for (int i = 0; i < TRIES; i++) {
		error = bind_one(id, (uint16_t)(first + random_number() % (last - first + 1)), false);
		if (error != EADDRINUSE && error != EADDRNOTAVAIL)
			break;
	}
	return error;
}

int name_check_alone(const struct cm_id *id)
{
	return id->name ? check_own(id, id->name->port, id->name->address, false) : 0;
}

int name_set_afonly(struct cm_id *id, bool afonly)
{
	struct cm_name *old = id->name;
	char address[ADDRESS_BYTES];
	bool before = id->afonly;
	int error = 0;

	id->afonly = afonly;
	id->has_afonly = true;
	if (!old || before == afonly)
		return 0;
	write_address(id, address);
	list_del(&id->of_name);
	error = join(id, old->port, address);
	if (error) {
		id->afonly = before;
		list_add_tail(&old->ids, &id->of_name);
	} else if (list_empty(&old->ids)) {
		name_end(old);
	}
	return error;
}

/* 0: the last of cm->ports->blocks is new. */
static int block_claim(struct cm *cm, uint16_t ps)
{
	struct block *block = calloc(1, sizeof(*block));
	unsigned first, last, blocks, start = random_number();
	char text[CM_NAME_BYTES];

	if (!block)
		return ENOMEM;
	chosen_range(&first, &last);
	blocks = (last - first + 1) / BLOCK;
	for (unsigned i = 0; i < blocks; i++) {
		block->first = (uint16_t)(first + (start + i) % blocks * BLOCK);
		write_name(ps, block->first, "block", text);
		if (courier_bind(cm, text, NULL, &block->fd))
			continue;
		block->ps = ps;
		block->next = (uint8_t)(start % BLOCK);
		list_add_tail(&cm->ports->blocks, &block->of_ports);
		return 0;
	}
	free(block);
	return EADDRNOTAVAIL;
}

static void block_end(struct block *block)
{
	list_del(&block->of_ports);
	descriptor_close(block->fd);
	free(block);
}

int name_take_any(struct cm_id *id)
{
	struct cm *cm = id->cm;
	struct block *block = NULL;

	if (!cm->ports) {
		cm->ports = calloc(1, sizeof(*cm->ports));
		if (!cm->ports)
			return ENOMEM;
		list_init(&cm->ports->blocks);
	}
	list_for_each(node, &cm->ports->blocks) {
		struct block *other = list_entry(node, struct block, of_ports);

		if (other->ps == id->ps && other->used != UINT64_MAX) {
			block = other;
			break;
		}
	}
	if (!block) {
		int error = block_claim(cm, (uint16_t)id->ps);

		if (error)
			return error;
		block = list_entry(cm->ports->blocks.prev, struct block, of_ports);
	}
	while (block->used & 1ull << block->next)
		block->next = (block->next + 1) % BLOCK;
	block->used |= 1ull << block->next;
	address_set_port(&id->src, block->first + block->next);
	block->next = (block->next + 1) % BLOCK;
	id->has_block_port = true;
	return 0;
}

static void give_back(struct cm_id *id)
{
	uint16_t port = address_port(&id->src);

	id->has_block_port = false;
	list_for_each_safe(node, tmp, &id->cm->ports->blocks) {
		struct block *block = list_entry(node, struct block, of_ports);

		if (block->ps != id->ps || port < block->first || port >= block->first + BLOCK)
			continue;
		block->used &= ~(1ull << (port - block->first));
		/* The last one stays: it will be needed again, and its ports are slow to be reused. */
		if (!block->used && id->cm->ports->blocks.next->next != &id->cm->ports->blocks)
			block_end(block);
		return;
	}
}

void name_keep(struct cm_id *request, const struct cm_id *listener)
{
	if (!listener->name)
		return;
	request->name = listener->name;
	request->keeps_name = true;
	list_add_tail(&listener->name->ids, &request->of_name);
}

void name_release(struct cm_id *id)
{
	struct cm_name *name = id->name;

	if (id->has_block_port)
		give_back(id);
	if (!name)
		return;
	list_del(&id->of_name);
	id->name = NULL;
	id->keeps_name = false;
	if (list_empty(&name->ids))
		name_end(name);
}

void names_free(struct cm *cm, bool is_child)
{
	list_for_each_safe(node, tmp, &cm->names) {
		struct cm_name *name = list_entry(node, struct cm_name, of_cm);

		if (is_child)
			descriptor_close(name->fd);
		else
			name_end(name);
	}
	if (cm->ports) {
		list_for_each_safe(node, tmp, &cm->ports->blocks) {
			if (is_child)
				descriptor_close(list_entry(node, struct block, of_ports)->fd);
			else
				block_end(list_entry(node, struct block, of_ports));
		}
	}
	if (is_child)
		return;
	free(cm->ports);
	cm->ports = NULL;
	names_bury(cm);
}
