/* SPDX-License-Identifier: MIT */
/* From a cause to words. See explain.h. */
#include "observe/explain.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <libintl.h>
#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/verbs.h>

#define N_(text)  text
#define S(status) (1u << IBV_WC_##status)
#define V(verb)	  (1u << EXPLAIN_##verb)

/* What a sentence is about. */
enum subject { REQUEST, RECEIVE, MESSAGE, QP, CQ, SRQ, PATH, MEMORY, PROCESS, CONNECTION };

#define TEXT(name, subject, statuses, error, verbs, what, todo) { CAUSE_##name, subject, statuses, error, verbs, what, todo },
static const struct explain_row rows[] = {
#include "observe/explain_texts.h"
};
#undef TEXT

#define ROWS	(sizeof(rows) / sizeof(rows[0]))
#define ENTRIES 256 /* of cause_codes.h, at most */

/* Parts of sentences: templates as in explain_texts.h, and single words. */
enum part {
	HEAD_REQUEST,
	HEAD_SRQ_REQUEST,
	HEAD_MESSAGE,
	HEAD_QP,
	HEAD_CQ,
	HEAD_SRQ,
	HEAD_MEMORY,
	HEAD_VERB,
	HEAD_CONNECTION,
	TRIES,
	BYTE,
	BYTES,
	ENDS_AFTER,
	STARTS_AFTER,
	STARTS_BEFORE,
	SURROUNDS,
	NO_RIGHTS,
	RECEIVING,
	OTHER_END,
	THIS_END,
	VALUE,
	PHASES, /* of an id of a connection: enum cm_phase */
	LAST_PHASE = PHASES + 6,
	PARTS,
};

static const char *const parts[PARTS] = {
	[HEAD_REQUEST] = N_("QP {qpn}, {opcode} with wr_id {wr_id:zero} (index {wr_index:zero} of its list): "),
	[HEAD_SRQ_REQUEST] = N_("SRQ {qpn:zero}, {opcode} with wr_id {wr_id:zero} (index {wr_index:zero} of its list): "),
	[HEAD_MESSAGE] = N_("QP {qpn}, a message from QP {peer_qpn}: "),
	[HEAD_QP] = N_("QP {qpn}: "),
	[HEAD_CQ] = N_("CQ {qpn:zero}: "),
	[HEAD_SRQ] = N_("SRQ {qpn:zero}: "),
	[HEAD_MEMORY] = N_("Memory region: "),
	[HEAD_VERB] = N_("A verb was refused: "),
	[HEAD_CONNECTION] = N_("Connection[ with {address}][, port {port}][, QP {qpn}]: "),
	[TRIES] = N_("nothing came back to {count} attempts, {limit:ms} each (retry_cnt, timeout)"),
	[BYTE] = N_("1 byte"),
	[BYTES] = N_("%llu bytes"),
	[ENDS_AFTER] = N_("ends %s after the end of"),
	[STARTS_AFTER] = N_("starts %s after the end of"),
	[STARTS_BEFORE] = N_("starts %s before"),
	[SURROUNDS] = N_("starts before, and ends %s after, the end of"),
	[NO_RIGHTS] = N_("none (local reading only)"),
	[RECEIVING] = N_("the receive"),
	[OTHER_END] = N_("the other end"),
	[THIS_END] = N_("this end"),
	[VALUE] = N_("[ (value: {value})]"),
	[PHASES] = N_("new"),
	[PHASES + 1] = N_("bound to an address"),
	[PHASES + 2] = N_("resolved, without a route"),
	[PHASES + 3] = N_("resolved, with its route"),
	[PHASES + 4] = N_("listening"),
	[PHASES + 5] = N_("connecting or connected"),
	[LAST_PHASE] = N_("disconnected"),
};

