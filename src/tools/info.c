/* SPDX-License-Identifier: MIT */
/*
 * uroce info: what a program would see (devices, limits, ports, GIDs), taken by the verbs calls that a program uses, and
 * which processes of this host use the device. The facts are gathered once, as JSON; the table is printed from that.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <net/if.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nic/layout.h"
#include "roce/port.h"
#include "tools/libraries.h"
#include "tools/processes.h"
#include "tools/regions.h"
#include "tools/tools.h"
#include "tools/verbs.h"

static const char doc[] =
	"Show the devices of uroce as a program would see them, and the processes that use them.";

enum { OPTION_JSON = 256 };

static const struct argp_option options[] = {
	{ .name = "json", .key = OPTION_JSON, .doc = "Print JSON" }, { 0 }
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	switch (key) {
	case OPTION_JSON:
		*(bool *)state->input = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "no arguments are taken");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void add_text(struct json_object *object, const char *key, const char *text)
{
	json_object_object_add(object, key, text ? json_object_new_string(text) : NULL);
}

static void add_number(struct json_object *object, const char *key, uint64_t number)
{
	json_object_object_add(object, key, json_object_new_uint64(number));
}

static struct json_object *add_array(struct json_object *object, const char *key)
{
	struct json_object *array = json_object_new_array();

	json_object_object_add(object, key, array);
	return array;
}

static struct json_object *add_element(struct json_object *array)
{
	struct json_object *element = json_object_new_object();

	json_object_array_add(array, element);
	return element;
}

static void gather_limits(struct json_object *limits, const struct ibv_device_attr *attr)
{
	const struct {
		const char *name;
		uint64_t value;
	} table[] = {
		{ "max_mr_size", attr->max_mr_size },
		{ "max_qp", attr->max_qp },
		{ "max_qp_wr", attr->max_qp_wr },
		{ "max_sge", attr->max_sge },
		{ "max_sge_rd", attr->max_sge_rd },
		{ "max_cq", attr->max_cq },
		{ "max_cqe", attr->max_cqe },
		{ "max_mr", attr->max_mr },
		{ "max_mw", attr->max_mw },
		{ "max_pd", attr->max_pd },
		{ "max_ah", attr->max_ah },
		{ "max_qp_rd_atom", attr->max_qp_rd_atom },
		{ "max_qp_init_rd_atom", attr->max_qp_init_rd_atom },
		{ "max_srq", attr->max_srq },
		{ "max_srq_wr", attr->max_srq_wr },
		{ "max_srq_sge", attr->max_srq_sge },
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		add_number(limits, table[i].name, table[i].value);
}

static const char *gid_type(uint32_t type)
{
	switch (type) {
	case IBV_GID_TYPE_IB:
		return "IB";
	case IBV_GID_TYPE_ROCE_V1:
		return "RoCE v1";
	case IBV_GID_TYPE_ROCE_V2:
		return "RoCE v2";
	default:
		return "unknown";
	}
}

/* The GIDs of all ports, as a malloc'ed table of *count. NULL when there are none. */
static struct ibv_gid_entry *read_gids(const struct verbs *verbs, struct ibv_context *context,
				       size_t size, ssize_t *count)
{
	struct ibv_gid_entry *gids = calloc(size ? size : 1, sizeof(*gids));

	*count = gids ? verbs->query_gid_table(context, gids, size, 0, sizeof(*gids)) : 0;
	if (*count < 0)
		*count = 0;
	return gids;
}

static void gather_gids(struct json_object *array, const struct ibv_gid_entry *gids, ssize_t count,
			unsigned port)
{
	for (ssize_t i = 0; i < count; i++) {
		char address[INET6_ADDRSTRLEN], interface[IF_NAMESIZE];
		struct json_object *gid;
		uint32_t uid;

		if (gids[i].port_num != port)
			continue;
		gid = add_element(array);
		add_number(gid, "index", gids[i].gid_index);
		add_text(gid, "gid",
			 inet_ntop(AF_INET6, gids[i].gid.raw, address, sizeof(address)));
		add_text(gid, "type", gid_type(gids[i].gid_type));
		add_text(gid, "interface", if_indextoname(gids[i].ndev_ifindex, interface));
		if (port_owner(&gids[i].gid, port_configured(), &uid))
			add_number(gid, "udp_port_uid", uid);
	}
}

