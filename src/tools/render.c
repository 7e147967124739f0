/* SPDX-License-Identifier: MIT */
#include "tools/render.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <string.h>

#include "nic/gid.h"
#include "observe/explain.h"

/* ---- For people ---- */

/* Names and values of what is not 0, as many in a line as fit. */
static void print_values(FILE *out, const struct value *values, const uint64_t *numbers, unsigned count)
{
	unsigned used = 0;

	for (unsigned i = 0; i < count; i++) {
		char text[64];
		unsigned length;

		if (!numbers[i])
			continue;
		length = (unsigned)snprintf(text, sizeof(text), "%s %" PRIu64, values[i].name, numbers[i]);
		if (used && used + 2 + length > 96)
			used = 0;
		fprintf(out, "%s%s", used ? ", " : "\n      ", text);
		used += length + (used ? 2 : 6);
	}
	fputc('\n', out);
}

static void print_qp(FILE *out, const struct qp_shot *qp)
{
	char gid[GID_TEXT_BYTES];

	fprintf(out, "    QP 0x%06x %s %s", qp->qpn, qp_type_name(qp->type), explain_state(qp->state));
	if (qp->peer_qpn)
		fprintf(out, ", peer 0x%06x at %s, MTU %u", qp->peer_qpn, gid_text(&qp->dgid, gid), qp->mtu);
	fprintf(out, ", CQs %u and %u", qp->send_cq, qp->recv_cq);
	if (qp->srq >= 0)
		fprintf(out, ", SRQ %d", qp->srq);
	print_values(out, qp_values, qp->values, QP_COUNT);
}

static void print_process(FILE *out, const struct process_shot *process)
{
	uint64_t bytes = 0, mapped = 0, refused = 0;

	if (process->pid)
		fprintf(out, "process %d", (int)process->pid);
	else
		fprintf(out, "process ?");
	fprintf(out, " (%s)", process->command);
	if (!process->seen) {
		fprintf(out, ": not shown: %s\n", process->reason);
		return;
	}
	fprintf(out, ", %s%s, causes recorded: %" PRIu64 "\n", process->devices, process->state == 'T' ? ", stopped" : "",
		process->causes);
	fprintf(out, "    device");
	print_values(out, device_values, process->values, DEVICE_COUNT);
	for (uint32_t i = 0; i < process->qp_count; i++)
		print_qp(out, &process->qps[i]);
	for (uint32_t i = 0; i < process->cq_count; i++) {
		fprintf(out, "    CQ %u%s", process->cqs[i].index, process->cqs[i].failed ? ", in error" : "");
		print_values(out, cq_values, process->cqs[i].values, CQ_COUNT);
	}
	for (uint32_t i = 0; i < process->srq_count; i++) {
		fprintf(out, "    SRQ %u", process->srqs[i].index);
		print_values(out, srq_values, process->srqs[i].values, SRQ_COUNT);
	}
	for (uint32_t i = 0; i < process->mr_count; i++) {
		bytes += process->mrs[i].values[MR_length];
		mapped += process->mrs[i].values[MR_mapped];
		refused += process->mrs[i].values[MR_refused];
	}
	fprintf(out, "    %u memory regions of %" PRIu64 " bytes, %" PRIu64 " of them mapped by peers", process->mr_count, bytes,
		mapped);
	if (refused)
		fprintf(out, ", %" PRIu64 " accesses refused", refused);
	fputc('\n', out);
}

void render_table(FILE *out, const struct snapshot *snapshot)
{
	if (!snapshot->count)
		fputs("processes: none\n", out);
	for (uint32_t i = 0; i < snapshot->count; i++)
		print_process(out, &snapshot->processes[i]);
}

/* ---- JSON ---- */

static void put(struct json_object *object, const char *key, uint64_t number)
{
	json_object_object_add(object, key, json_object_new_uint64(number));
}

static void put_text(struct json_object *object, const char *key, const char *text)
{
	json_object_object_add(object, key, text && *text ? json_object_new_string(text) : NULL);
}

static void put_values(struct json_object *object, const struct value *values, const uint64_t *numbers, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		put(object, values[i].name, numbers[i]);
}

static struct json_object *array_in(struct json_object *object, const char *key)
{
	struct json_object *array = json_object_new_array();

	json_object_object_add(object, key, array);
	return array;
}

static struct json_object *object_in(struct json_object *array)
{
	struct json_object *object = json_object_new_object();

	json_object_array_add(array, object);
	return object;
}

