/* SPDX-License-Identifier: MIT */
/* Multicast groups: an IP address is a GID, and being a member of the group on the interface is what brings its packets. A socket
 * of ours is the membership. */
#include "cm/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "nic/event.h"
#include "nic/gid.h"
#include "nic/keep_errno.h"
#include "nic/nic.h"

#define MULTICAST_QPN 0xffffff
#define HOPS	      64

struct cm_group {
	struct list of_id;
	union cm_address address;
	void *context;
	unsigned events_read;
	int fd; /* -1: send only */
};

void *group_event_read(struct cm_group *group)
{
	group->events_read++;
	return group->context;
}

static uint32_t interface_of(const union ibv_gid *gid)
{
	struct gid_table *table = malloc(sizeof(*table));
	uint32_t ifindex = 0;
	int i;

	if (table && !gid_table_read(table, NULL)) {
		i = gid_table_find(table, gid);
		ifindex = i < 0 ? 0 : table->ifindex[i];
	}
	free(table);
	return ifindex;
}

/* 0, or errno. */
static int become_member(const struct cm_id *id, struct cm_group *group)
{
	bool v4 = group->address.any.sa_family == AF_INET;
	struct ip_mreqn v4_request = { .imr_multiaddr = group->address.v4.sin_addr, .imr_ifindex = (int)interface_of(&id->sgid) };
	struct ipv6_mreq v6_request = { .ipv6mr_multiaddr = group->address.v6.sin6_addr,
					.ipv6mr_interface = (unsigned)v4_request.imr_ifindex };

	group->fd = descriptor_socket(group->address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (group->fd < 0 || (v4 ? setsockopt(group->fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &v4_request, sizeof(v4_request)) :
				   setsockopt(group->fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &v6_request, sizeof(v6_request))))
		return errno;
	return 0;
}

static bool is_multicast(const union cm_address *address)
{
	return address->any.sa_family == AF_INET ? IN_MULTICAST(ntohl(address->v4.sin_addr.s_addr)) :
						   IN6_IS_ADDR_MULTICAST(&address->v6.sin6_addr);
}

static void leave_group(struct cm_group *group)
{
	list_del(&group->of_id);
	if (group->fd >= 0)
		descriptor_close(group->fd);
	free(group);
}

void groups_leave_all(struct cm_id *id)
{
	list_for_each_safe(node, tmp, &id->groups)
		leave_group(list_entry(node, struct cm_group, of_id));
}

/* Lock held. */
static int join(struct cm_id *id, const struct sockaddr *address, bool send_only, void *context)
{
	struct cm_event event = { .id = id, .type = RDMA_CM_EVENT_MULTICAST_JOIN, .is_ud = true };
	struct cm_group *group;
	int error;

	if (id->type != IBV_QPT_UD || gid_is_zero(&id->sgid) ||
	    (id->phase != CM_BOUND && id->phase != CM_ADDR_RESOLVED && id->phase != CM_ROUTE_RESOLVED))
		return EINVAL;
	group = calloc(1, sizeof(*group));
	if (!group)
		return ENOMEM;
	error = address_copy(&group->address, address);
	if (error) {
		free(group);
		return error;
	}
	group->context = context;
	group->fd = -1;
	list_add_tail(&id->groups, &group->of_id);
	if (!is_multicast(&group->address))
		error = EADDRNOTAVAIL;
	else if (!send_only)
		error = become_member(id, group);
	if (error) {
		cm_record(id->cm, id, CAUSE_CM_GROUP, error, 0);
		event.type = RDMA_CM_EVENT_MULTICAST_ERROR;
		event.status = -error;
	} else {
		id->mtu = path_mtu(&id->sgid);
		event.param.ud.qp_num = MULTICAST_QPN;
		event.param.ud.qkey = id->ps == RDMA_PS_UDP ? RDMA_UDP_QKEY : 0;
		event.param.ud.ah_attr = (struct ibv_ah_attr){
			.grh = { .dgid = address_gid(&group->address), .hop_limit = HOPS, .traffic_class = id->traffic_class },
			.is_global = 1,
			.port_num = 1
		};
	}
	channel_raise(id, &event, group);
	return 0;
}

int cm_join(struct cm_id *id, const struct sockaddr *address, bool send_only, void *context)
{
	KEEP_ERRNO;
	int error;

	if (cm_is_forked(id->cm))
		return ENODEV;
	pthread_mutex_lock(&id->cm->lock);
	error = join(id, address, send_only, context);
	pthread_mutex_unlock(&id->cm->lock);
	return error;
}

static bool is_same(const union cm_address *a, const union cm_address *b)
{
	const union ibv_gid left = address_gid(a), right = address_gid(b);

	return a->any.sa_family == b->any.sa_family && !memcmp(&left, &right, sizeof(left));
}

/* Events that were not read are dropped. */
static void forget_events(struct cm_channel *channel, const struct cm_group *group)
{
	list_for_each_safe(node, tmp, &channel->events) {
		struct queued_event *queued = list_entry(node, struct queued_event, node);

		if (queued->group != group)
			continue;
		list_del(node);
		nic_tokens_drop(channel->fd, 1);
		free(queued);
	}
}

int cm_leave(struct cm_id *id, const struct sockaddr *address, unsigned *read)
{
	KEEP_ERRNO;
	union cm_address asked;
	int error = address_copy(&asked, address);

	*read = 0;
	if (cm_is_forked(id->cm))
		return ENODEV;
	if (error)
		return error;
	error = EADDRNOTAVAIL;
	pthread_mutex_lock(&id->cm->lock);
	list_for_each_safe(node, tmp, &id->groups) {
		struct cm_group *group = list_entry(node, struct cm_group, of_id);

		if (!is_same(&group->address, &asked))
			continue;
		forget_events(id->channel, group);
		*read = group->events_read;
		leave_group(group);
		error = 0;
		break;
	}
	pthread_mutex_unlock(&id->cm->lock);
	return error;
}