static int gather_ports(struct json_object *array, const struct verbs *verbs,
			struct ibv_context *context, unsigned ports)
{
	for (unsigned number = 1; number <= ports; number++) {
		struct json_object *port = add_element(array);
		struct ibv_port_attr attr;
		struct ibv_gid_entry *gids;
		ssize_t count;
		int err = verbs_query_port(context, number, &attr);

		if (err)
			return err;
		gids = read_gids(verbs, context, (size_t)attr.gid_tbl_len * ports, &count);
		add_number(port, "port", number);
		add_text(port, "state", verbs->port_state_str(attr.state));
		add_text(port, "link_layer",
			 attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
		add_number(port, "active_mtu", 128u << attr.active_mtu);
		add_number(port, "max_mtu", 128u << attr.max_mtu);
		add_number(port, "max_msg_size", attr.max_msg_sz);
		gather_gids(add_array(port, "gids"), gids, count, number);
		free(gids);
	}
	return 0;
}

/* 0, or the errno with which the device could not be opened or asked. */
static int gather_device(struct json_object *array, const struct verbs *verbs,
			 struct ibv_device *device)
{
	struct json_object *object = add_element(array), *limits;
	struct ibv_context *context;
	struct ibv_device_attr_ex attr;
	char guid[17];
	int err;

	add_text(object, "name", verbs->get_device_name(device));
	context = verbs->open_device(device);
	if (!context)
		return errno;
	err = verbs_query_device(context, &attr);
	if (!err) {
		snprintf(guid, sizeof(guid), "%016" PRIx64, be64toh(attr.orig_attr.node_guid));
		add_text(object, "node_guid", guid);
		add_text(object, "firmware", attr.orig_attr.fw_ver);
		limits = json_object_new_object();
		json_object_object_add(object, "limits", limits);
		gather_limits(limits, &attr.orig_attr);
		err = gather_ports(add_array(object, "ports"), verbs, context,
				   attr.orig_attr.phys_port_cnt);
	}
	verbs->close_device(context);
	return err;
}

static bool gather_devices(struct json_object *array, const struct libraries *libs,
			   const char *name)
{
	struct verbs verbs;
	struct ibv_device **list;
	bool complete = true;
	int count;

	if (!settings_check(name) || !verbs_load(&verbs, libs->verbs, name))
		return false;
	list = verbs_list_devices(&verbs, &count, name);
	if (!list)
		return false;
	settings_warn(name);
	for (int i = 0; i < count; i++) {
		int err = gather_device(array, &verbs, list[i]);

		if (!err)
			continue;
		complain(name, "%s cannot be opened: %s; 'uroce doctor' may know why",
			 verbs.get_device_name(list[i]), strerror(err));
		complete = false;
	}
	verbs.free_device_list(list);
	return complete;
}

static struct json_object *new_process(struct json_object *array, const struct claim *claim)
{
	struct json_object *process = add_element(array);
	char *command = process_command(claim->pid);
	char state[2] = { process_state(claim->pid) };

