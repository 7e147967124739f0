/* SPDX-License-Identifier: MIT */
/*
 * The device's settings, which the library takes from environment variables: given as options of `run` and `env`, or
 * found in the environment. What is wrong is said here, because the programs that would meet it may say nothing. What is
 * valid the library's own functions decide.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "local/memory.h"
#include "nic/device_list.h"
#include "nic/limits.h"
#include "nic/timing.h"
#include "nic/transport.h"
#include "observe/report.h"
#include "observe/runtime.h"
#include "roce/port.h"
#include "tools/tools.h"

const char *const settings_variables[] = { "UROCE_DEVICES", "UROCE_EXPLAIN", "UROCE_MEMORY", "UROCE_PORT", "UROCE_PROFILE",
					   "UROCE_TIMING",  "UROCE_TRANSPORT", NULL };

static error_t set(struct argp_state *state, const char *variable, const char *value)
{
	if (!*value)
		argp_error(state, "%s cannot be set to nothing", variable);
	if (setenv(variable, value, 1))
		return errno;
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 'd':
		return set(state, "UROCE_DEVICES", arg);
	case 'e':
		return set(state, "UROCE_EXPLAIN", arg);
	case 'm':
		return set(state, "UROCE_MEMORY", arg);
	case 'p':
		return set(state, "UROCE_PROFILE", arg);
	case 't':
		return set(state, "UROCE_TIMING", arg);
	case 'T':
		return set(state, "UROCE_TRANSPORT", arg);
	case 'P':
		return set(state, "UROCE_PORT", arg);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ .name = "devices",
	  .key = 'd',
	  .arg = "LIST",
	  .doc = "Show these devices, NAME or NAME:INTERFACE+INTERFACE..., separated by commas; GIDs come "
		 "from the interfaces, or from all (UROCE_DEVICES)" },
	{ .name = "explain",
	  .key = 'e',
	  .arg = "stderr|FILE|line|off",
	  .doc = "Tell causes of failures as they happen, or their number and the first in one line at the end, or not "
		 "(UROCE_EXPLAIN)" },
	{ .name = "memory",
	  .key = 'm',
	  .arg = "WAY",
	  .doc = "Reach memory in no better way than this: mapped, cma, assist (UROCE_MEMORY)" },
	{ .name = "port",
	  .key = 'P',
	  .arg = "NUMBER",
	  .doc = "Use this UDP port between hosts instead of 4791; both must (UROCE_PORT)" },
	{ .name = "profile",
	  .key = 'p',
	  .arg = "NAME",
	  .doc = "Report and enforce the limits of a real card: connectx-3, connectx-5, connectx-6, e810, "
		 "rxe (UROCE_PROFILE)" },
	{ .name = "timing",
	  .key = 't',
	  .arg = "late|random:SEED",
	  .doc = "Run work requests as late, or in as unkind an order, as the specification allows "
		 "(UROCE_TIMING)" },
	{ .name = "transport",
	  .key = 'T',
	  .arg = "roce",
	  .doc = "Send RoCEv2 packets even between processes of this host (UROCE_TRANSPORT)" },
	{ 0 }
};

const struct argp settings_argp = { .options = options, .parser = parse };

/* Adds to text, as far as there is room, what comes after "a, b". */
static void add_name(char *text, size_t size, const char *name)
{
	size_t length = strlen(text);

	snprintf(text + length, size - length, "%s%s", length ? ", " : "", name);
}

static bool profile_is_wrong(struct settings_fault *fault)
{
	char names[sizeof(fault->remedy) - 32] = "";

	if (nic_limits())
		return false;
	for (const char *const *name = nic_profiles(); *name; name++)
		add_name(names, sizeof(names), *name);
	snprintf(fault->what, sizeof(fault->what), "UROCE_PROFILE: there is no profile '%.80s'",
		 getenv("UROCE_PROFILE"));
	snprintf(fault->remedy, sizeof(fault->remedy), "the profiles are %s", names);
	return true;
}

static bool timing_is_wrong(struct settings_fault *fault)
{
	const char *timing = getenv("UROCE_TIMING");
	enum timing_mode mode;
	uint64_t seed;

	if (timing_parse(timing, &mode, &seed))
		return false;
	snprintf(fault->what, sizeof(fault->what), "UROCE_TIMING: there is no timing '%.80s'",
		 timing);
	snprintf(fault->remedy, sizeof(fault->remedy),
		 "it is 'late' or 'random:SEED', SEED a number from 0 to 18446744073709551615");
	return true;
}

static bool memory_is_wrong(struct settings_fault *fault)
{
	const char *memory = getenv("UROCE_MEMORY");
	enum memory_way way;

	if (memory_parse(memory, &way))
		return false;
	snprintf(fault->what, sizeof(fault->what),
		 "UROCE_MEMORY: there is no way '%.80s' of reaching memory", memory);
	snprintf(fault->remedy, sizeof(fault->remedy), "it is 'mapped', 'cma' or 'assist'");
	return true;
}

static bool transport_is_wrong(struct settings_fault *fault)
{
	const char *transport = getenv("UROCE_TRANSPORT");
	bool wire_only;

	if (transport_parse(transport, &wire_only))
		return false;
	snprintf(fault->what, sizeof(fault->what), "UROCE_TRANSPORT: there is no transport '%.80s'", transport);
	snprintf(fault->remedy, sizeof(fault->remedy), "it is 'roce'; without it hosts are told apart by their addresses");
	return true;
}

