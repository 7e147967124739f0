/* SPDX-License-Identifier: MIT */
/*
 * The matrix, as tables: the product of the axes below, less what has no meaning, and then the rows
 * that no product gives. A row's name is its address: axes in order, separated by '/'.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "verify.h"

static const struct {
	const char *name;
	enum ibv_qp_type type;
	unsigned ops;
} types[] = {
	{ "rc", IBV_QPT_RC, OPS_RC },
	{ "uc", IBV_QPT_UC, OPS_UC },
	{ "ud", IBV_QPT_UD, OPS_UD },
};

static const struct {
	const char *name;
	bool inlinable, sized;
} ops[OP_KINDS] = {
	[OP_SEND] = { "send", true, true },
	[OP_SEND_IMM] = { "send-imm", true, true },
	[OP_WRITE] = { "write", true, true },
	[OP_WRITE_IMM] = { "write-imm", true, true },
	[OP_READ] = { "read", false, true },
	[OP_CMP_SWP] = { "cmp-swp", false, false },
	[OP_FETCH_ADD] = { "fetch-add", false, false },
};

static const struct {
	const char *name;
	enum size_class size;
	bool inlinable, fits_ud;
} sizes[] = {
	{ "0", SIZE_ZERO, true, true },
	{ "1-64", SIZE_SMALL, true, true },
	{ "mtu", SIZE_MTU, true, true },
	{ "1M", SIZE_LARGE, false, false },
};

static const struct {
	const char *name;
	unsigned list, round, signal_every;
} lists[] = {
	{ "list1", 1, 16, 1 },
	{ "list32", 32, 72, 5 },
};

static const struct {
	const char *name;
	unsigned sges;
} sges[] = { { "sge1", 1 }, { "sge32", 32 } };

static const struct {
	const char *name;
	enum api api;
} apis[] = { { "classic", API_CLASSIC }, { "extended", API_EXTENDED } };

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* What most of the rows below are: all operations of a type, mixed. */
#define MIXED(type_, ops_)                                                                     \
	.type = (type_), .ops = (ops_), .size = SIZE_ANY, .inl = INLINE_SOME, .list = 8,       \
	.sges = 8, .qps = 1, .round = 64, .signal_every = 4, .mrs = MR_DEFAULT, .chain = true, \
	.times = 4
#define MIXED_RC MIXED(IBV_QPT_RC, OPS_RC)
#define MIXED_UC MIXED(IBV_QPT_UC, OPS_UC)
#define MIXED_UD MIXED(IBV_QPT_UD, OPS_UD)
#define CLASSIC	 .api = { API_CLASSIC, API_CLASSIC }
#define EXTENDED .api = { API_EXTENDED, API_EXTENDED }
#define BOTH	 .api = { API_BOTH, API_BOTH }

