/* SPDX-License-Identifier: MIT */
/* Which transport a path takes. See transport.h. */
#include "nic/transport.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nic/gid.h"
#include "nic/qp.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool wire_only;

bool transport_parse(const char *value, bool *only)
{
	*only = value && !strcmp(value, "roce");
	return !value || !*value || *only;
}

static void init(void)
{
	transport_parse(getenv("UROCE_TRANSPORT"), &wire_only);
}

bool transport_is_wire_only(void)
{
	pthread_once(&once, init);
	return wire_only;
}

const struct transport *transport_to(const union ibv_gid *dgid)
{
	return transport_is_wire_only() || !gid_is_local(dgid) ? &wire_transport : &local_transport;
}

int transport_connect(struct nic_qp *qp)
{
	qp->transport = qp->type == IBV_QPT_UD ? &local_transport : transport_to(&qp->path.dgid);

	int error = qp->transport->connect(qp);

	if (!error && qp->type == IBV_QPT_UD)
		error = wire_transport.connect(qp);
	if (error)
		transport_disconnect(qp);
	return error;
}

void transport_disconnect(struct nic_qp *qp)
{
	local_transport.disconnect(qp);
	wire_transport.disconnect(qp);
	qp->transport = NULL;
}
