/* SPDX-License-Identifier: MIT */
/*
 * What a log shows, and the causes that lead there. A bare number is told as all that it can be.
 */
#include "tools/explain.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define N_(text) text

/* ---- Causes ---- */

static void print_todo(uint32_t code)
{
	printf("    ");
	printf(explain_word(EXPLAIN_WORD_TODO), explain_todo(code));
	printf("\n");
}

static void document(uint32_t code)
{
	const struct explain_row *row = explain_row(code);

	printf("  %s (%u): %s\n", cause_name(code), code, explain_short(code));
	if (row && *explain_todo(code))
		print_todo(code);
}

/* What a program sees of a cause. */
static void document_signs(uint32_t code)
{
	const struct explain_row *row = explain_row(code);

	for (uint32_t status = 1; row && explain_status(status); status++)
		if (row->statuses & 1u << status)
			printf(_("    It shows as a completion with %s (%u), vendor_err %u.\n"), explain_status(status), status,
			       code);
	if (row && row->error)
		printf(_("    It shows as errno %s (%d) of a verb.\n"), strerrorname_np(row->error), row->error);
}

static bool explain_cause(uint32_t code)
{
	if (!cause_name(code))
		return false;
	printf(_("Cause %u:\n"), code);
	document(code);
	document_signs(code);
	return true;
}

static bool explain_cause_name(const char *text)
{
	const struct cause_entry *entry;

	if (!strncasecmp(text, "CAUSE_", 6))
		text += 6;
	for (unsigned i = 0; (entry = cause_entry(i)); i++)
		if (!strcasecmp(entry->name, text))
			return explain_cause(entry->code);
	return false;
}

/* ---- Statuses ---- */

