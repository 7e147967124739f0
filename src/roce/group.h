/* SPDX-License-Identifier: MIT */
/*
 * Multicast groups (specification 10.5; annex A17: a group is an IP multicast address). What is sent to a group goes out on the
 * wire whoever is in it, and the kernel brings it to each process that has joined, on this host too; here it goes to each QP that is
 * attached.
 */
#ifndef UROCE_ROCE_GROUP_H
#define UROCE_ROCE_GROUP_H

#include "nic/qp.h"

#define GROUPS_MOST	   256u
#define GROUP_MEMBERS_MOST 240u /* QPs of a process in one group */

bool gid_is_multicast(const union ibv_gid *gid);

/* Of a UD QP; once in is enough. 0, or errno: EINVAL, ENOMEM, or what the kernel says to joining. */
int group_attach(struct nic_qp *qp, const union ibv_gid *mgid);
/* EINVAL: it was not in. */
int group_detach(struct nic_qp *qp, const union ibv_gid *mgid);
bool group_has(struct nic_qp *qp);
/* Out of all groups. */
void group_forget(struct nic_qp *qp);

/* The indices of the QPs that are in; their number. */
uint32_t group_members(struct nic *nic, const union ibv_gid *mgid, uint32_t members[GROUP_MEMBERS_MOST]);

/* Helper, when it holds no port: closes those of groups that nobody is in any more. Wire's lock held. */
void group_close_left(struct nic *nic);
void group_stop(struct nic *nic);

#endif