static void add_qp(struct json_object *array, const struct qp_shot *qp)
{
	struct json_object *object = object_in(array);
	char gid[GID_TEXT_BYTES];

	put(object, "qpn", qp->qpn);
	put_text(object, "type", qp_type_name(qp->type));
	put_text(object, "state", explain_state(qp->state));
	json_object_object_add(object, "peer_qpn", qp->peer_qpn ? json_object_new_uint64(qp->peer_qpn) : NULL);
	put_text(object, "sgid", qp->peer_qpn ? gid_text(&qp->sgid, gid) : NULL);
	put_text(object, "dgid", qp->peer_qpn ? gid_text(&qp->dgid, gid) : NULL);
	json_object_object_add(object, "mtu", qp->mtu ? json_object_new_uint64(qp->mtu) : NULL);
	put(object, "pd", qp->pd);
	put(object, "send_cq", qp->send_cq);
	put(object, "recv_cq", qp->recv_cq);
	json_object_object_add(object, "srq", qp->srq >= 0 ? json_object_new_int(qp->srq) : NULL);
	put_values(object, qp_values, qp->values, QP_COUNT);
}

static void add_objects(struct json_object *object, const struct process_shot *process)
{
	struct json_object *device = json_object_new_object(), *array;

	put(object, "causes", process->causes);
	put_text(object, "device", process->devices);
	json_object_object_add(object, "counters", device);
	put_values(device, device_values, process->values, DEVICE_COUNT);
	array = array_in(object, "qps");
	for (uint32_t i = 0; i < process->qp_count; i++)
		add_qp(array, &process->qps[i]);
	array = array_in(object, "cqs");
	for (uint32_t i = 0; i < process->cq_count; i++) {
		const struct cq_shot *cq = &process->cqs[i];
		struct json_object *element = object_in(array);

		put(element, "cq", cq->index);
		json_object_object_add(element, "in_error", json_object_new_boolean(cq->failed));
		json_object_object_add(element, "polls", cq->polls_known ? json_object_new_uint64(cq->polls) : NULL);
		put_values(element, cq_values, cq->values, CQ_COUNT);
	}
	array = array_in(object, "srqs");
	for (uint32_t i = 0; i < process->srq_count; i++) {
		struct json_object *element = object_in(array);

		put(element, "srq", process->srqs[i].index);
		put(element, "pd", process->srqs[i].pd);
		put_values(element, srq_values, process->srqs[i].values, SRQ_COUNT);
	}
	array = array_in(object, "mrs");
	for (uint32_t i = 0; i < process->mr_count; i++) {
		const struct mr_shot *mr = &process->mrs[i];
		struct json_object *element = object_in(array);

		put(element, "lkey", mr->lkey);
		put(element, "rkey", mr->rkey);
		put(element, "pd", mr->pd);
		put(element, "access", mr->access);
		put(element, "addr", mr->addr);
		put(element, "iova", mr->iova);
		put_values(element, mr_values, mr->values, MR_COUNT);
	}
}

void render_json(FILE *out, const struct snapshot *snapshot)
{
	struct json_object *root = json_object_new_object(), *processes = array_in(root, "processes");

	for (uint32_t i = 0; i < snapshot->count; i++) {
		const struct process_shot *process = &snapshot->processes[i];
		struct json_object *object = object_in(processes);
		char state[2] = { process->state == '?' ? '\0' : process->state };

		json_object_object_add(object, "pid", process->pid ? json_object_new_int(process->pid) : NULL);
		json_object_object_add(object, "uid", process->uid == (uid_t)-1 ? NULL : json_object_new_int64(process->uid));
		put_text(object, "command", strcmp(process->command, "?") ? process->command : NULL);
		put_text(object, "state", state);
		put(object, "slot", process->slot);
		put_text(object, "not_shown", process->reason);
		if (process->seen)
			add_objects(object, process);
	}
	fputs(json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE), out);
	fputc('\n', out);
	json_object_put(root);
}

/* ---- Prometheus ---- */

/* The objects of one kind: how many a process has, their numbers, and the labels that tell them apart. */
struct family {
	const char *prefix;
	const struct value *values;
	unsigned count;
	uint32_t (*objects)(const struct process_shot *process);
	const uint64_t *(*numbers)(const struct process_shot *process, uint32_t i);
	void (*labels)(FILE *out, const struct process_shot *process, uint32_t i);
};