static const char *const words[EXPLAIN_WORDS] = {
	[EXPLAIN_WORD_TODO] = N_("What to do: %s"),
	[EXPLAIN_WORD_AGAIN] = N_("The same happened %llu times in all."),
	[EXPLAIN_WORD_FLUSHED_ONE] = N_("After it 1 work request was flushed (IBV_WC_WR_FLUSH_ERR)."),
	[EXPLAIN_WORD_FLUSHED] = N_("After it %llu work requests were flushed (IBV_WC_WR_FLUSH_ERR)."),
	[EXPLAIN_WORD_MORE] = N_("%llu more causes were recorded that are not shown."),
	[EXPLAIN_WORD_END] = N_("uroce: %s (process %d): %llu causes of failure were recorded. The first: %s"),
	[EXPLAIN_WORD_HOW] =
		N_("More: uroce explain -- PROGRAM, uroce explain --last, or UROCE_EXPLAIN=stderr (off: not even this)."),
	[EXPLAIN_WORD_END_ONE] = N_("uroce: %s (process %d): %llu cause of failure was recorded: %s"),
	[EXPLAIN_WORD_STACK + CAUSE_STACK_CALL] = N_("The call that it comes from:"),
	[EXPLAIN_WORD_STACK + CAUSE_STACK_REGISTERED] = N_("The region was registered by:"),
	[EXPLAIN_WORD_STACK + CAUSE_STACK_DEREGISTERED] = N_("The region was deregistered by:"),
	[EXPLAIN_WORD_STACK + CAUSE_STACK_QP] = N_("The queue pair was created by:"),
	[EXPLAIN_WORD_STACK + CAUSE_STACK_CQ] = N_("The completion queue was created by:"),
	[EXPLAIN_WORD_LINES] = N_("(uroce explain -- PROGRAM shows functions and lines.)"),
};

/* The same in the language of the environment; NULL: English. Written once, by explain_translate(). */
static struct {
	const char *what[ROWS], *todo[ROWS], *brief[ENTRIES], *parts[PARTS], *words[EXPLAIN_WORDS];
} local;

void explain_translate(const char *catalogues)
{
	locale_t environment = newlocale(LC_CTYPE_MASK | LC_MESSAGES_MASK, "", (locale_t)0), old;
	const struct cause_entry *entry;

	if (!environment) /* one that this machine does not have */
		return;
	old = uselocale(environment);
	bindtextdomain(EXPLAIN_DOMAIN, catalogues);
	for (size_t i = 0; i < ROWS; i++) {
		local.what[i] = dgettext(EXPLAIN_DOMAIN, rows[i].what);
		local.todo[i] = dgettext(EXPLAIN_DOMAIN, rows[i].todo);
	}
	for (unsigned i = 0; i < ENTRIES && (entry = cause_entry(i)); i++)
		local.brief[i] = dgettext(EXPLAIN_DOMAIN, entry->text);
	for (size_t i = 0; i < PARTS; i++)
		local.parts[i] = dgettext(EXPLAIN_DOMAIN, parts[i]);
	for (size_t i = 0; i < EXPLAIN_WORDS; i++)
		local.words[i] = dgettext(EXPLAIN_DOMAIN, words[i]);
	uselocale(old);
	freelocale(environment);
}

static const char *part(enum part which)
{
	return local.parts[which] ? local.parts[which] : parts[which];
}

const char *explain_word(enum explain_word word)
{
	return local.words[word] ? local.words[word] : words[word];
}

static size_t place_of(uint32_t code)
{
	size_t i = 0;

	while (i < ROWS && rows[i].code != code)
		i++;
	return i;
}

const struct explain_row *explain_row(uint32_t code)
{
	size_t i = place_of(code);

	return i < ROWS ? &rows[i] : NULL;
}

const char *explain_todo(uint32_t code)
{
	size_t i = place_of(code);

	if (i == ROWS)
		return "";
	return local.todo[i] ? local.todo[i] : rows[i].todo;
}

const char *explain_short(uint32_t code)
{
	const struct cause_entry *entry;

	for (unsigned i = 0; (entry = cause_entry(i)); i++)
		if (entry->code == code)
			return i < ENTRIES && local.brief[i] ? local.brief[i] : entry->text;
	return cause_text(code);
}

/* ---- Names of numbers ---- */