	json_object_object_add(process, "pid", claim->pid ? json_object_new_int(claim->pid) : NULL);
	json_object_object_add(process, "uid",
			       claim->uid == (uid_t)-1 ? NULL : json_object_new_int64(claim->uid));
	add_text(process, "command", command);
	add_text(process, "state", state[0] == '?' ? NULL : state);
	add_array(process, "slots");
	json_object_object_add(process, "regions", NULL);
	free(command);
	return process;
}

/* The process of this claim among those gathered, which are told apart by their pid. */
static struct json_object *process_of(struct json_object *array, const struct claim *claim)
{
	for (size_t i = 0; claim->pid && i < json_object_array_length(array); i++) {
		struct json_object *process = json_object_array_get_idx(array, i);

		if (json_object_get_int(json_object_object_get(process, "pid")) == claim->pid)
			return process;
	}
	return new_process(array, claim);
}

/* A process has one segment, which has the number of one of its slots. */
static void gather_regions(struct json_object *process, const struct claim *claim)
{
	struct regions regions = { 0 };
	struct json_object *object, *reasons;

	if (!regions_count(claim->pid, claim->slot, &regions))
		return;
	object = json_object_new_object();
	json_object_object_add(process, "regions", object);
	add_number(object, "mapped", regions.mapped);
	add_number(object, "partly_mapped", regions.partly);
	add_number(object, "not_mapped", regions.unmapped);
	reasons = add_array(object, "reasons");
	for (unsigned i = 0; i < NIC_UNMAPPED_REASONS; i++) {
		struct json_object *reason = regions.reasons[i] ? add_element(reasons) : NULL;

		if (!reason)
			continue;
		add_number(reason, "regions", regions.reasons[i]);
		add_text(reason, "reason", regions_reason(i));
	}
}

static bool gather_processes(struct json_object *array, const char *name)
{
	struct claim claims[SLOT_COUNT];
	int count = processes_claims(claims);

	if (count < 0) {
		complain(name, "cannot see who uses the device: /proc/net/unix: %s",
			 strerror(errno));
		return false;
	}
	for (int i = 0; i < count; i++) {
		struct json_object *process = process_of(array, &claims[i]);
		struct json_object *slots = json_object_object_get(process, "slots"), *slot;

		gather_regions(process, &claims[i]);
		slot = add_element(slots);
		add_number(slot, "slot", claims[i].slot);
		add_number(slot, "first_qpn", claims[i].slot << NIC_QPN_INDEX_BITS);
		add_number(slot, "last_qpn", ((claims[i].slot + 1) << NIC_QPN_INDEX_BITS) - 1);
	}
	return true;
}

static const char *text_of(struct json_object *object, const char *key)
{
	const char *text = json_object_get_string(json_object_object_get(object, key));

	return text ? text : "?";
}

static void print_port(struct json_object *port)
{
	struct json_object *gids = json_object_object_get(port, "gids");

	printf("  port %s: %s, %s, MTU %s of %s\n", text_of(port, "port"), text_of(port, "state"),
	       text_of(port, "link_layer"), text_of(port, "active_mtu"), text_of(port, "max_mtu"));
	for (size_t i = 0; i < json_object_array_length(gids); i++) {
		struct json_object *gid = json_object_array_get_idx(gids, i);

		printf("    GID %3s  %-40s %-8s  %-8s", text_of(gid, "index"), text_of(gid, "gid"), text_of(gid, "type"),
		       text_of(gid, "interface"));
		if (json_object_object_get(gid, "udp_port_uid"))
			printf("  UDP port of user %s", text_of(gid, "udp_port_uid"));
		putchar('\n');
	}
}

static void print_device(struct json_object *device)
{
	struct json_object *limits = json_object_object_get(device, "limits");
	struct json_object *ports = json_object_object_get(device, "ports");

	printf("%s: node GUID %s, firmware %s\n", text_of(device, "name"),
	       text_of(device, "node_guid"), text_of(device, "firmware"));
	if (!limits || !ports)
		return;
	for (size_t i = 0; i < json_object_array_length(ports); i++)
		print_port(json_object_array_get_idx(ports, i));
	printf("  limits\n");
	json_object_object_foreach(limits, name, value)
		printf("    %-20s %s\n", name, json_object_get_string(value));
}

static void print_regions(struct json_object *regions)
{
	struct json_object *reasons = json_object_object_get(regions, "reasons");

	printf("           regions: %s mapped, %s partly, %s not\n", text_of(regions, "mapped"),
	       text_of(regions, "partly_mapped"), text_of(regions, "not_mapped"));
	for (size_t i = 0; i < json_object_array_length(reasons); i++) {
		struct json_object *reason = json_object_array_get_idx(reasons, i);

		printf("           of %s of them: %s\n", text_of(reason, "regions"),
		       text_of(reason, "reason"));
	}
}

static void print_processes(struct json_object *processes)
{
	size_t count = json_object_array_length(processes);

	if (!count) {
		puts("processes: none");
		return;
	}
	puts("processes");
	printf("  %8s %8s %-5s %-16s %s\n", "PID", "UID", "STATE", "COMMAND", "QPNS");
	for (size_t i = 0; i < count; i++) {
		struct json_object *process = json_object_array_get_idx(processes, i);
		struct json_object *slots = json_object_object_get(process, "slots");
		struct json_object *regions = json_object_object_get(process, "regions");

		printf("  %8s %8s %-5s %-16s", text_of(process, "pid"), text_of(process, "uid"),
		       text_of(process, "state"), text_of(process, "command"));
		for (size_t j = 0; j < json_object_array_length(slots); j++) {
			struct json_object *slot = json_object_array_get_idx(slots, j);

			printf(" 0x%06x-0x%06x",
			       json_object_get_int(json_object_object_get(slot, "first_qpn")),
			       json_object_get_int(json_object_object_get(slot, "last_qpn")));
		}
		putchar('\n');
		if (regions)
			print_regions(regions);
	}
}

int cmd_info(int argc, char **argv)
{
	static const struct argp argp = { .options = options, .parser = parse, .doc = doc };
	struct json_object *facts, *devices, *processes;
	const char *name = argv[0];
	struct libraries libs;
	bool json = false, complete;

	if (argp_parse(&argp, argc, argv, 0, NULL, &json) || !libraries_find(&libs, name))
		return 1;

	facts = json_object_new_object();
	add_text(facts, "library", libs.verbs);
	devices = add_array(facts, "devices");
	processes = add_array(facts, "processes");
	/* First the others: we become one of those who use the device by looking at it. */
	complete = gather_processes(processes, name);
	complete = gather_devices(devices, &libs, name) && complete;

	if (json) {
		puts(json_object_to_json_string_ext(facts, JSON_C_TO_STRING_PRETTY |
								   JSON_C_TO_STRING_NOSLASHESCAPE));
	} else {
		for (size_t i = 0; i < json_object_array_length(devices); i++)
			print_device(json_object_array_get_idx(devices, i));
		print_processes(processes);
	}
	json_object_put(facts);
	return complete ? 0 : 1;
}