static void print_escaped(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\\' || *text == '"')
			fputc('\\', out);
		fputc(*text, out);
	}
}

static void print_process_labels(FILE *out, const struct process_shot *process)
{
	fprintf(out, "{pid=\"%d\",command=\"", (int)process->pid);
	print_escaped(out, process->command);
	if (process->seen) {
		fputs("\",device=\"", out);
		print_escaped(out, process->devices);
	}
	fputc('"', out);
}

static uint32_t one(const struct process_shot *process)
{
	(void)process;
	return 1;
}

static const uint64_t *device_numbers(const struct process_shot *process, uint32_t i)
{
	(void)i;
	return process->values;
}

static void no_labels(FILE *out, const struct process_shot *process, uint32_t i)
{
	(void)out;
	(void)process;
	(void)i;
}

static uint32_t qp_objects(const struct process_shot *process)
{
	return process->qp_count;
}

static const uint64_t *qp_numbers(const struct process_shot *process, uint32_t i)
{
	return process->qps[i].values;
}

static void qp_labels(FILE *out, const struct process_shot *process, uint32_t i)
{
	const struct qp_shot *qp = &process->qps[i];

	fprintf(out, ",qpn=\"0x%06x\",type=\"%s\"", qp->qpn, qp_type_name(qp->type));
}

static uint32_t cq_objects(const struct process_shot *process)
{
	return process->cq_count;
}

static const uint64_t *cq_numbers(const struct process_shot *process, uint32_t i)
{
	return process->cqs[i].values;
}

static void cq_labels(FILE *out, const struct process_shot *process, uint32_t i)
{
	fprintf(out, ",cq=\"%u\"", process->cqs[i].index);
}

static uint32_t srq_objects(const struct process_shot *process)
{
	return process->srq_count;
}

static const uint64_t *srq_numbers(const struct process_shot *process, uint32_t i)
{
	return process->srqs[i].values;
}

static void srq_labels(FILE *out, const struct process_shot *process, uint32_t i)
{
	fprintf(out, ",srq=\"%u\"", process->srqs[i].index);
}

static uint32_t mr_objects(const struct process_shot *process)
{
	return process->mr_count;
}

static const uint64_t *mr_numbers(const struct process_shot *process, uint32_t i)
{
	return process->mrs[i].values;
}

static void mr_labels(FILE *out, const struct process_shot *process, uint32_t i)
{
	fprintf(out, ",rkey=\"0x%08x\"", process->mrs[i].rkey);
}

static const struct family families[] = {
	{ "uroce_device", device_values, DEVICE_COUNT, one, device_numbers, no_labels },
	{ "uroce_qp", qp_values, QP_COUNT, qp_objects, qp_numbers, qp_labels },
	{ "uroce_cq", cq_values, CQ_COUNT, cq_objects, cq_numbers, cq_labels },
	{ "uroce_srq", srq_values, SRQ_COUNT, srq_objects, srq_numbers, srq_labels },
	{ "uroce_mr", mr_values, MR_COUNT, mr_objects, mr_numbers, mr_labels },
};

static void print_head(FILE *out, const char *name, const char *text, enum value_kind kind)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, text, name, kind == COUNTS ? "counter" : "gauge");
}

static void print_family(FILE *out, const struct snapshot *snapshot, const struct family *family, unsigned value)
{
	const struct value *what = &family->values[value];
	char name[96];

	snprintf(name, sizeof(name), "%s_%s%s", family->prefix, what->name, what->kind == COUNTS ? "_total" : "");
	print_head(out, name, what->text, what->kind);
	for (uint32_t i = 0; i < snapshot->count; i++) {
		const struct process_shot *process = &snapshot->processes[i];

		for (uint32_t j = 0; process->seen && j < family->objects(process); j++) {
			fputs(name, out);
			print_process_labels(out, process);
			family->labels(out, process, j);
			fprintf(out, "} %" PRIu64 "\n", family->numbers(process, j)[value]);
		}
	}
}

void render_prometheus(FILE *out, const struct snapshot *snapshot)
{
	print_head(out, "uroce_process_shown", "whether the numbers of the process could be read", IS);
	for (uint32_t i = 0; i < snapshot->count; i++) {
		fputs("uroce_process_shown", out);
		print_process_labels(out, &snapshot->processes[i]);
		fprintf(out, "} %d\n", snapshot->processes[i].seen);
	}
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		for (unsigned value = 0; value < families[i].count; value++)
			print_family(out, snapshot, &families[i], value);
	}
}
