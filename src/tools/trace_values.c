/* SPDX-License-Identifier: MIT */
#include "tools/trace_values.h"

#include <inttypes.h>
#include <stdio.h>

#include <infiniband/verbs.h>

#include "tools/explain.h"

unsigned trace_character(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	const unsigned bytes = *at < 0x80		 ? 1 :
			       *at >= 0xc2 && *at < 0xe0 ? 2 :
			       *at >= 0xe0 && *at < 0xf0 ? 3 :
			       *at >= 0xf0 && *at < 0xf5 ? 4 :
							   0;

	for (unsigned i = 1; i < bytes; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	/* Neither long forms, nor halves of pairs, nor beyond the last. */
	if ((*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f) || (*at == 0xf0 && at[1] < 0x90) ||
	    (*at == 0xf4 && at[1] > 0x8f))
		return 0;
	return bytes;
}

const char *trace_duration(uint64_t ns, char *text, size_t size)
{
	if (ns < 1000)
		snprintf(text, size, "%" PRIu64 " ns", ns);
	else if (ns < 1000000)
		snprintf(text, size, "%.2f us", (double)ns / 1e3);
	else if (ns < 1000000000)
		snprintf(text, size, "%.2f ms", (double)ns / 1e6);
	else
		snprintf(text, size, "%.2f s", (double)ns / 1e9);
	return text;
}

const char *trace_bytes(uint32_t count, char *text, size_t size)
{
	if (count == TRACE_NONE)
		snprintf(text, size, "?");
	else if (count < 10240)
		snprintf(text, size, "%u B", count);
	else if (count < 10240u * 1024)
		snprintf(text, size, "%u KiB", count >> 10);
	else
		snprintf(text, size, "%u MiB", count >> 20);
	return text;
}

bool trace_failed(const struct trace_send *send)
{
	return send->status != TRACE_NO_STATUS && send->status != IBV_WC_SUCCESS;
}

const char *trace_most(const struct trace_fill *fill, uint32_t limit, char *text, size_t size)
{
	if (limit)
		snprintf(text, size, _("at most %u of %u"), fill->max, limit);
	else
		snprintf(text, size, _("at most %u"), fill->max);
	return text;
}

uint32_t trace_send_dest(const struct trace_model *model, const struct trace_send *send)
{
	return send->dest != TRACE_NONE ? send->dest : model->qps.at[send->qp].peer;
}
