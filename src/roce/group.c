/* SPDX-License-Identifier: MIT */
/* Multicast groups. See group.h. */
#include "roce/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "roce/wire.h"

/* Under the wire's lock. */
struct group {
	struct list of_wire; /* wire->groups; without members wire->left, until the helper has closed it */
	struct port *port;   /* its gid is the group's; only the helper receives on it */
	uint32_t count;
	uint32_t members[GROUP_MEMBERS_MOST];
};

bool gid_is_multicast(const union ibv_gid *gid)
{
	return gid_is_ipv4(gid) ? (gid->raw[12] & 0xf0) == 0xe0 : gid->raw[0] == 0xff;
}

static struct group *find(struct wire *wire, const union ibv_gid *mgid)
{
	list_for_each(node, &wire->groups) {
		struct group *group = list_entry(node, struct group, of_wire);

		if (!memcmp(&group->port->gid, mgid, sizeof(*mgid)))
			return group;
	}
	return NULL;
}

static uint32_t place_of(const struct group *group, uint32_t index)
{
	uint32_t i = 0;

	while (i < group->count && group->members[i] != index)
		i++;
	return i;
}

/* The device's interfaces that have addresses of the group's family. */
static unsigned list_interfaces(const struct nic_qp *qp, const union ibv_gid *mgid, uint32_t interfaces[GROUP_INTERFACES])
{
	unsigned count = 0;

	for (uint32_t i = 0; i < qp->gids->count && count < GROUP_INTERFACES; i++) {
		union ibv_gid gid;
		uint32_t ifindex;
		bool known = false;

		if (!gid_table_get(qp->gids, i, &gid, &ifindex) || gid_is_ipv4(&gid) != gid_is_ipv4(mgid))
			continue;
		for (unsigned j = 0; j < count; j++)
			known |= interfaces[j] == ifindex;
		if (!known)
			interfaces[count++] = ifindex;
	}
	return count;
}

/* Joins; NULL with errno. */
static struct group *make(struct nic_qp *qp, const union ibv_gid *mgid)
{
	struct wire *wire = qp->nic->wire;
	struct group *group = wire->group_count < GROUPS_MOST ? calloc(1, sizeof(*group)) : NULL;
	uint32_t interfaces[GROUP_INTERFACES];

	if (!group) {
		errno = ENOMEM;
		return NULL;
	}
	group->port = port_open_group(mgid, interfaces, list_interfaces(qp, mgid, interfaces));
	if (!group->port) {
		free(group);
		return NULL;
	}
	group->port->counters = &qp->nic->seg->counters;
	list_add_tail(&wire->groups, &group->of_wire);
	wire->group_count++;
	wire_listen_to(qp->nic, group->port);
	return group;
}

int group_attach(struct nic_qp *qp, const union ibv_gid *mgid)
{
	struct wire *wire = qp->nic->wire;
	struct group *group;
	int error = 0;

	if (qp->type != IBV_QPT_UD || !gid_is_multicast(mgid))
		return EINVAL;
	pthread_mutex_lock(&wire->lock);
	group = find(wire, mgid);
	if (!group)
		group = make(qp, mgid);
	if (!group)
		error = errno;
	else if (place_of(group, qp->index) < group->count)
		error = 0;
	else if (group->count == GROUP_MEMBERS_MOST)
		error = ENOMEM;
	else
		group->members[group->count++] = qp->index;
	pthread_mutex_unlock(&wire->lock);
	return error;
}

/* False: it was not in. */
static bool leave(struct nic *nic, struct group *group, uint32_t index)
{
	uint32_t place = place_of(group, index);

	if (place == group->count)
		return false;
	group->members[place] = group->members[--group->count];
	if (group->count)
		return true;
	list_del(&group->of_wire);
	list_add_tail(&nic->wire->left, &group->of_wire);
	nic->wire->group_count--;
	wire_ignore(nic, group->port);
	nic_ring_doorbell(nic);
	return true;
}

int group_detach(struct nic_qp *qp, const union ibv_gid *mgid)
{
	struct wire *wire = qp->nic->wire;

	pthread_mutex_lock(&wire->lock);
	struct group *group = find(wire, mgid);
	bool was_in = group && leave(qp->nic, group, qp->index);

	pthread_mutex_unlock(&wire->lock);
	return was_in ? 0 : EINVAL;
}

bool group_has(struct nic_qp *qp)
{
	struct wire *wire = qp->nic->wire;
	bool is_in = false;

	pthread_mutex_lock(&wire->lock);
	list_for_each(node, &wire->groups) {
		const struct group *group = list_entry(node, struct group, of_wire);

		is_in |= place_of(group, qp->index) < group->count;
	}
	pthread_mutex_unlock(&wire->lock);
	return is_in;
}

void group_forget(struct nic_qp *qp)
{
	struct wire *wire = qp->nic->wire;

	pthread_mutex_lock(&wire->lock);
	list_for_each_safe(node, tmp, &wire->groups)
		leave(qp->nic, list_entry(node, struct group, of_wire), qp->index);
	pthread_mutex_unlock(&wire->lock);
}

uint32_t group_members(struct nic *nic, const union ibv_gid *mgid, uint32_t members[GROUP_MEMBERS_MOST])
{
	uint32_t count = 0;

	pthread_mutex_lock(&nic->wire->lock);
	const struct group *group = find(nic->wire, mgid);

	if (group) {
		count = group->count;
		memcpy(members, group->members, count * sizeof(*members));
	}
	pthread_mutex_unlock(&nic->wire->lock);
	return count;
}

static void close_all(struct list *groups)
{
	list_for_each_safe(node, tmp, groups) {
		struct group *group = list_entry(node, struct group, of_wire);

		list_del(node);
		port_close(group->port);
		free(group);
	}
}

void group_close_left(struct nic *nic)
{
	close_all(&nic->wire->left);
}

void group_stop(struct nic *nic)
{
	struct list *lists[] = { &nic->wire->groups, &nic->wire->left };

	for (int i = 0; i < 2; i++) {
		if (!nic_is_orphan(nic)) {
			close_all(lists[i]);
			continue;
		}
		list_for_each(node, lists[i])
			port_close_descriptors(list_entry(node, struct group, of_wire)->port);
	}
}