/* A row says what it has other than MIXED. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
/* clang-format off */
static const struct row special[] = {
	/* All operations on one QP, or several. */
	{ .name = "mixed/rc/classic", MIXED_RC, CLASSIC },
	{ .name = "mixed/rc/extended", MIXED_RC, EXTENDED },
	{ .name = "mixed/rc/both-apis-on-a-qp", MIXED_RC, BOTH },
	{ .name = "mixed/rc/classic-to-extended", MIXED_RC, .api = { API_CLASSIC, API_EXTENDED } },
	{ .name = "mixed/rc/4-qps", MIXED_RC, CLASSIC, .qps = 4 },
	{ .name = "mixed/rc/4-qps-one-cq", MIXED_RC, EXTENDED, .qps = 4, .cqs = CQ_SHARED },
	{ .name = "mixed/rc/4-qps-cq-each", MIXED_RC, CLASSIC, .qps = 4, .cqs = CQ_PER_QP },
	{ .name = "mixed/rc/srq", MIXED_RC, CLASSIC, .srq = true },
	{ .name = "mixed/rc/4-qps-srq", MIXED_RC, BOTH, .qps = 4, .srq = true },
	{ .name = "mixed/rc/4-qps-srq-one-cq", MIXED_RC, CLASSIC, .qps = 4, .srq = true,
	  .cqs = CQ_SHARED },
	{ .name = "mixed/rc/8-qps-half-loopback", MIXED_RC, CLASSIC, .qps = 8, .self_qps = 4 },
	{ .name = "mixed/uc/classic", MIXED_UC, CLASSIC },
	{ .name = "mixed/uc/extended", MIXED_UC, EXTENDED },
	{ .name = "mixed/uc/4-qps-one-cq", MIXED_UC, BOTH, .qps = 4, .cqs = CQ_SHARED },
	{ .name = "mixed/ud/classic", MIXED_UD, CLASSIC },
	{ .name = "mixed/ud/extended", MIXED_UD, EXTENDED },
	{ .name = "mixed/ud/4-qps-to-any", MIXED_UD, BOTH, .qps = 4 },
	{ .name = "mixed/ud/4-qps-srq-one-cq", MIXED_UD, EXTENDED, .qps = 4, .srq = true,
	  .cqs = CQ_SHARED },

	/* Receives that come after the messages: RNR. */
	{ .name = "mixed/rc/late-receives", MIXED_RC, CLASSIC, .late_receives = true },
	{ .name = "mixed/rc/late-receives-srq", MIXED_RC, EXTENDED, .qps = 2, .srq = true,
	  .late_receives = true },

	/* Signaling and depths. */
	{ .name = "signal/rc/sq-sig-all", MIXED_RC, CLASSIC, .sig_all = true },
	{ .name = "signal/rc/last-only", MIXED_RC, CLASSIC, .signal_every = 1000, .sq_depth = 72 },
	{ .name = "signal/uc/last-only", MIXED_UC, EXTENDED, .signal_every = 1000,
	  .sq_depth = 72 },
	{ .name = "signal/ud/last-only", MIXED_UD, CLASSIC, .signal_every = 1000, .sq_depth = 72 },
	{ .name = "depth/rc/1", MIXED_RC, CLASSIC, .list = 1, .signal_every = 1, .sq_depth = 1 },
	{ .name = "depth/rc/3", MIXED_RC, EXTENDED, .list = 2, .signal_every = 3, .sq_depth = 3 },

	/* Sleeping receivers and senders. */
	{ .name = "events/rc/any", MIXED_RC, CLASSIC, .events = true, .times = 1 },
	{ .name = "events/rc/extended-one-cq", MIXED_RC, EXTENDED, .events = true, .cqs = CQ_SHARED,
	  .times = 1 },
	{ .name = "events/rc/4-qps-solicited", MIXED_RC, CLASSIC, .qps = 4, .events = true,
	  .solicited = true },
	{ .name = "events/rc/srq-solicited", MIXED_RC, BOTH, .srq = true, .events = true,
	  .solicited = true },
	{ .name = "events/uc/any", MIXED_UC, EXTENDED, .events = true, .times = 1 },
	{ .name = "events/uc/solicited", MIXED_UC, CLASSIC, .events = true, .solicited = true },
	{ .name = "events/ud/any", MIXED_UD, CLASSIC, .events = true, .times = 1 },
	{ .name = "events/ud/solicited", MIXED_UD, EXTENDED, .qps = 3, .events = true,
	  .solicited = true },
	{ .name = "events/rc/ping-pong", MIXED_RC, CLASSIC, .events = true, .round = 2, .list = 1,
	  .times = 1 },

	/* Two nodes in one process, and QPs connected to themselves. */
	{ .name = "loopback/rc/one-process", MIXED_RC, CLASSIC, .place = ONE_PROCESS, .qps = 2 },
	{ .name = "loopback/rc/one-process-extended", MIXED_RC, EXTENDED, .place = ONE_PROCESS,
	  .srq = true },
	{ .name = "loopback/uc/one-process", MIXED_UC, BOTH, .place = ONE_PROCESS, .qps = 2 },
	{ .name = "loopback/ud/one-process", MIXED_UD, CLASSIC, .place = ONE_PROCESS, .qps = 2 },
	{ .name = "loopback/rc/self", MIXED_RC, CLASSIC, .place = ONE_NODE, .self_qps = 1 },
	{ .name = "loopback/rc/self-3-qps-one-cq", MIXED_RC, EXTENDED, .place = ONE_NODE, .qps = 3,
	  .self_qps = 3, .cqs = CQ_SHARED },
	{ .name = "loopback/uc/self", MIXED_UC, EXTENDED, .place = ONE_NODE, .self_qps = 1 },
	{ .name = "loopback/ud/self", MIXED_UD, CLASSIC, .place = ONE_NODE, .qps = 2,
	  .self_qps = 2 },

	/* How memory is named. */
	{ .name = "mr/rc/iova", MIXED_RC, CLASSIC, .mrs = MR_IOVA },
	{ .name = "mr/rc/zero-based", MIXED_RC, CLASSIC, .mrs = MR_ZERO },
	{ .name = "mr/rc/all", MIXED_RC, EXTENDED, .mrs = MR_DEFAULT | MR_IOVA | MR_ZERO },
	{ .name = "mr/uc/all", MIXED_UC, CLASSIC, .mrs = MR_DEFAULT | MR_IOVA | MR_ZERO },
	{ .name = "mr/rc/window", MIXED_RC, CLASSIC, .mrs = MR_DEFAULT | MR_WINDOW },
	{ .name = "mr/rc/window-alone", MIXED_RC, EXTENDED, .qps = 2, .mrs = MR_WINDOW },
	{ .name = "mr/uc/window", MIXED_UC, EXTENDED, .mrs = MR_IOVA | MR_WINDOW },
	{ .name = "mr/ud/all", MIXED_UD, CLASSIC, .mrs = MR_DEFAULT | MR_IOVA | MR_ZERO },

	/* Path MTUs below the port's. */
	{ .name = "path-mtu/rc/256", MIXED_RC, CLASSIC, .path_mtu = IBV_MTU_256 },
	{ .name = "path-mtu/rc/512", MIXED_RC, EXTENDED, .path_mtu = IBV_MTU_512 },
	{ .name = "path-mtu/uc/256", MIXED_UC, CLASSIC, .path_mtu = IBV_MTU_256 },

	/* Larger messages. */
	{ .name = "large/rc/8M", MIXED_RC, CLASSIC, .size = SIZE_HUGE, .round = 6, .list = 2,
	  .times = 1 },
	{ .name = "large/rc/8M-sge32", MIXED_RC, EXTENDED, .size = SIZE_HUGE, .round = 6, .list = 2,
	  .sges = 32, .times = 1 },
	{ .name = "large/uc/8M", MIXED_UC, CLASSIC, .size = SIZE_HUGE, .round = 6, .list = 2,
	  .times = 1 },
	{ .name = "large/rc/1M-both-ways", MIXED_RC, CLASSIC, .size = SIZE_LARGE, .qps = 2,
	  .round = 16, .times = 1 },

	/* Atomics in chains on the same words. */
	{ .name = "atomics/rc/chained", MIXED(IBV_QPT_RC, OPS_ATOMIC), CLASSIC, .qps = 3 },
	{ .name = "atomics/rc/contended", MIXED_RC, CLASSIC, .qps = 5, .self_qps = 1,
	  .scene = scene_contended_atomics },
	{ .name = "atomics/rc/contended-one-process", MIXED_RC, EXTENDED, .qps = 5, .self_qps = 1,
	  .place = ONE_PROCESS, .scene = scene_contended_atomics },
	{ .name = "timestamps/rc/extended", MIXED_RC, EXTENDED, .timestamps = true, .times = 1 },

	/* A WRITE's last byte is there: so are all the others. Neither side polls for it. */
	{ .name = "last-byte/rc/classic", MIXED_RC, CLASSIC, .size = SIZE_LARGE,
	  .scene = scene_last_byte },
	{ .name = "last-byte/uc/extended", MIXED_UC, EXTENDED, .size = SIZE_LARGE,
	  .scene = scene_last_byte },
	{ .name = "large/rc/2G", MIXED_RC, CLASSIC, .size = SIZE_ZERO, .on_request = true,
	  .scene = scene_two_gib },
};
/* clang-format on */
#pragma GCC diagnostic pop