static const char *const status_words[] = {
	[IBV_WC_LOC_LEN_ERR] = "local length error",
	[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
	[IBV_WC_LOC_PROT_ERR] = "local protection error",
	[IBV_WC_WR_FLUSH_ERR] = "flush",
	[IBV_WC_MW_BIND_ERR] = "memory bind operation error",
	[IBV_WC_BAD_RESP_ERR] = "bad response error",
	[IBV_WC_LOC_ACCESS_ERR] = "local access error",
	[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
	[IBV_WC_REM_ACCESS_ERR] = "remote access error",
	[IBV_WC_REM_OP_ERR] = "remote operation error",
	[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
	[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
};
#define STATUS_WORDS (sizeof(status_words) / sizeof(status_words[0]))

static bool explain_completion(uint32_t status)
{
	const struct cause_entry *entry;
	bool any = false;

	if (!status || !explain_status(status))
		return false;
	printf(_("A completion with %s (%u) has one of these causes; its vendor_err says which:\n"), explain_status(status),
	       status);
	for (unsigned i = 0; (entry = cause_entry(i)); i++) {
		const struct explain_row *row = explain_row(entry->code);

		if (!row || !(row->statuses & 1u << status))
			continue;
		document(entry->code);
		any = true;
	}
	if (!any)
		printf(_("  None: uroce never completes so.\n"));
	return true;
}

static bool explain_completion_name(const char *text)
{
	for (uint32_t status = 1; explain_status(status); status++) {
		const char *name = explain_status(status);

		if (!strcasecmp(name, text) || !strcasecmp(name + strlen("IBV_WC_"), text))
			return explain_completion(status);
	}
	for (uint32_t status = 1; status < STATUS_WORDS; status++)
		if (status_words[status] && strcasestr(text, status_words[status]))
			return explain_completion(status);
	return false;
}

/* ---- Verbs ---- */

#define V(verb) (1u << EXPLAIN_##verb)

/* The first that fits. */
static const struct {
	const char *prefix;
	uint32_t verbs;
} verbs[] = {
	{ "ibv_post_send", V(POST_SEND) }, { "ibv_wr_", V(POST_SEND) },
	{ "ibv_post_recv", V(POST_RECV) }, { "ibv_post_srq_recv", V(POST_RECV) },
	{ "ibv_modify_qp", V(MODIFY_QP) }, { "ibv_modify_srq", V(MODIFY_SRQ) },
	{ "ibv_create_ah", V(CREATE_AH) }, { "ibv_create", V(CREATE) },
	{ "ibv_alloc", V(CREATE) },	   { "ibv_reg_", V(REG_MR) },
	{ "ibv_rereg_", V(REG_MR) },	   { "ibv_destroy", V(DESTROY) },
	{ "ibv_dereg", V(DESTROY) },	   { "ibv_dealloc", V(DESTROY) },
	{ "ibv_query", V(QUERY) },	   { "ibv_resize_cq", V(RESIZE_CQ) },
	{ "ibv_attach", V(ATTACH) },	   { "ibv_detach", V(ATTACH) },
	{ "ibv_open", V(OPEN) },	   { "ibv_bind_mw", V(POST_SEND) },
	{ "rdma_bind", V(CM) },		   { "rdma_resolve", V(CM) },
	{ "rdma_listen", V(CM) },	   { "rdma_connect", V(CM) },
	{ "rdma_accept", V(CM) },	   { "rdma_reject", V(CM) },
	{ "rdma_disconnect", V(CM) },
};

/* Of its own, and of those that any verb has. */
static uint32_t verb_of(const char *text)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcasestr(text, verbs[i].prefix))
			return verbs[i].verbs | V(ANY);
	return 0;
}

static bool explain_errno(int error, uint32_t of)
{
	const struct cause_entry *entry;
	bool any = false;

	if (error <= 0 || !strerrorname_np(error))
		return false;
	for (unsigned i = 0; (entry = cause_entry(i)); i++) {
		const struct explain_row *row = explain_row(entry->code);

		/* What has several is told for its own verb only. */
		if (!row || !row->verbs || (of && !(row->verbs & of)) || (row->error != error && (row->error || !of)))
			continue;
		if (!any)
			printf(_("A verb that answers %s (%d, %s) has one of these causes:\n"), strerrorname_np(error), error,
			       strerror(error));
		document(entry->code);
		any = true;
	}
	return any;
}

static int errno_of(const char *text)
{
	for (int error = 1; error < 134; error++) {
		const char *name = strerrorname_np(error), *at = name ? strcasestr(text, name) : NULL;

		if (at && !isalnum((unsigned char)at[strlen(name)]) && (at == text || !isalnum((unsigned char)at[-1])))
			return error;
		if (name && (strcasestr(text, strerrordesc_np(error)) || strcasestr(text, strerror(error))))
			return error;
	}
	return 0;
}

/* ---- Connection managers ---- */

/* Reasons of a REJ (specification 12.6.7.2, table 108) that are met; rdma_cm shows them as an event's status. Causes are named, not
 * numbered: who has no connection manager has none of them. */
static const struct {
	unsigned reason;
	const char *cause;
	const char *what, *todo;
} rejects[] = {
	{ 1, NULL, N_("No queue pair was available at the other end."), N_("Raise its limits.") },
	{ 3, NULL, N_("The other end had not enough resources."),
	  N_("Raise its limits, or destroy what it does not use any more.") },
	{ 4, "CM_PEER_GAVE_UP", N_("Timeout: the other end has given up waiting for the next message of the exchange."),
	  N_("Look whether this end takes long between the event and its answer, or the network loses packets.") },
	{ 5, NULL, N_("The other end does not support what was asked for."), N_("Compare queue pair types and attributes.") },
	{ 6, "CM_STALE", N_("The other end does not know this connection."),
	  N_("It ended meanwhile, or restarted: connect anew.") },
	{ 8, "CM_NO_LISTENER", N_("Invalid service: nobody listens on that port (connection refused)."),
	  N_("Start the server first; compare address, port and port space (RDMA_PS_TCP, RDMA_PS_UDP).") },
	{ 10, "CM_STALE", N_("Stale connection: the other end still holds a connection of the same queue pair number."),
	  N_("It has not noticed the end of an earlier one: try again in a moment, and disconnect before exit.") },
	{ 12, NULL, N_("The other end does not have the GID that the request is for."),
	  N_("Compare the address that you connect to with its interfaces.") },
	{ 26, NULL, N_("The path MTU is not possible for the other end."), N_("Use a smaller one.") },
	{ 27, NULL, N_("The other end has not the responder resources that were asked for."),
	  N_("Ask for fewer: responder_resources and initiator_depth at most max_qp_rd_atom of ibv_query_device.") },
	{ 28, "CM_REJECTED_BY_PROGRAM",
	  N_("Consumer reject: the program at the other end called rdma_reject, or destroyed the request."),
	  N_("Only that program knows why: look at the event's private data and at its log.") },
	{ 29, NULL, N_("The other end rejects the RNR retry count."), N_("Use another rnr_retry_count.") },
};

static bool explain_reject(unsigned reason)
{
	const struct cause_entry *entry;

	for (size_t i = 0; i < sizeof(rejects) / sizeof(rejects[0]); i++) {
		if (rejects[i].reason != reason)
			continue;
		printf(_("A connection that was rejected for reason %u (RDMA_CM_EVENT_REJECTED, status %u):\n"), reason, reason);
		printf("  %s\n    ", _(rejects[i].what));
		printf(explain_word(EXPLAIN_WORD_TODO), _(rejects[i].todo));
		printf("\n");
		for (unsigned place = 0; rejects[i].cause && (entry = cause_entry(place)); place++)
			if (!strcmp(entry->name, rejects[i].cause))
				document(entry->code);
		return true;
	}
	return false;
}

/* ---- All ---- */

/* The last number of a text, decimal or hexadecimal; -1: it has none. A sign is left out: logs show -errno too. */
static long number_of(const char *text)
{
	long number = -1;

	for (const char *at = text; *at; at++) {
		char *end;

		if (!isdigit((unsigned char)*at) || (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_')))
			continue;
		number = strtol(at, &end, 0);
		at = end - 1;
	}
	return number;
}

static bool has_word(const char *text, const char *const *words)
{
	for (; *words; words++)
		if (strcasestr(text, *words))
			return true;
	return false;
}

static bool explain_number(const char *text, long number)
{
	static const char *const causes[] = { "vendor", "cause", NULL }, *const rejected[] = { "rej", "rdma_cm", NULL },
				 *const errors[] = { "errno", "error", NULL }, *const statuses[] = { "status", "wc", NULL };
	uint32_t value = (uint32_t)number;

	if (has_word(text, causes))
		return explain_cause(value);
	if (has_word(text, rejected))
		return explain_reject(value);
	if (has_word(text, statuses))
		return explain_completion(value);
	if (has_word(text, errors))
		return explain_errno((int)number, 0);

	bool found = explain_cause(value);

	found |= explain_completion(value);
	found |= explain_errno((int)number, 0);
	found |= explain_reject(value);
	return found;
}

bool explain_query(const char *text)
{
	uint32_t verb = verb_of(text);
	long number = number_of(text);
	int error = errno_of(text);

	if (verb)
		return (error || number > 0) && explain_errno(error ? error : (int)number, verb);
	if (explain_cause_name(text) || explain_completion_name(text))
		return true;
	if (error)
		return explain_errno(error, 0);
	return number >= 0 && explain_number(text, number);
}