static bool port_is_wrong(struct settings_fault *fault)
{
	const char *port = getenv("UROCE_PORT");
	uint16_t number;

	if (port_number(port, &number))
		return false;
	snprintf(fault->what, sizeof(fault->what), "UROCE_PORT: '%.80s' is no port to be used", port);
	snprintf(fault->remedy, sizeof(fault->remedy), "it is a number from 1 to 49151");
	return true;
}

static bool runtime_is_wrong(struct settings_fault *fault)
{
	const char *runtime = getenv("UROCE_RUNTIME_DIR");

	if (runtime_parse(runtime))
		return false;
	snprintf(fault->what, sizeof(fault->what), "UROCE_RUNTIME_DIR: '%.80s' is not an absolute path", runtime);
	snprintf(fault->remedy, sizeof(fault->remedy), "it is a directory of this user, mode 0700, and begins with '/'");
	return true;
}

static bool explain_is_wrong(struct settings_fault *fault)
{
	const char *explain = getenv("UROCE_EXPLAIN");
	enum report_way way;

	if (report_parse(explain, &way))
		return false;
	snprintf(fault->what, sizeof(fault->what), "UROCE_EXPLAIN: the file '%.80s' cannot be appended to: %s", explain, strerror(errno));
	snprintf(fault->remedy, sizeof(fault->remedy), "it is 'stderr', 'line', 'off' or a file");
	return true;
}

static bool devices_are_wrong(struct settings_fault *fault)
{
	struct device_list list;
	char text[sizeof(fault->what) - 16];
	int error = device_list_parse(&list, getenv("UROCE_DEVICES"), text, sizeof(text));

	if (!error)
		device_list_free(&list);
	if (error != EINVAL)
		return false;
	snprintf(fault->what, sizeof(fault->what), "UROCE_DEVICES: %s", text);
	snprintf(fault->remedy, sizeof(fault->remedy),
		 "it is NAME or NAME:INTERFACE+INTERFACE..., several separated by commas");
	return true;
}

bool settings_are_wrong(struct settings_fault *fault)
{
	return profile_is_wrong(fault) || timing_is_wrong(fault) || memory_is_wrong(fault) || transport_is_wrong(fault) ||
	       port_is_wrong(fault) || runtime_is_wrong(fault) || explain_is_wrong(fault) || devices_are_wrong(fault);
}

/* By the names that a GID table is made from: with addresses these may be others than the kernel's. */
static bool interface_exists(const struct ifaddrs *host, const char *name)
{
	for (; host; host = host->ifa_next)
		if (!strcmp(host->ifa_name, name))
			return true;
	return false;
}

/* Adds "'nope' (of device 'a')" for each interface that is not there. */
static void add_absent(char *text, size_t size, const struct device_list *list,
		       const struct ifaddrs *host)
{
	char one[160];

	for (unsigned i = 0; i < list->count; i++) {
		const struct device_entry *entry = &list->entries[i];

		for (const char **name = entry->interfaces; name && *name; name++) {
			if (interface_exists(host, *name))
				continue;
			snprintf(one, sizeof(one), "'%s' (of device '%s')", *name, entry->name);
			add_name(text, size, one);
		}
	}
}

bool settings_name_absent_interfaces(struct settings_fault *fault)
{
	char absent[sizeof(fault->what) - 48] = "", present[sizeof(fault->remedy) - 32] = "";
	struct if_nameindex *interfaces;
	struct device_list list;
	struct ifaddrs *host;

	if (getifaddrs(&host))
		return false;
	if (!device_list_parse(&list, getenv("UROCE_DEVICES"), absent, sizeof(absent))) {
		add_absent(absent, sizeof(absent), &list, host);
		device_list_free(&list);
	}
	freeifaddrs(host);
	if (!*absent)
		return false;
	interfaces = if_nameindex();
	for (struct if_nameindex *at = interfaces; at && at->if_name; at++)
		add_name(present, sizeof(present), at->if_name);
	if_freenameindex(interfaces);
	snprintf(fault->what, sizeof(fault->what), "UROCE_DEVICES: there is no interface %s",
		 absent);
	snprintf(fault->remedy, sizeof(fault->remedy), "the interfaces are %s", present);
	return true;
}

/* Programs may be started in other directories. */
static void make_file_absolute(void)
{
	const char *explain = getenv("UROCE_EXPLAIN");
	char path[PATH_MAX];
	enum report_way way;

	if (report_parse(explain, &way) && way == REPORT_FILE && *explain != '/' && realpath(explain, path))
		setenv("UROCE_EXPLAIN", path, 1);
}

bool settings_check(const char *name)
{
	struct settings_fault fault;

	if (!settings_are_wrong(&fault)) {
		make_file_absolute();
		return true;
	}
	complain(name, "%s; %s", fault.what, fault.remedy);
	return false;
}

void settings_warn(const char *name)
{
	struct settings_fault fault;

	if (settings_name_absent_interfaces(&fault))
		complain(name, "%s; %s", fault.what, fault.remedy);
}