static struct row *all;
static unsigned count;

/* One combination: an index into each axis. */
struct point {
	unsigned type, op, size, inl, srq, sge, list, api;
};

static unsigned take(unsigned *rest, unsigned values)
{
	const unsigned value = *rest % values;

	*rest /= values;
	return value;
}

/* Combinations without a meaning: there is no such operation, or the axis does not touch it. */
static bool has_meaning(const struct point *p)
{
	if (!(types[p->type].ops & 1u << p->op))
		return false;
	if (types[p->type].type == IBV_QPT_UD && !sizes[p->size].fits_ud)
		return false;
	if (!ops[p->op].sized && (p->size > 0 || p->sge > 0))
		return false;
	if (p->inl && !(ops[p->op].inlinable && sizes[p->size].inlinable))
		return false;
	/* ibv_create_qp(3): only RC and UD QPs use an SRQ. */
	return !p->srq || (op_takes_receive(p->op) && types[p->type].type != IBV_QPT_UC);
}

static struct row product_row(const struct point *p)
{
	const bool sized = ops[p->op].sized, large = sized && sizes[p->size].size == SIZE_LARGE;
	struct row row = {
		.type = types[p->type].type,
		.ops = 1u << p->op,
		.size = sized ? sizes[p->size].size : SIZE_SMALL,
		.inl = p->inl ? INLINE_ALL : INLINE_NONE,
		.srq = p->srq,
		.list = lists[p->list].list,
		.sges = sges[p->sge].sges,
		.api = { apis[p->api].api, apis[p->api].api },
		.qps = 1,
		.round = large ? lists[p->list].round / 2 : lists[p->list].round,
		.signal_every = lists[p->list].signal_every,
		.mrs = MR_DEFAULT,
		.times = 1,
	};
	char *name;

