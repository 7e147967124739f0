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

/* Whether it stands there, and not as a part of another name. */
static bool has_name(const char *text, const char *name)
{
	for (const char *at = text; (at = strcasestr(at, name)); at++) {
		char behind = at[strlen(name)];

		if ((at == text || (!isalnum((unsigned char)at[-1]) && at[-1] != '_')) && !isalnum((unsigned char)behind) &&
		    behind != '_')
			return true;
	}
	return false;
}

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

/* By name: who has no connection manager has none of its causes. */
static void document_named(const char *name)
{
	const struct cause_entry *entry;

	for (unsigned place = 0; (entry = cause_entry(place)); place++)
		if (!strcmp(entry->name, name))
			document(entry->code);
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

/* By name, or the words of ibv_wc_status_str(); 0: none. */
static uint32_t status_of(const char *text)
{
	for (uint32_t status = 1; explain_status(status); status++) {
		const char *name = explain_status(status);

		if (has_name(text, name) || !strcasecmp(name + strlen("IBV_WC_"), text))
			return status;
	}
	for (uint32_t status = 1; status < STATUS_WORDS; status++)
		if (status_words[status] && strcasestr(text, status_words[status]))
			return status;
	return 0;
}

/* vendor: what stands beside it, -1: nothing. Another card's numbers are its own. */
static bool explain_status_and_vendor(uint32_t status, long vendor)
{
	const struct explain_row *row = vendor > 0 ? explain_row((uint32_t)vendor) : NULL;

	if (row && row->statuses & 1u << status) {
		printf(_("A completion with %s (%u), vendor_err %ld, has this cause:\n"), explain_status(status), status, vendor);
		document((uint32_t)vendor);
		return true;
	}
	if (!explain_completion(status))
		return false;
	if (vendor > 0)
		printf(_("  vendor_err %ld (0x%lx) is none of uroce with this status: such numbers are different for each maker of cards.\n"),
		       vendor, (unsigned long)vendor);
	return true;
}

/* ---- Asynchronous events ---- */

static const struct {
	const char *name, *words; /* of ibv_event_type_str() */
	const char *causes[5];	  /* that bring it here; none: never */
	const char *what;
} events[] = {
	{ "IBV_EVENT_CQ_ERR", "CQ error", { "CQ_OVERFLOW" }, N_("A completion queue was full, and completions were lost.") },
	{ "IBV_EVENT_QP_FATAL",
	  "local work queue catastrophic error",
	  { "CQ_OVERFLOW" },
	  N_("A completion queue of the queue pair is in error, and the queue pair with it.") },
	{ "IBV_EVENT_QP_REQ_ERR",
	  "invalid request local work queue error",
	  { "QP_ACCESS", "BAD_REQUEST" },
	  N_("A request of the peer is none that this queue pair takes.") },
	{ "IBV_EVENT_QP_ACCESS_ERR",
	  "local access violation work queue error",
	  { "RKEY_UNKNOWN", "RKEY_BOUNDS", "RKEY_ACCESS", "RKEY_DEREGISTERED", "RESPONDER_DEPTH" },
	  N_("A request of the peer violates the access to memory here; these are the most frequent of its causes.") },
	{ "IBV_EVENT_COMM_EST",
	  "communication established",
	  { NULL },
	  N_("No error: a message has arrived while the queue pair was in RTR.") },
	{ "IBV_EVENT_SQ_DRAINED",
	  "send queue drained",
	  { NULL },
	  N_("No error: the queue pair is in SQD, and what was begun is done.") },
	{ "IBV_EVENT_SRQ_LIMIT_REACHED",
	  "SRQ limit reached",
	  { NULL },
	  N_("No error: fewer receives are left in the shared receive queue than its limit (ibv_modify_srq). Post more.") },
	{ "IBV_EVENT_QP_LAST_WQE_REACHED",
	  "last WQE reached",
	  { NULL },
	  N_("A consequence: the queue pair is in the error state, and takes nothing more from its shared receive queue.") },
	{ "IBV_EVENT_PORT_ERR", "port error", { NULL }, N_("The interface of the device's addresses is down: ip link shows it.") },
	{ "IBV_EVENT_PORT_ACTIVE", "port active", { NULL }, N_("No error: the interface of the device's addresses is up.") },
	{ "IBV_EVENT_GID_CHANGE",
	  "GID table change",
	  { NULL },
	  N_("The addresses of the host have changed: look again for the GID index that you use.") },
};

static bool explain_event(const char *text)
{
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
		if (!has_name(text, events[i].name) && !strcasestr(text, events[i].words))
			continue;
		printf(_("The asynchronous event %s (ibv_get_async_event):\n"), events[i].name);
		printf("  %s\n", _(events[i].what));
		for (size_t c = 0; c < sizeof(events[i].causes) / sizeof(events[i].causes[0]) && events[i].causes[c]; c++)
			document_named(events[i].causes[c]);
		return true;
	}
	return false;
}

/* ---- Verbs ---- */

#define V(verb) (1u << EXPLAIN_##verb)