const char *explain_status(uint32_t status)
{
	static const char *const names[] = {
#define NAME(status) [status] = #status
		NAME(IBV_WC_SUCCESS),
		NAME(IBV_WC_LOC_LEN_ERR),
		NAME(IBV_WC_LOC_QP_OP_ERR),
		NAME(IBV_WC_LOC_EEC_OP_ERR),
		NAME(IBV_WC_LOC_PROT_ERR),
		NAME(IBV_WC_WR_FLUSH_ERR),
		NAME(IBV_WC_MW_BIND_ERR),
		NAME(IBV_WC_BAD_RESP_ERR),
		NAME(IBV_WC_LOC_ACCESS_ERR),
		NAME(IBV_WC_REM_INV_REQ_ERR),
		NAME(IBV_WC_REM_ACCESS_ERR),
		NAME(IBV_WC_REM_OP_ERR),
		NAME(IBV_WC_RETRY_EXC_ERR),
		NAME(IBV_WC_RNR_RETRY_EXC_ERR),
		NAME(IBV_WC_LOC_RDD_VIOL_ERR),
		NAME(IBV_WC_REM_INV_RD_REQ_ERR),
		NAME(IBV_WC_REM_ABORT_ERR),
		NAME(IBV_WC_INV_EECN_ERR),
		NAME(IBV_WC_INV_EEC_STATE_ERR),
		NAME(IBV_WC_FATAL_ERR),
		NAME(IBV_WC_RESP_TIMEOUT_ERR),
		NAME(IBV_WC_GENERAL_ERR),
		NAME(IBV_WC_TM_ERR),
		NAME(IBV_WC_TM_RNDV_INCOMPLETE),
#undef NAME
	};

	return status < sizeof(names) / sizeof(names[0]) ? names[status] : NULL;
}

const char *explain_state(uint32_t state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

const char *explain_outcome(const struct cause *c)
{
	const char *name;

	if (!c->error)
		return "";
	name = c->role == CAUSE_OF_REQUEST ? explain_status((uint32_t)c->error) : strerrorname_np(c->error);
	return name ? name : "";
}

struct name {
	uint32_t number;
	const char *text;
};

static const struct name opcodes[] = {
	{ IBV_WR_RDMA_WRITE, "IBV_WR_RDMA_WRITE" },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, "IBV_WR_RDMA_WRITE_WITH_IMM" },
	{ IBV_WR_SEND, "IBV_WR_SEND" },
	{ IBV_WR_SEND_WITH_IMM, "IBV_WR_SEND_WITH_IMM" },
	{ IBV_WR_RDMA_READ, "IBV_WR_RDMA_READ" },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, "IBV_WR_ATOMIC_CMP_AND_SWP" },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, "IBV_WR_ATOMIC_FETCH_AND_ADD" },
	{ IBV_WR_LOCAL_INV, "IBV_WR_LOCAL_INV" },
	{ IBV_WR_BIND_MW, "IBV_WR_BIND_MW" },
	{ IBV_WR_SEND_WITH_INV, "IBV_WR_SEND_WITH_INV" },
	{ IBV_WR_TSO, "IBV_WR_TSO" },
	{ 0 },
};

static const struct name rights[] = {
	{ IBV_ACCESS_LOCAL_WRITE, "IBV_ACCESS_LOCAL_WRITE" },
	{ IBV_ACCESS_REMOTE_WRITE, "IBV_ACCESS_REMOTE_WRITE" },
	{ IBV_ACCESS_REMOTE_READ, "IBV_ACCESS_REMOTE_READ" },
	{ IBV_ACCESS_REMOTE_ATOMIC, "IBV_ACCESS_REMOTE_ATOMIC" },
	{ IBV_ACCESS_MW_BIND, "IBV_ACCESS_MW_BIND" },
	{ IBV_ACCESS_ZERO_BASED, "IBV_ACCESS_ZERO_BASED" },
	{ IBV_ACCESS_ON_DEMAND, "IBV_ACCESS_ON_DEMAND" },
	{ IBV_ACCESS_HUGETLB, "IBV_ACCESS_HUGETLB" },
	{ IBV_ACCESS_RELAXED_ORDERING, "IBV_ACCESS_RELAXED_ORDERING" },
	{ 0 },
};

