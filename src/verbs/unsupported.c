/* SPDX-License-Identifier: MIT */
/* Exported verbs that this device does not have: they say so, by the errno that their manual pages give. What programs
 * reach through the table of operations instead is in context.c. */
#include "verbs/verbs.h"

EXPORT(import_device, 1.10);
EXPORT(import_pd, 1.10);
EXPORT(import_mr, 1.10);
EXPORT(import_dm, 1.13);
EXPORT(unimport_pd, 1.10);
EXPORT(unimport_mr, 1.10);
EXPORT(unimport_dm, 1.13);
EXPORT(resolve_eth_l2_from_gid, 1.1);

struct ibv_context *verb_import_device(int cmd_fd)
{
	(void)cmd_fd;
	errno = EOPNOTSUPP;
	return NULL;
}

struct ibv_pd *verb_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	return refuse_null(to_ctx(context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_IMPORT, .pd = pd_handle);
}

struct ibv_mr *verb_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	return refuse_null(to_ctx(pd->context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_IMPORT, .qpn = mr_handle);
}

struct ibv_dm *verb_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	return refuse_null(to_ctx(context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_IMPORT, .qpn = dm_handle);
}

/* Nobody has imported anything. */
void verb_unimport_pd(struct ibv_pd *pd)
{
	refuse(to_ctx(pd->context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_IMPORT);
}

void verb_unimport_mr(struct ibv_mr *mr)
{
	refuse(to_ctx(mr->context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_IMPORT);
}

void verb_unimport_dm(struct ibv_dm *dm)
{
	refuse(to_ctx(dm->context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_IMPORT);
}

/* For providers that build Ethernet headers. */
int verb_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				 uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	(void)attr;
	(void)eth_mac;
	(void)vid;
	return -refuse(to_ctx(context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_ETH_L2);
}