/* The first that fits. */
static const struct {
	const char *prefix;
	uint32_t verbs;
} verbs[] = {
	{ "ibv_post_send", V(POST_SEND) },
	{ "ibv_wr_", V(POST_SEND) },
	{ "ibv_post_recv", V(POST_RECV) },
	{ "ibv_post_srq_recv", V(POST_RECV) },
	{ "ibv_modify_qp", V(MODIFY_QP) },
	{ "ibv_modify_srq", V(MODIFY_SRQ) },
	{ "ibv_create_ah", V(CREATE_AH) },
	{ "ibv_create", V(CREATE) },
	{ "ibv_alloc", V(CREATE) },
	{ "ibv_reg_", V(REG_MR) },
	{ "ibv_rereg_", V(REG_MR) },
	{ "ibv_destroy", V(DESTROY) },
	{ "ibv_dereg", V(DESTROY) },
	{ "ibv_dealloc", V(DESTROY) },
	{ "ibv_query", V(QUERY) },
	{ "ibv_resize_cq", V(RESIZE_CQ) },
	{ "ibv_attach", V(ATTACH) },
	{ "ibv_detach", V(ATTACH) },
	{ "ibv_open", V(OPEN) },
	{ "ibv_bind_mw", V(POST_SEND) },
	{ "ibv_poll_cq", 0 },
	{ "ibv_req_notify_cq", 0 },
	{ "ibv_get_", 0 },
	{ "ibv_close", 0 },
	{ "rdma_bind", V(CM) },
	{ "rdma_resolve", V(CM) },
	{ "rdma_listen", V(CM) },
	{ "rdma_connect", V(CM) },
	{ "rdma_accept", V(CM) },
	{ "rdma_reject", V(CM) },
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
	for (size_t i = 0; i < sizeof(rejects) / sizeof(rejects[0]); i++) {
		if (rejects[i].reason != reason)
			continue;
		printf(_("A connection that was rejected for reason %u (RDMA_CM_EVENT_REJECTED, status %u):\n"), reason, reason);
		printf("  %s\n    ", _(rejects[i].what));
		printf(explain_word(EXPLAIN_WORD_TODO), _(rejects[i].todo));
		printf("\n");
		if (rejects[i].cause)
			document_named(rejects[i].cause);
		return true;
	}
	return false;
}

/* ---- All ---- */

/* The first number from *at on, decimal or hexadecimal, and *at behind it; -1: there is none. A sign is left out: logs show -errno
 * too. */
static long next_number(const char **at, const char *text)
{
	for (; **at; ++*at) {
		char *end;
		long number;

		if (!isdigit((unsigned char)**at) || (*at > text && (isalnum((unsigned char)(*at)[-1]) || (*at)[-1] == '_')))
			continue;
		number = strtol(*at, &end, 0);
		*at = end;
		return number;
	}
	return -1;
}

static long last_number(const char *text)
{
	const char *at = text;
	long number = -1, next;

	while ((next = next_number(&at, text)) >= 0)
		number = next;
	return number;
}

static long number_behind(const char *text, const char *const *words)
{
	for (; *words; words++) {
		const char *at = strcasestr(text, *words);
		long number;

		if (!at)
			continue;
		at += strlen(*words);
		number = next_number(&at, text);
		if (number >= 0)
			return number;
	}
	return -1;
}

static bool has_word(const char *text, const char *const *words)
{
	for (; *words; words++)
		if (strcasestr(text, *words))
			return true;
	return false;
}

static const char *const of_vendor[] = { "vendor", "syndrom", NULL }, *const of_cause[] = { "cause", NULL },
			 *const of_reject[] = { "rej", "rdma_cm", NULL }, *const of_errno[] = { "errno", "error", NULL },
			 *const of_status[] = { "status", "wc", NULL };

/* A completion, as logs show it. */
static bool explain_log_of_completion(const char *text)
{
	uint32_t status = status_of(text);
	long vendor = number_behind(text, of_vendor), number;

	if (!status && !has_word(text, of_reject)) {
		number = number_behind(text, of_status);
		status = number > 0 && number < 32 && explain_status((uint32_t)number) ? (uint32_t)number : 0;
	}
	if (status)
		return explain_status_and_vendor(status, vendor);
	return vendor >= 0 && explain_cause((uint32_t)vendor);
}

static bool explain_number(const char *text, long number)
{
	uint32_t value = (uint32_t)number;

	if (has_word(text, of_cause))
		return explain_cause(value);
	if (has_word(text, of_reject))
		return explain_reject(value);
	if (has_word(text, of_status))
		return explain_completion(value);
	if (has_word(text, of_errno))
		return explain_errno((int)number, 0);
	/* A verb that we do not know may mean anything by it. */
	if (strcasestr(text, "ibv_") || strcasestr(text, "rdma_"))
		return false;

	bool found = explain_cause(value);

	found |= explain_completion(value);
	found |= explain_errno((int)number, 0);
	found |= explain_reject(value);
	return found;
}

bool explain_query(const char *text)
{
	uint32_t verb = verb_of(text);
	long number = last_number(text);
	int error = errno_of(text);

	if (explain_cause_name(text) || explain_event(text) || explain_log_of_completion(text))
		return true;
	if (verb)
		return (error || number > 0) && explain_errno(error ? error : (int)number, verb);
	if (error)
		return explain_errno(error, 0);
	return number >= 0 && explain_number(text, number);
}