static const struct name attributes[] = {
	{ IBV_QP_STATE, "IBV_QP_STATE" },
	{ IBV_QP_CUR_STATE, "IBV_QP_CUR_STATE" },
	{ IBV_QP_EN_SQD_ASYNC_NOTIFY, "IBV_QP_EN_SQD_ASYNC_NOTIFY" },
	{ IBV_QP_ACCESS_FLAGS, "IBV_QP_ACCESS_FLAGS" },
	{ IBV_QP_PKEY_INDEX, "IBV_QP_PKEY_INDEX" },
	{ IBV_QP_PORT, "IBV_QP_PORT" },
	{ IBV_QP_QKEY, "IBV_QP_QKEY" },
	{ IBV_QP_AV, "IBV_QP_AV" },
	{ IBV_QP_PATH_MTU, "IBV_QP_PATH_MTU" },
	{ IBV_QP_TIMEOUT, "IBV_QP_TIMEOUT" },
	{ IBV_QP_RETRY_CNT, "IBV_QP_RETRY_CNT" },
	{ IBV_QP_RNR_RETRY, "IBV_QP_RNR_RETRY" },
	{ IBV_QP_RQ_PSN, "IBV_QP_RQ_PSN" },
	{ IBV_QP_MAX_QP_RD_ATOMIC, "IBV_QP_MAX_QP_RD_ATOMIC" },
	{ IBV_QP_ALT_PATH, "IBV_QP_ALT_PATH" },
	{ IBV_QP_MIN_RNR_TIMER, "IBV_QP_MIN_RNR_TIMER" },
	{ IBV_QP_SQ_PSN, "IBV_QP_SQ_PSN" },
	{ IBV_QP_MAX_DEST_RD_ATOMIC, "IBV_QP_MAX_DEST_RD_ATOMIC" },
	{ IBV_QP_PATH_MIG_STATE, "IBV_QP_PATH_MIG_STATE" },
	{ IBV_QP_CAP, "IBV_QP_CAP" },
	{ IBV_QP_DEST_QPN, "IBV_QP_DEST_QPN" },
	{ 0 },
};

static const struct name send_flags[] = {
	{ IBV_SEND_FENCE, "IBV_SEND_FENCE" },	      { IBV_SEND_SIGNALED, "IBV_SEND_SIGNALED" },
	{ IBV_SEND_SOLICITED, "IBV_SEND_SOLICITED" }, { IBV_SEND_INLINE, "IBV_SEND_INLINE" },
	{ IBV_SEND_IP_CSUM, "IBV_SEND_IP_CSUM" },     { 0 },
};

/* ---- Texts ---- */

struct text {
	char *to;
	size_t size, length; /* length may pass size: what is there is cut */
};

static void add_bytes(struct text *text, const char *from, size_t count)
{
	for (size_t i = 0; i < count; i++, text->length++)
		if (text->length + 1 < text->size)
			text->to[text->length] = from[i];
}

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
	char one[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(one, sizeof(one), format, arguments);
	va_end(arguments);
	add_bytes(text, one, strlen(one));
}

static void add_name(struct text *text, const struct name *names, uint64_t number)
{
	for (; names->text; names++) {
		if (names->number == number) {
			add(text, "%s", names->text);
			return;
		}
	}
	add(text, "%" PRIu64, number);
}

static void add_flags(struct text *text, const struct name *names, uint64_t flags)
{
	const char *between = "";

	for (; names->text; names++) {
		if (!(flags & names->number))
			continue;
		add(text, "%s%s", between, names->text);
		flags &= ~(uint64_t)names->number;
		between = " | ";
	}
	if (flags)
		add(text, "%s0x%" PRIx64, between, flags);
}

/* The catalogue's formats are checked by msgfmt -c. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void byte_count(char *text, size_t size, uint64_t bytes)
{
	if (bytes == 1)
		snprintf(text, size, "%s", part(BYTE));
	else
		snprintf(text, size, part(BYTES), (unsigned long long)bytes);
}

/* By how much the range misses its region, and where. False if it does not. */
static bool add_miss(struct text *text, const struct cause *c)
{
	uint64_t region_end = c->region_addr + c->region_length, end = c->addr + c->length, by;
	char bytes[64], miss[160];
	enum part how;

	if (c->addr >= c->region_addr && end <= region_end && end >= c->addr)
		return false;
	if (c->addr >= region_end && c->addr != c->region_addr) {
		how = STARTS_AFTER;
		by = c->addr - region_end;
	} else if (c->addr < c->region_addr) {
		how = end > region_end ? SURROUNDS : STARTS_BEFORE;
		by = how == SURROUNDS ? end - region_end : c->region_addr - c->addr;
	} else {
		how = ENDS_AFTER;
		by = end - region_end;
	}
	byte_count(bytes, sizeof(bytes), by);
	snprintf(miss, sizeof(miss), part(how), bytes);
	add(text, "%s", miss);
	return true;
}
#pragma GCC diagnostic pop

static bool expand(struct text *text, const char **at, const struct cause *c);