	if (asprintf(&name, "%s/%s/%s%s%s/%s/%s/%s", types[p->type].name, ops[p->op].name,
		     sized ? sizes[p->size].name : "8", p->inl ? "/inline" : "",
		     p->srq ? "/srq" : "", lists[p->list].name, sges[p->sge].name,
		     apis[p->api].name) < 0)
		abort();
	row.name = name;
	return row;
}

static void build(void)
{
	const unsigned points = COUNT(types) * OP_KINDS * COUNT(sizes) * 2 * 2 * COUNT(sges) *
				COUNT(lists) * COUNT(apis);

	all = calloc(points + COUNT(special), sizeof(*all));
	if (!all)
		abort();
	for (unsigned i = 0; i < points; i++) {
		unsigned rest = i;
		struct point p;

		p.api = take(&rest, COUNT(apis));
		p.list = take(&rest, COUNT(lists));
		p.sge = take(&rest, COUNT(sges));
		p.srq = take(&rest, 2);
		p.inl = take(&rest, 2);
		p.size = take(&rest, COUNT(sizes));
		p.op = take(&rest, OP_KINDS);
		p.type = rest;
		if (has_meaning(&p))
			all[count++] = product_row(&p);
	}
	memcpy(&all[count], special, sizeof(special));
	count += COUNT(special);
}

bool row_may_lose(const struct row *row)
{
	const char *transport = getenv("UROCE_TRANSPORT");

	return row->type != IBV_QPT_RC && transport && !strcmp(transport, "roce");
}

const struct row *rows_all(unsigned *rows)
{
	if (!all)
		build();
	*rows = count;
	return all;
}

const struct row *row_by_name(const char *name)
{
	unsigned rows;
	const struct row *row = rows_all(&rows);

	for (unsigned i = 0; i < rows; i++)
		if (!strcmp(row[i].name, name))
			return &row[i];
	return NULL;
}
