/* SPDX-License-Identifier: MIT */
/*
 * Multicast groups of an id. One is entered when the program asks to join; its QP is attached when the event that tells of success
 * is read. Events of a group count for it and for its id.
 */
#include "rdmacm/rdmacm.h"

#include <stdlib.h>
#include <string.h>

static bool same_address(const struct sockaddr_storage *a, const struct sockaddr *b)
{
	return a->ss_family == b->sa_family && !memcmp(a, b, address_length(b));
}

static struct group *find(struct id *id, const struct sockaddr *address)
{
	struct group *group;

	pthread_mutex_lock(&id->lock);
	group = id->groups;
	while (group && !same_address(&group->address, address))
		group = group->next;
	pthread_mutex_unlock(&id->lock);
	return group;
}

/* Takes it out of the list. */
static void forget(struct group *group)
{
	struct id *id = group->id;

	pthread_mutex_lock(&id->lock);
	for (struct group **at = &id->groups; *at; at = &(*at)->next) {
		if (*at != group)
			continue;
		*at = group->next;
		break;
	}
	pthread_mutex_unlock(&id->lock);
}

static int join(struct id *id, const struct sockaddr *address, bool send_only, void *context)
{
	socklen_t length = address_length(address);
	struct group *group;
	int error;

	if (is_forked(id->generation))
		return ENODEV;
	if (!length || !id->device)
		return EINVAL;
	group = calloc(1, sizeof(*group));
	if (!group)
		return ENOMEM;
	group->id = id;
	group->context = context;
	group->send_only = send_only;
	memcpy(&group->address, address, length);
	pthread_mutex_lock(&id->lock);
	group->next = id->groups;
	id->groups = group;
	pthread_mutex_unlock(&id->lock);
	error = cm_join(id->cm, address, send_only, group);
	if (error) {
		forget(group);
		free(group);
		return error;
	}
	return id_complete(id);
}

PUBLIC int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	return answer(join(to_id(id), addr, false, context));
}

PUBLIC int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
	if (!attr)
		return answer(EINVAL);
	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return answer(ENOTSUP);
	if (attr->comp_mask != (RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) ||
	    attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return answer(EINVAL);
	return answer(join(to_id(id), attr->addr, attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context));
}

int group_joined(struct group *group, struct rdma_ud_param *param)
{
	struct ibv_qp *qp = group->id->id.qp;
	int error;

	if (!qp || group->send_only)
		return 0;
	group->gid = param->ah_attr.grh.dgid;
	error = ibv_attach_mcast(qp, &group->gid, 0);
	group->attached = !error;
	return error;
}

PUBLIC int rdma_leave_multicast(struct rdma_cm_id *handle, struct sockaddr *addr)
{
	struct id *id = to_id(handle);
	struct group *group;
	unsigned read = 0;
	int error;

	if (!address_length(addr))
		return answer(EINVAL);
	if (is_forked(id->generation))
		return answer(ENODEV);
	group = find(id, addr);
	if (!group)
		return answer(EADDRNOTAVAIL);
	if (handle->qp && group->attached)
		ibv_detach_mcast(handle->qp, &group->gid, 0);
	error = cm_leave(id->cm, addr, &read);
	if (error)
		return answer(error);
	id_wait_acknowledged(id, &group->acknowledged, read);
	forget(group);
	free(group);
	return 0;
}

void groups_free(struct id *id)
{
	while (id->groups) {
		struct group *group = id->groups;

		id->groups = group->next;
		free(group);
	}
}