/* How numbers are shown; DEFAULT: as the field's own. */
static const struct field {
	const char *name;
	size_t offset, size;
	const char *as;
} fields[] = {
#define FIELD(name, as) { #name, offsetof(struct cause, name), sizeof(((struct cause *)0)->name), as }
	FIELD(error, "errno"),
	FIELD(qpn, "hex"),
	FIELD(peer_qpn, "hex"),
	FIELD(wr_id, "number"),
	FIELD(wr_index, "number"),
	FIELD(opcode, "opcode"),
	FIELD(addr, "hex"),
	FIELD(length, "number"),
	FIELD(key, "hex"),
	FIELD(access, "rights"),
	FIELD(region_access, "rights"),
	FIELD(region_pd, "number"),
	FIELD(pd, "number"),
	FIELD(state, "state"),
	FIELD(peer_state, "state"),
	FIELD(psn, "zero"),
	FIELD(peer_psn, "zero"),
	FIELD(peer_pid, "number"),
	FIELD(limit, "number"),
	FIELD(value, "number"),
	FIELD(count, "number"),
	FIELD(port, "number"),
#undef FIELD
};

static uint64_t value_of(const struct field *field, const struct cause *c)
{
	const char *from = (const char *)c + field->offset;
	uint32_t narrow;
	uint64_t wide;

	if (field->size == sizeof(wide)) {
		memcpy(&wide, from, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, from, sizeof(narrow));
	return narrow;
}

#define LONGEST_RNR_TIMER 655360000u /* ns */

static bool add_number(struct text *text, uint64_t number, const char *as)
{
	char bytes[64];
	const char *name;

	if (!strcmp(as, "is")) /* only says that it is known */
		return number;
	if (!strcmp(as, "hex")) {
		add(text, "0x%" PRIx64, number);
	} else if (!strcmp(as, "bytes")) {
		byte_count(bytes, sizeof(bytes), number);
		add(text, "%s", bytes);
	} else if (!strcmp(as, "ms")) {
		if (number < 10000000)
			add(text, "%" PRIu64 ".%03" PRIu64 " ms", number / 1000000, number / 1000 % 1000);
		else
			add(text, "%" PRIu64 ".%02" PRIu64 " ms", number / 1000000, number / 10000 % 100);
	} else if (!strcmp(as, "timer")) { /* the code that people know, or do not */
		if (number == LONGEST_RNR_TIMER)
			add(text, "0, ");
		return add_number(text, number, "ms");
	} else if (!strcmp(as, "rights")) {
		if (number)
			add_flags(text, rights, number);
		else
			add(text, "%s", part(NO_RIGHTS));
		return true;
	} else if (!strcmp(as, "mask")) {
		add_flags(text, attributes, number);
	} else if (!strcmp(as, "send")) {
		add_flags(text, send_flags, number);
	} else if (!strcmp(as, "state")) {
		add(text, "%s", explain_state((uint32_t)number));
		return true;
	} else if (!strcmp(as, "phase")) {
		add(text, "%s", number <= LAST_PHASE - PHASES ? part(PHASES + (enum part)number) : "?");
		return true;
	} else if (!strcmp(as, "opcode")) {
		if (number == IBV_WC_RECV)
			add(text, "%s", part(RECEIVING));
		else
			add_name(text, opcodes, number);
		return true;
	} else if (!strcmp(as, "cause")) {
		add(text, "%s", explain_short((uint32_t)number));
	} else if (!strcmp(as, "errno")) {
		name = strerrorname_np((int)number);
		if (name)
			add(text, "%s", name);
		else
			add(text, "%" PRIu64, number);
	} else {
		add(text, "%" PRIu64, number);
		return number || !strcmp(as, "zero");
	}
	return number;
}

static bool add_address(struct text *text, const uint8_t *address)
{
	static const uint8_t none[16], ipv4[12] = { [10] = 0xff, [11] = 0xff };
	char ip[INET6_ADDRSTRLEN];

	if (!memcmp(address, none, sizeof(none)))
		return false;
	if (!memcmp(address, ipv4, sizeof(ipv4)))
		inet_ntop(AF_INET, address + sizeof(ipv4), ip, sizeof(ip));
	else
		inet_ntop(AF_INET6, address, ip, sizeof(ip));
	add(text, "%s", ip);
	return true;
}

/* name[:as], of length bytes. False if it is not known, which is 0 for most. */
static bool add_field(struct text *text, const char *name, size_t length, const struct cause *c)
{
	const char *colon = memchr(name, ':', length), *tries = part(TRIES);
	size_t name_length = colon ? (size_t)(colon - name) : length;
	char as[16] = "", key[24] = "";

	if (name_length >= sizeof(key) || length - name_length > sizeof(as))
		return false;
	memcpy(key, name, name_length);
	if (colon)
		memcpy(as, colon + 1, length - name_length - 1);
	if (!strcmp(key, "miss"))
		return add_miss(text, c);
	if (!strcmp(key, "tries"))
		return expand(text, &tries, c);
	if (!strcmp(key, "there")) { /* where a message arrives, whose responder may tell of it itself */
		add(text, "%s", part(c->role == CAUSE_OF_REQUEST ? OTHER_END : THIS_END));
		return true;
	}
	if (!strcmp(key, "dest"))
		return add_number(text, c->role == CAUSE_OF_REQUEST ? c->peer_qpn : c->qpn, "hex");
	if (!strcmp(key, "thing")) {
		const char *thing = cause_thing(c->thing);

		if (!strcmp(as, "is")) /* only says that it is known */
			return thing;
		add(text, "%s", thing ? thing : "");
		return thing;
	}
	if (!strcmp(key, "address"))
		return add_address(text, c->address);
	if (!strcmp(key, "region")) {
		char bytes[64];

		byte_count(bytes, sizeof(bytes), c->region_length);
		add(text, "0x%" PRIx64 "-0x%" PRIx64 " (%s)", c->region_addr, c->region_addr + c->region_length, bytes);
		return c->region_length;
	}
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (!strcmp(key, fields[i].name))
			return add_number(text, value_of(&fields[i], c), *as ? as : fields[i].as);
	return false;
}

/* Adds what stands at *at, up to the end, or the bracket or bar that ends this part. False if a field is not known. */
static bool expand(struct text *text, const char **at, const struct cause *c)
{
	bool known = true;

	while (**at && **at != ']' && **at != '|') {
		const char *from = *at;
		size_t before = text->length;

		if (*from == '{') {
			size_t length = strcspn(from + 1, "}");

			known &= add_field(text, from + 1, length, c);
			*at += length + 1 + (from[length + 1] == '}');
		} else if (*from == '[') {
			++*at;
			bool whole = expand(text, at, c);

			if (!whole)
				text->length = before;
			before = text->length;
			if (**at == '|') {
				++*at;
				expand(text, at, c);
				if (whole)
					text->length = before;
			}
			if (**at)
				++*at;
		} else {
			size_t length = strcspn(from, "{[]|");

			add_bytes(text, from, length);
			*at += length;
		}
	}
	return known;
}

static const char *head_of(enum subject subject, const struct cause *c)
{
	if (subject == SRQ)
		return part(c->role == CAUSE_OF_POST ? HEAD_SRQ_REQUEST : HEAD_SRQ);
	if (subject == CQ)
		return part(HEAD_CQ);
	if (subject == CONNECTION)
		return part(HEAD_CONNECTION);
	if (c->role != CAUSE_OF_OTHER)
		return part(HEAD_REQUEST);
	if (subject == MEMORY)
		return part(HEAD_MEMORY);
	if (subject == MESSAGE && c->peer_qpn)
		return part(HEAD_MESSAGE);
	/* Handles of other objects are small numbers: a process's QPNs have its slot above 14 bits, which is never 0. */
	return part(c->qpn >> 14 ? HEAD_QP : HEAD_VERB);
}

size_t explain_what(const struct cause *c, char *to, size_t size)
{
	struct text text = { .to = to, .size = size };
	size_t i = place_of(c->code);
	const char *head = head_of(i < ROWS ? (enum subject)rows[i].subject : PROCESS, c);
	const char *what = i == ROWS ? explain_short(c->code) : local.what[i] ? local.what[i] : rows[i].what;

	/* Without words of its own nothing more is known of it than its short text and its number. */
	if (i < ROWS || head != part(HEAD_VERB))
		expand(&text, &head, c);
	expand(&text, &what, c);
	if (i == ROWS) {
		what = part(VALUE);
		expand(&text, &what, c);
	}
	if (text.length >= size)
		text.length = size - 1;
	to[text.length] = '\0';
	return text.length;
}
