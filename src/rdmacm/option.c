/* SPDX-License-Identifier: MIT */
/* Options of an id. All of them are the connection manager's. */
#include "rdmacm/rdmacm.h"

PUBLIC int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen)
{
	if (!optval)
		return answer(EINVAL);
	return answer(cm_set_option(to_id(id)->cm, level, optname, optval, optlen));
}
